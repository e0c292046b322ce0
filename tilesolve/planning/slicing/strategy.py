"""Slicing as a strategy: SConv's tiles, loops and copies, in both of its schedules."""

from __future__ import annotations

from collections.abc import Iterator

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import shared_lane
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.model import Machine
from tilesolve.model.nest import Output
from tilesolve.model.passes import with_passes
from tilesolve.model.price import compute_price, list_levels
from tilesolve.planning.demand import Demand
from tilesolve.planning.register_tile import choose_register_tile
from tilesolve.planning.runner import Runner
from tilesolve.planning.slicing.csa import Caches, both_slices
from tilesolve.planning.slicing.nest import SlicedLayer
from tilesolve.planning.solution import (
    Sliced,
    Solution,
    class_tiles,
    count_partials,
    share_of,
    split_letters,
)
from tilesolve.planning.vector_letter import choose_vector_letter, longest_letter_of_one
from tilesolve.planning.waiting import nearest_tile


class Slicing:
    """Cuts a layer by the slicing analysis of SConv: a baseline beside what is solved for."""

    def solutions(
        self, problem: Problem, machine: Machine, threads: int, demand: Demand
    ) -> Iterator[Solution]:
        """Yield both schedules for each letter that threads may divide, the analysis' choice first.

        Raises
        ------
        PlanError
            If the problem is neither a convolution nor a product, or the machine has not three
            caches.

        Examples
        --------
        >>> machine = Machine.load("i7-6700k")
        >>> layer = Problem.of("khw-c[h+r][w+s]-kcrs", "k=64 h=56 w=56 c=64 r=3 s=3", "float32")
        >>> for one in Slicing().solutions(layer, machine, 1, Demand()):
        ...     print(one.origin.slices)
        weight stationary, Nc 32, K2 16, K3 4
        input stationary, Nc 32, K2 4, K3 523
        """
        vector = choose_vector_letter(problem, machine)
        if shared_lane(problem.with_vector(vector)):
            vector = longest_letter_of_one(problem)  # packed windows hold one letter of the image
        output: Output = "store" if demand.overwrite else "accumulate"
        for split in split_letters(problem, threads):
            share = share_of(problem, split, threads).with_vector(vector)
            partials = count_partials(problem, split, threads)
            layer = SlicedLayer.of(share)
            kernel, runner = choose_register_tile(share, machine), Runner.of(share, machine)
            names, caches = _caches(machine, threads)
            cell = layer.counts(kernel.rows, kernel.columns)
            group = lanes(share.dtype, machine.vector_bits)
            for slices in both_slices(layer.extents, cell, caches):
                nest = layer.nest(
                    slices,
                    names,
                    (kernel.rows, kernel.columns),
                    group,
                    output,
                    scattered=vector is not None,
                )
                tiled, choice, classes = class_tiles(nest, share)
                nearest, nest = nearest_tile(nest), runner.form(nest)
                cost = compute_price(share, nest, machine, microkernel=kernel, threads=threads)
                yield Solution(
                    problem=problem,
                    machine=machine,
                    threads=threads,
                    split=split,
                    vector=vector,
                    epilogue=demand.epilogue,
                    output=output,
                    microkernel=kernel,
                    levels=tiled,
                    choice=choice,
                    classes=classes,
                    nearest=tuple(nearest.items()),
                    nest=nest,
                    cost=with_passes(cost, share, demand.epilogue, machine, threads, partials),
                    origin=Sliced(str(slices)),
                )


def _caches(machine: Machine, threads: int) -> tuple[list[str], Caches]:
    """Return the names of three caches and memory, and what the analysis knows of them."""
    places = list_levels(machine, threads)[1:]
    if len(places) < 3:
        raise PlanError(f"slicing needs three caches; machine {machine.name!r} has {len(places)}")
    first, second, third, *_ = places
    names = [first.name, second.name, third.name, machine.memory.name]
    return names, Caches((first.capacity, second.capacity, third.capacity), first.line)
