"""Schemes as solutions: nests with the copies that cost least, by the one price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tilesolve.constants.policy import MOST_REGISTERS
from tilesolve.constants.tuning import MAX_LEVELS
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import Roles, shared_lane
from tilesolve.kernels.dtypes import lanes, register_tiles
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.access import touched_bytes
from tilesolve.model.copies import repeats_elements
from tilesolve.model.nest import REGISTER, Band, CopyKind, Nest, Output
from tilesolve.model.passes import with_passes
from tilesolve.model.price import compute_price, list_levels
from tilesolve.model.score import score_price
from tilesolve.planning.composition.loops import Loops, divide, without_rest
from tilesolve.planning.composition.scheme import Scheme, Vector
from tilesolve.planning.demand import Demand
from tilesolve.planning.in_place import is_cheap_in_place
from tilesolve.planning.layout_policy import contiguous_letter, letter_of_row_vectors
from tilesolve.planning.register_cuts import Sides
from tilesolve.planning.register_tile import microkernel_of
from tilesolve.planning.runner import Runner, roles_of
from tilesolve.planning.solution import (
    Composed,
    Solution,
    class_tiles,
    count_partials,
    divisible_sums,
    share_of,
)
from tilesolve.planning.waiting import nearest_tile

Copies = tuple[tuple[str | None, CopyKind], ...]
"""For each operand the level and the kind of its copy."""


@dataclass(frozen=True, slots=True)
class Target:
    """What schemes become solutions of.

    Parameters
    ----------
    problem, machine, threads, demand
        As strategies take them.
    """

    problem: Problem
    machine: Machine
    threads: int
    demand: Demand

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return lanes(self.problem.dtype, self.machine.vector_bits)


@dataclass(frozen=True, slots=True)
class Built:
    """A scheme as the kernels can run it.

    Parameters
    ----------
    share
        What one thread computes.
    split
        The letter that threads divide.
    vector
        The letter that vectors lie along, if that is not the output's last one.
    roles
        Of the letters, as they are run.
    loops
        Register tile and bands.
    nest
        The nest, without copies.
    microkernel
        Its costs.
    lanes
        Elements of a vector.
    """

    share: Problem
    split: str | None
    vector: str | None
    roles: Roles
    loops: Loops
    nest: Nest
    microkernel: Microkernel
    lanes: int
    steps: Mapping[str, int]


def solution_of(scheme: Scheme, target: Target) -> Solution:
    """Return a scheme as a solution.

    A scheme says nothing of copies: operands are read in place, as micro-panels or as window
    copies, whatever costs least by the price.

    Raises
    ------
    SizeError
        If the scheme does not cover the extents.
    PlanError
        If no kernels run it.

    Examples
    --------
    >>> target = Target(Problem.of("ij-ik-kj", 24), Machine.load("i7-6700k"), 1, Demand())
    >>> scheme = Scheme.of("[Rj,T4,i,T24,k,U6,i,U2,j,Vj]")
    >>> solution_of(scheme, target).nest.bands[0].box
    (('i', 6), ('j', 8), ('k', 24))
    """
    return priced(build(scheme, target), target, Composed(scheme, "scheme", 1, 1))


def build(scheme: Scheme, target: Target) -> Built:
    """Return a scheme as kernels run it; errors are those of `solution_of`."""
    problem, machine = target.problem, target.machine
    if len(problem.spec.operands) != 2:
        raise PlanError(f"a scheme runs with two operands, {str(problem.spec)!r} has not")
    whole = without_rest(scheme, problem.sizes, target.lanes)
    sums = divisible_sums(problem, target.threads)
    split, own = divide(whole, problem.spec.output.letters, target.threads, sums)
    last = problem.spec.output.letters[-1:]
    along = next((one.letter for one in own.specifiers if isinstance(one, Vector)), None)
    vector = along if along is not None and (along,) != last else None
    if along is not None and along not in problem.spec.output.letters:
        raise PlanError(f"scheme {scheme}: {along!r} is summed, vectors lie along a letter of C")
    turned = problem.with_vector(vector)
    roles = roles_of(turned)
    if along is not None:
        _check_vector(scheme, turned, roles, along)
    share = share_of(problem, split, target.threads).with_vector(vector)
    loops = Loops.of(own, roles, target.lanes)
    cells = _register_tiles(scheme, loops, roles, share, machine)
    nest = _nest(loops, share, target, scattered=vector is not None)
    kernel = microkernel_of(share, machine, cells)
    return Built(share, split, vector, roles, loops, nest, kernel, target.lanes, problem.strides(0))


def priced(built: Built, target: Target, origin: Composed) -> Solution:
    """Return the solution with the copies that cost least."""
    machine = target.machine
    kernel, found = built.microkernel, []
    runner = Runner.of(built.share, machine, built.roles)
    for copies in _copies(built):
        levels, kinds = zip(*copies, strict=True)
        nest = runner.form(replace(built.nest, packed=levels, kinds=kinds))
        cost = compute_price(built.share, nest, machine, microkernel=kernel, threads=target.threads)
        found.append((nest, cost))
    good = [one for one in found if is_cheap_in_place(built.share, one[0], machine)]
    overlap = machine.costs.level_overlap
    nest, cost = min(good or found, key=lambda one: score_price(one[1], overlap))
    demand, threads = target.demand, target.threads
    partials = count_partials(target.problem, built.split, threads)
    tiled, choice, classes = class_tiles(built.nest, built.share)
    return Solution(
        problem=target.problem,
        machine=machine,
        threads=threads,
        split=built.split,
        vector=built.vector,
        epilogue=demand.epilogue,
        output=nest.output,
        microkernel=built.microkernel,
        levels=tiled,
        choice=choice,
        classes=classes,
        nearest=tuple(nearest_tile(built.nest).items()),
        nest=nest,
        cost=with_passes(cost, built.share, demand.epilogue, machine, threads, partials),
        origin=origin,
    )


def _check_vector(scheme: Scheme, problem: Problem, roles: Roles, along: str) -> None:
    """Raise an error unless kernels take vectors along a letter."""
    if along in roles.batches or shared_lane(problem.with_vector(along)):
        raise PlanError(f"scheme {scheme}: {along!r} is in all tensors: each index is a call")
    usual = letter_of_row_vectors(problem, roles, problem.strides(0))
    if problem.sizes[along] > 1 and along != usual:
        raise PlanError(
            f"scheme {scheme}: beside {along!r} rows have {usual!r}, along which vectors lie"
        )


def _register_tiles(
    scheme: Scheme, loops: Loops, roles: Roles, share: Problem, machine: Machine
) -> Counter[Sides]:
    """Return the vectors and columns of register tiles, and how many there are of each."""
    group = lanes(share.dtype, machine.vector_bits)
    kernels = register_tiles(share.dtype, min(machine.vector_registers, MOST_REGISTERS))
    cells = dict(loops.cells)
    options = [
        [(letter, side) for side in cells.get(letter, (loops.side(letter),))]
        for letter in (*roles.rows, *roles.columns)
    ]
    found: Counter[Sides] = Counter()
    for chosen in product(*options):
        rows = columns = 1
        for letter, side in chosen:
            rows, columns = (
                (rows * side, columns) if letter in roles.rows else (rows, columns * side)
            )
        found[-(-rows // group), columns] += 1
    for vectors, columns in found:
        if (vectors, columns) not in kernels:
            most = max((wide for high, wide in kernels if high == vectors), default=0)
            limit = (
                f"{vectors} vectors have at most {most} columns"
                if most
                else (f"there are at most {max(high for high, _ in kernels)} vectors")
            )
            raise PlanError(
                f"scheme {scheme}: no microkernel has {vectors} vectors of rows by {columns} "
                f"columns, {limit} in {machine.vector_registers} registers"
            )
    return found


def _nest(loops: Loops, share: Problem, target: Target, *, scattered: bool) -> Nest:
    """Return the nest of bands, with at least one tile between a call and all of the share."""
    letters = tuple(share.sizes)
    sides = dict.fromkeys(letters, 1) | dict(loops.register)
    boxes = [(tuple(i for i, _ in loops.register), dict(sides))]
    for band in loops.bands:
        sides |= dict(band)
        boxes.append((tuple(i for i, _ in band), dict(sides)))
    while len(boxes) < 3:
        boxes.append(((), dict(sides)))
    if len(boxes) > MAX_LEVELS:
        raise PlanError(f"a scheme of {len(boxes)} bands: at most {MAX_LEVELS} can be run")
    names = _level_names([box for _, box in boxes[1:-1]], share, target)
    bands = tuple(
        Band(
            name,
            (*order, *(i for i in letters if i not in order)),
            tuple((i, box[i]) for i in letters),
        )
        for name, (order, box) in zip(
            (REGISTER, *names, target.machine.memory.name), boxes, strict=True
        )
    )
    output: Output = "store" if target.demand.overwrite else "accumulate"
    return Nest(bands, output=output, scattered=scattered, cells=loops.cells)


def _level_names(boxes: Sequence[dict[str, int]], share: Problem, target: Target) -> list[str]:
    """Return for each tile the nearest cache that holds it, and of which no nearer tile is."""
    caches = list(list_levels(target.machine, target.threads)[1:])
    found = []
    for at, box in enumerate(boxes):
        size = float(sum(touched_bytes(share, box)))
        while caches and caches[0].capacity < size and len(caches) > len(boxes) - at:
            caches.pop(0)
        found.append(caches.pop(0).name if caches else f"tile {at + 1}")
    return found


def _copies(built: Built) -> Iterator[Copies]:
    """Yield the ways in which the operands can be read: copies live in one level."""
    share, nest = built.share, built.nest
    levels = [band.level for band in nest.bands[1:-1] if not band.level.startswith("tile ")]
    lane = letter_of_row_vectors(share, built.roles, built.steps)
    sides = [band[lane] for band in nest.bands] if lane else [1]
    whole = all(side % built.lanes == 0 for side in sides)
    options = [
        copy_kinds(share, built.roles, lane, at, whole=whole)
        for at in range(1, len(share.spec.tensors))
    ]
    for kinds in product(*options):
        made = any(kind in ("micro-panels", "windows") for kind in kinds)
        for level in levels if made else levels[:1]:
            yield tuple(
                (level if kind in ("micro-panels", "windows") else None, kind) for kind in kinds
            )


def copy_kinds(
    share: Problem, roles: Roles, vector: str | None, operand: int, *, whole: bool
) -> list[CopyKind]:
    """Return how an operand can be read: rows in place only along vectors, if these are whole.

    Examples
    --------
    >>> layer = Problem.of("khw-kcrs-c[h+r][w+s]", 16)
    >>> roles = Roles.of_spec(layer.spec)
    >>> [copy_kinds(layer, roles, "k", operand, whole=True) for operand in (1, 2)]
    [['micro-panels'], ['micro-panels', 'in place', 'windows']]
    """
    if operand in share.constant:
        return ["prepared"]
    if is_half(share.dtype):
        return ["micro-panels"]
    rows = bool(set(roles.rows) & set(share.spec.tensors[operand].letters))
    windows: list[CopyKind] = (
        ["windows"] if repeats_elements(share.spec, operand) and not rows else []
    )
    if any(one.tensor == operand for one in share.padding):
        return windows or ["micro-panels"]
    if rows:
        unit = contiguous_letter(share, share.strides(operand))
        return ["micro-panels", "in place"] if whole and unit == vector else ["micro-panels"]
    return ["micro-panels", "in place", *windows]
