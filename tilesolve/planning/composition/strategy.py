"""Composition as a strategy: TTile's search, priced by the one price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from operator import itemgetter

from tilesolve.constants.policy import (
    FAST_SHARE,
    FEW_COMPLETIONS,
    MOST_MICROKERNELS,
    MOST_SCHEMES,
    MOST_SPLITS,
)
from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, Roles, shared_lane
from tilesolve.machine.model import Machine
from tilesolve.model.price import core_rates, list_levels
from tilesolve.planning.composition.build import Target, build, copy_kinds, priced
from tilesolve.planning.composition.classes import fast_classes
from tilesolve.planning.composition.completions import (
    Microkernel,
    Permutation,
    Place,
    Space,
    best_permutation,
    select,
)
from tilesolve.planning.composition.scheme import Scheme, Tile
from tilesolve.planning.demand import Demand
from tilesolve.planning.layout_policy import letter_of_row_vectors
from tilesolve.planning.register_tile import fits_second_cache, microkernel_of
from tilesolve.planning.runner import roles_of
from tilesolve.planning.solution import Composed, Solution, share_of, split_letters
from tilesolve.planning.vector_letter import choose_vector_letter


@dataclass(frozen=True, slots=True)
class Composition:
    """Composes schemes of fast microkernels, without partial tiles."""

    def solutions(
        self, problem: Problem, machine: Machine, threads: int, demand: Demand
    ) -> Iterator[Solution]:
        """Yield the schemes that are best by the metric, as solutions.

        Examples
        --------
        >>> problem, machine = Problem.of("ij-ik-kj", 48), Machine.load("i7-6700k")
        >>> found = list(Composition().solutions(problem, machine, 1, Demand()))
        >>> best = min(found, key=lambda one: one.seconds).origin.scheme
        >>> best.covered(problem.sizes, 4) == dict(problem.sizes)
        True

        Raises
        ------
        SolverError
            If no vectors and cells cover the extents exactly.
        """
        target = Target(problem, machine, threads, demand)
        found = schemes(target)
        for scheme in found.kept:
            origin = Composed(scheme, "composition", found.considered, len(found.kept))
            yield priced(build(scheme, target), target, origin)


@dataclass(frozen=True, slots=True)
class Schemes:
    """Schemes that are worth a price.

    Parameters
    ----------
    considered
        How many there were.
    kept
        The best ones by the metric.
    """

    considered: int
    kept: tuple[Scheme, ...]


def schemes(target: Target, most: int = MOST_SCHEMES) -> Schemes:
    """Return the schemes of a problem that are worth a price, of all classes of microkernels.

    Raises
    ------
    SolverError
        If there are none.
    """
    spaces, considered = [], 0
    for one in _shares(target):
        permutations: dict[int, Permutation] = {}
        for kernel in _microkernels(target, one):
            space = Space.of(one.problem, one.roles, kernel)
            place = _place(target, one, kernel)
            if kernel.vectors not in permutations:  # the same for all of a class
                few = Space.of(one.problem, one.roles, kernel, FEW_COMPLETIONS)
                permutations[kernel.vectors] = best_permutation(few, place)
            considered += len(space)
            spaces.append((one.split, space, place, permutations[kernel.vectors]))
    found: list[tuple[float, int, Scheme]] = []
    each = max(1, most // max(1, len(spaces)))
    for split, space, place, permutation in spaces:
        scores = space.scores(permutation, place)
        for number in select(space.calls_sums(), scores, each):
            scheme = space.scheme(number, permutation)
            if split is not None:
                scheme = Scheme((Tile(target.threads, split), *scheme.specifiers))
            found.append((float(scores[number]), len(found), scheme))
    if not found:
        raise SolverError(
            f"no scheme of whole vectors of {target.lanes} covers {target.problem}"
            + (f" for {target.threads} threads" if target.threads > 1 else "")
        )
    best = dict.fromkeys(scheme for _, _, scheme in nsmallest(most, found))
    return Schemes(considered, tuple(best))


@dataclass(frozen=True, slots=True)
class _Share:
    """One thread's part of a problem, and along which letter vectors lie in it."""

    split: str | None
    vector: str
    problem: Problem
    roles: Roles


def _shares(target: Target) -> list[_Share]:
    """Return shares of whole vectors, along the letter that costs least or else along others."""
    problem, threads = target.problem, target.threads
    output = problem.spec.output.letters
    usual = choose_vector_letter(problem, target.machine) or next(iter(output[-1:]), None)
    divided = [i for i in output if problem.sizes[i] % threads == 0 and problem.sizes[i] > 1]
    divided.sort(key=problem.sizes.__getitem__, reverse=True)
    sums = [
        i
        for i in split_letters(problem, threads)
        if i is not None and i not in output and problem.sizes[i] % threads == 0
    ]
    splits: Sequence[str | None] = [*divided[:MOST_SPLITS], *sums] if threads > 1 else [None]
    for vector in sorted(output, key=lambda letter: letter != usual):
        turned = problem.with_vector(vector)
        roles = roles_of(turned)
        along = letter_of_row_vectors(turned, roles, problem.strides(0))
        if shared_lane(turned) or roles.number(vector) == BATCHES or vector != along:
            continue
        shares = [(split, share_of(turned, split, threads)) for split in splits]
        found = [
            _Share(split, vector, share, roles)
            for split, share in shares
            if share.sizes[vector] % target.lanes == 0
        ]
        if found:
            return found
    return []


def _place(target: Target, share: _Share, kernel: Microkernel) -> Place:
    """Return where a share runs: operands are copied unless they fit the second cache anyway."""
    problem, machine = share.problem, target.machine
    cells = Counter((kernel.vectors, cell) for cell in kernel.cells.cells)
    costs = microkernel_of(problem, machine, cells)
    rate, frequency = core_rates(machine, problem.dtype, costs, target.threads)
    options = [
        copy_kinds(problem, share.roles, share.vector, at, whole=True)
        for at in range(1, len(problem.spec.tensors))
    ]
    near = fits_second_cache(problem, machine)
    wanted = ("windows", "in place") if near else ("windows",)
    kinds = tuple(next((one for one in wanted if one in kinds), kinds[0]) for kinds in options)
    overlap = machine.costs.level_overlap
    return Place(list_levels(machine, target.threads), costs, rate, frequency, overlap, kinds)


def _microkernels(target: Target, share: _Share) -> list[Microkernel]:
    """Return the fastest microkernels that cover a share; where no fast ones do, any."""
    sizes, group = share.problem.sizes, target.lanes
    letters: Sequence[str | None] = [i for i in share.roles.columns if sizes[i] > 1] or [None]
    rows = sizes[share.vector] // group
    found: list[tuple[float, Microkernel]] = []
    for least in (FAST_SHARE, 0.0):
        for one in fast_classes(target.problem.dtype, target.machine, rows, least):
            for letter in letters:
                for cells in one.combinations(sizes[letter] if letter else 1):
                    kernel = Microkernel(share.vector, one.vectors, group, letter, cells)
                    found.append((one.cycles(cells) / (cells.extent * one.vectors), kernel))
        if found:
            break
    return [kernel for _, kernel in sorted(found, key=itemgetter(0))[:MOST_MICROKERNELS]]
