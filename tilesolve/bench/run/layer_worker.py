"""What the process of a contender does for a layer: prepares, is checked, and times runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from tilesolve.bench.results.layer_sweeps import Figures
from tilesolve.bench.run.conv_peers import Made
from tilesolve.bench.run.layer_oracle import compute_results, draw_layer, pick_results
from tilesolve.bench.run.oracle import describe_fault, sum_parts
from tilesolve.bench.run.turn import Turn, measure_peak_around
from tilesolve.bench.run.worker import CHANGED, Ready, Run, hold_trash, make_timer, run_first
from tilesolve.calibration.peak_rate import peak_meter
from tilesolve.contractions.convolution import Convolution
from tilesolve.machine.model import Machine

if TYPE_CHECKING:
    from tilesolve.convolutions.layer import ConvLayer

TINY = Convolution.of((1, 2, 4, 4), (2, 2, 3, 3), padding=1)
"""The layer that is computed first in a process."""

PACKING_RUNS = 3
"""Runs in which packing is timed, and as many beside them for the share that it has."""


@dataclass(frozen=True, slots=True)
class LayerReady(Ready):
    """What a worker found in preparation and in its first run.

    Parameters
    ----------
    figures
        What is predicted of a plan; None for others.
    """

    figures: Figures | None = None


@dataclass(frozen=True, slots=True)
class LayerOrder:
    """A layer that a worker is to compute, with bias and ReLU.

    Parameters
    ----------
    layer
        In the layout of the contender.
    machine, threads
        What the maker is given.
    maker
        ``module:function``.
    flush
        Bytes that are written before each timed run.
    paced
        Whether to measure the arithmetic peak around each run.
    """

    layer: Convolution
    machine: Machine
    threads: int
    maker: str
    flush: int
    paced: bool = False

    def get_ready(self) -> tuple[LayerReady, Callable[[], Turn]]:
        """Compute the layer once, and return what was found and how to time a run."""
        module, _, function = self.maker.partition(":")
        make = getattr(importlib.import_module(module), function)
        layer = self.layer
        _load(make, replace(TINY, layout=layer.layout, dtype=layer.dtype), self.machine)
        x, w, bias = draw_layer(layer)
        at = pick_results(layer)
        values, slack = compute_results(layer, x, w, bias, at)
        trash = hold_trash(self.flush)
        made: list[Made] = []

        def prepare() -> Run:
            made.append(make(layer, self.machine, self.threads, x, w, bias))
            return made[0].run

        first = run_first(prepare, trash)
        result = np.asarray(first.result)
        fault = _find_fault(layer, result) or describe_fault(result[tuple(at.T)], values, slack)
        if not fault and not np.array_equal(compute_results(layer, x, w, bias, at)[0], values):
            fault = CHANGED
        timed = make_timer(first.run, trash)
        found = LayerReady(
            *(first.preparation, first.seconds, sum_parts(result), fault, first.memory),
            _find_figures(made[0].layer, timed) if made[0].layer else None,
        )
        if self.paced:
            meter = peak_meter(self.machine, layer.dtype, self.threads)
            return found, measure_peak_around(timed, meter, first.seconds)
        return found, lambda: Turn(timed())


def _find_figures(layer: ConvLayer, timed: Callable[[], float]) -> Figures:
    """Return what is predicted of a layer's plan, and packing's share of timed runs."""
    from tilesolve.running.packing_time import time_packing

    plan = layer.plan
    pairs = [(time_packing(plan.executor, timed), timed()) for _ in range(PACKING_RUNS)]
    packing, whole = map(median, zip(*pairs, strict=True))
    return Figures(
        plan.roofline,
        plan.seconds,
        plan.price.bottleneck,
        sum(plan.price.packed) * plan.problem.itemsize,
        packing / whole,
        plan.packing_share,
    )


@lru_cache(maxsize=1)
def _load(make: Callable[..., Made], layer: Convolution, machine: Machine) -> None:
    """Compute a layer once in a process, which loads code and libraries."""
    make(layer, machine, 1, *draw_layer(layer)).run()


def _find_fault(
    layer: Convolution, result: np.ndarray[tuple[int, ...], np.dtype[np.generic]]
) -> str:
    """Return how a result differs from the layer's in shape or dtype; nothing if it does not."""
    shape = (layer.batch, layer.filters, *layer.out_size)
    if result.shape == shape and result.dtype == layer.dtype:
        return ""
    return f"wrong result: {result.dtype} of shape {result.shape}, not {layer.dtype} of {shape}"
