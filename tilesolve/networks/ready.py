"""Programs that are ready to run: planned for inputs of some shapes, with memory of their own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from tilesolve.contractions.errors import ModelError
from tilesolve.machine.detect import default_threads
from tilesolve.machine.model import Machine
from tilesolve.networks.build import Builder, Program
from tilesolve.networks.chains import OtherConvolution, join_chains
from tilesolve.networks.graph import Network, read_network
from tilesolve.networks.patterns import join_patterns, split_moves
from tilesolve.networks.places import Place, new_arena
from tilesolve.networks.task_lists import TaskProgram
from tilesolve.networks.winograd import WinogradChoice
from tilesolve.networks.works import EvaluatorWork, Held
from tilesolve.packing.memory_overlap import Array

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A program with its arena: what one call after another runs."""

    lock: Lock
    inputs: dict[str, Array]
    tasks: TaskProgram
    outputs: dict[str, Array | None]

    @classmethod
    def of(cls, program: Program, threads: int) -> Bound:
        """Return a program in memory of its own, which so many threads run."""
        begins, size = program.blocks.arrange()
        arena = new_arena(size)

        def locate(place: Place) -> Array:
            return place.array(arena, begins[place.block])

        return cls(
            Lock(),
            {name: locate(place) for name, place in program.inputs.items()},
            TaskProgram.of(program, locate, threads),
            {
                name: locate(end) if isinstance(end, Place) else end
                for name, end in program.outputs.items()
            },
        )

    def measure(self, given: Mapping[str, Array], rounds: int) -> list[float]:
        """Return the median seconds of each work while the whole program runs."""
        found = []
        with self.lock:
            for _ in range(rounds):
                self._read(given)
                found.append(self._by_work(self.tasks.measure(self.tasks.runs, {})))
        return [median(several) for several in zip(*found, strict=True)]

    def measure_alone(
        self, given: Mapping[str, Array], rounds: int, before: Callable[[], object]
    ) -> list[float]:
        """Return the median seconds of each work, run again and again, with something before."""
        self.run(given)
        found = []
        with self.lock:
            for runs in self.tasks.by_work:
                seconds = []
                for _ in range(rounds):
                    before()
                    seconds.append(sum(taken for _, taken in self.tasks.measure(runs, {})))
                found.append(median(seconds))
        return found

    def _by_work(self, stages: Iterable[tuple[int, float]]) -> list[float]:
        """Return the seconds of works, given those of stages."""
        taken = dict(stages)
        return [
            sum(taken[stage] for run in runs for stage in range(run.first, run.last))
            for runs in self.tasks.by_work
        ]

    def _read(self, given: Mapping[str, Array]) -> None:
        for name, array in self.inputs.items():
            np.copyto(array, given[name])

    def run(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs: arrays that later calls do not write to."""
        with self.lock:
            held: Held = {}
            self._read(given)
            self.tasks.run(self.tasks.runs, held)
            return {
                name: np.array(held[name] if found is None else found, order="C")
                for name, found in self.outputs.items()
            }


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """What runs for inputs of some shapes."""

    program: Program
    bound: Bound
    others: tuple[OtherConvolution, ...]

    @classmethod
    def of(
        cls,
        model: ModelProto,
        machine: Machine | str | None,
        threads: int | None,
        *,
        winograd: bool,
    ) -> Ready:
        """Plan a model whose shapes are known."""
        network = read_network(model)
        _check_sizes(network)
        join_patterns(network)
        split_moves(network)
        _, others = join_chains(network)
        choice = WinogradChoice(machine, threads) if winograd else None
        program = Builder(network, machine, threads, choice).build()
        for node in (node for work in program.works for node in work.nodes):
            node.proto = None
        _warn_of_slow(program)
        team = default_threads() if threads is None else threads
        return cls(program, Bound.of(program, team), tuple(others))


def _check_sizes(network: Network) -> None:
    """Raise `ModelError` if an array is larger than any memory."""
    for name, shape in network.shapes.items():
        if name in network.dtypes and prod(shape) * network.dtypes[name].itemsize > sys.maxsize:
            raise ModelError(f"{name!r} has the shape {shape}: more than memory can have")


def _warn_of_slow(program: Program) -> None:
    """Name the operators that nothing of ours computes."""
    left = [work for work in program.works if isinstance(work, EvaluatorWork) and not work.is_ours]
    if left:
        kinds = ", ".join(sorted({work.nodes[0].kind for work in left}))
        warnings.warn(
            f"{len(left)} of {len(program.works)} works run in ONNX's reference, which is slow: "
            f"{kinds}; print(model) says why",
            stacklevel=5,
        )
