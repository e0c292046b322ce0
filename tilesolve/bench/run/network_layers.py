"""Layers of a network where they run: within it, alone and flushed, beside ONNX Runtime's nodes."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import NestPlan
from tilesolve.networks.files import read_model
from tilesolve.networks.model import Model, load
from tilesolve.networks.works import LayerWork, WinogradWork, Work
from tilesolve.packing.buffers import allocate
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration

PRICE_SLACK = 0.25
"""By which share a good price differs from the time within the network at most."""

LETTERS = 60
"""How many letters are written of a layer."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of a layer.

    Parameters
    ----------
    name
        What it is.
    predicted
        By its price.
    within
        While the whole network runs.
    alone
        Again and again.
    flushed
        With caches written over before.
    peer
        Of ONNX Runtime's node; None where there is none.
    by_channel
        Whether each channel has windows of its own.
    """

    name: str
    predicted: float
    within: float
    alone: float
    flushed: float
    peer: float | None
    by_channel: bool = False


def measure_layers(
    file: str, machine: Machine, threads: int, rounds: int
) -> tuple[list[LayerTimes], Model]:
    """Return the times of all layers of a model whose shapes are known, and that model."""
    proto = read_model(file)
    model = load(proto, machine=machine, threads=threads)
    given = model.draw_inputs()
    within = model.measure(given, rounds)
    alone = model.measure_alone(given, rounds)
    trash = allocate(count_flush_bytes(machine))
    flushed = model.measure_alone(given, rounds, lambda: np.add(trash, 1, out=trash))
    works = model.program.works
    peers: Mapping[int, float] = {}
    if importlib.util.find_spec("onnxruntime"):
        peers = match_nodes(works, _profile(proto.SerializeToString(), given, threads, rounds))
    predicted = [one or 0.0 for one in model.program.predicted]
    found = []
    for at, several in group_layers(works).items():
        price, inside, lone, cold = (
            sum(one[i] for i in several) for one in (predicted, within, alone, flushed)
        )
        work = works[at]
        by_channel = isinstance(work, LayerWork) and isinstance(work.layer.plan, NestPlan)
        found.append(LayerTimes(str(work), price, inside, lone, cold, peers.get(at), by_channel))
    return found, model


def group_layers(works: Sequence[Work]) -> dict[int, list[int]]:
    """Return the numbers of the works that are each layer, by that of its first."""
    found: dict[int, list[int]] = {}
    for at, work in enumerate(works):
        if not isinstance(work, LayerWork | WinogradWork):
            continue
        if work.is_further:
            found[max(found)].append(at)
        else:
            found[at] = [at]
    return found


def _profile(
    content: bytes, given: Mapping[str, Array], threads: int, rounds: int
) -> list[tuple[str, str, float]]:
    """Return the name, the operator and the seconds of ONNX Runtime's nodes, in their order."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "nodes")
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        for _ in range(rounds + 1):
            session.run(None, dict(given))
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    ending, times = "_kernel_time", dict[tuple[str, str], list[float]]()
    for one in events:
        if one.get("cat") == "Node" and one["name"].endswith(ending):
            key = one["name"].removesuffix(ending), one["args"]["op_name"]
            times.setdefault(key, []).append(1e-6 * one["dur"])
    return [(*key, median(several[1:] or several)) for key, several in times.items()]


def match_nodes(works: Sequence[Work], nodes: Sequence[tuple[str, str, float]]) -> dict[int, float]:
    """Return the seconds of the nodes that are each layer: its own, and an activation's.

    ONNX Runtime names what it makes of several nodes by the last one, or its result, and something
    behind that.
    """
    names = {
        name: at
        for at in group_layers(works)
        for node in works[at].nodes
        for name in (node.name, *node.outputs)
        if name
    }
    found: dict[int, float] = {}
    for node_name, _, seconds in nodes:
        own = [x for x in names if re.fullmatch(rf"{re.escape(x)}([_/].*)?", node_name)]
        if own:
            at = names[max(own, key=len)]
            found[at] = found.get(at, 0.0) + seconds
    return found


def report_layers(layers: Sequence[LayerTimes]) -> Iterator[str]:
    """Yield a table of layers, and their means."""
    head = ("layer", "predicted", "within", "alone", "flushed", "onnxruntime", "to it")
    rows = [
        (
            one.name[:LETTERS],
            *map(format_duration, (one.predicted, one.within, one.alone, one.flushed)),
            "-" if one.peer is None else format_duration(one.peer),
            "-" if one.peer is None else f"{one.peer / one.within:.2f}",
        )
        for one in layers
    ]
    yield from align_columns([head, *rows])
    if not layers:
        return
    for name, times in (("alone", "alone"), ("flushed", "flushed"), ("the price", "predicted")):
        mean = geometric_mean([getattr(one, times) / one.within for one in layers if one.predicted])
        yield f"{name}, over the time within the network: {mean:.2f} (geometric mean)"
    good = sum(abs(one.predicted / one.within - 1) <= PRICE_SLACK for one in layers)
    yield f"the price is within {PRICE_SLACK:.0%} for {good} of {len(layers)} layers"
    by_channel = [one for one in layers if one.by_channel]
    for where, several in (("", layers), (" of windows by channel", by_channel)):
        ratios = [one.peer / one.within for one in several if one.peer is not None]
        if ratios:
            mean, least = geometric_mean(ratios), min(ratios)
            told = f"{mean:.2f} (geometric mean of {len(ratios)}{where}), {least:.2f} at worst"
            yield f"ONNX Runtime's time to ours: {told}"
