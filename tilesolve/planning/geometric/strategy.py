"""The geometric program as a strategy: the letter that threads divide, the register tile, tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilesolve.constants.policy import MOST_CALL_PRODUCTS, STARTS
from tilesolve.contractions.errors import PlanError, SolverError
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import Roles
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.compiled_traffic import is_counting
from tilesolve.model.nest import Nest, Output
from tilesolve.model.passes import with_passes
from tilesolve.model.price import list_levels
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric.make_setting import make_setting, satisfiable
from tilesolve.planning.geometric.program import is_convex
from tilesolve.planning.geometric.relaxation import Relaxation, relax
from tilesolve.planning.geometric.select import (
    Candidate,
    Target,
    best_candidate,
    choose_copies,
    list_candidates,
)
from tilesolve.planning.geometric.tilings import Chain, nest_of
from tilesolve.planning.register_tile import (
    choose_register_tile,
    fits_second_cache,
    list_register_tiles,
)
from tilesolve.planning.setting import Choice, Setting
from tilesolve.planning.solution import Search, Solution, count_partials, share_of, split_letters
from tilesolve.planning.vector_letter import choose_vector_letter


@dataclass(frozen=True, slots=True)
class GeometricProgram:
    """Solves for class tiles in logarithms, rounds them, and turns them into boxes of letters."""

    def solutions(
        self, problem: Problem, machine: Machine, threads: int, demand: Demand
    ) -> Iterator[Solution]:
        """Yield one solution for each letter that threads may divide, and for each way to write C.

        Examples
        --------
        >>> problem = Problem.of("ik-ij-jk", {"i": 2000, "j": 40, "k": 40})
        >>> machine = Machine.load("i7-6700k")
        >>> [one.split for one in GeometricProgram().solutions(problem, machine, 2, Demand())]
        ['i', 'k']
        """
        is_counting()  # what is missing is compiled elsewhere while programs are solved
        vector = choose_vector_letter(problem, machine)
        output: Output = "accumulate"
        if demand.overwrite:
            output = "stream" if may_stream(problem, machine, threads, demand) else "store"
        found = []
        for split in _letters_to_try(problem, threads):
            # Partial outputs are read again, so that they stay in caches where they fit.
            added = count_partials(problem, split, threads) > 0
            written: Output = "store" if added and output == "stream" else output
            share = share_of(problem, split, threads).with_vector(vector)
            for tile in list_register_tiles(share, machine, non_temporal=written == "stream"):
                given = problem, machine, threads, split, vector, written, demand
                found.append(_solution(*given, tile))
        yield from (one for one, _ in found)
        for split in dict.fromkeys(
            one.split
            for one, setting in found
            # Whole sums leave few bytes where a cache is small: parts of them may be faster.
            if one.output == "stream" and (not satisfiable(setting) or _recopies(one))
        ):
            yield _solution(problem, machine, threads, split, vector, "store", demand)[0]


def may_stream(problem: Problem, machine: Machine, threads: int, demand: Demand) -> bool:
    """Return whether C may be written past the caches.

    What is written across rows, or gone over once more, is written through them.
    """
    if not demand.overwrite or demand.epilogue is not None or is_half(problem.dtype):
        return False
    kept = min(list_levels(machine, threads)[-1].capacity, machine.last_cache_bytes)
    return _outgrows(problem, kept) and choose_vector_letter(problem, machine) is None


def setting_for(solution: Solution) -> Setting:
    """Return what the nonlinear program of a solution was written for.

    Raises
    ------
    PlanError
        If another strategy found it.
    """
    if not isinstance(solution.origin, Search):
        raise PlanError(f"the plan was made by {solution.strategy!r}, not by the solver")
    return make_setting(
        solution.share,
        solution.machine,
        solution.threads,
        solution.output,
        solution.microkernel,
        scattered=solution.vector is not None,
    )


def _recopies(found: Solution) -> bool:
    """Return whether a convolution's tiles overlap so that elements are copied more than once."""
    copied = zip(found.cost.packed, found.share.bytes[1:], strict=True)
    return not is_convex(found.share.spec) and any(
        count * found.share.itemsize > size for count, size in copied
    )


def _outgrows(problem: Problem, kept: float) -> bool:
    """Return whether C outgrows the last cache, so that it is written by non-temporal stores.

    That cache keeps so many bytes. Sums must be short, so that each element is written once: what
    is added to again would be read again from memory.
    """
    sums = Roles.of_spec(problem.spec).sums
    once = prod(problem.sizes[letter] for letter in sums) <= MOST_CALL_PRODUCTS
    return once and sum(problem.bytes) > kept


def _letters_to_try(problem: Problem, threads: int) -> Sequence[str | None]:
    """Return the letters that threads may divide and that a program is solved for.

    Where a program takes seconds, that is one letter of the output and one sum at most: times of
    others differ little.
    """
    letters = split_letters(problem, threads)
    if is_convex(problem.spec):
        return letters
    outer = (None, *problem.spec.output.letters)
    kinds = [i for i in letters if i in outer], [i for i in letters if i not in outer]
    return [_lightest(problem, kind, threads) for kind in kinds if kind]


def _lightest(problem: Problem, letters: Sequence[str | None], threads: int) -> str | None:
    """Return the letter whose division leaves a thread the least work, then the fewest bytes.

    Of letters that are alike in that it is the longest.
    """

    def weight(letter: str | None) -> tuple[int, int, int]:
        share = share_of(problem, letter, threads)
        return share.flops, sum(share.bytes), -problem.sizes.get(letter or "", 1)

    return min(letters, key=weight)


def _solution(
    problem: Problem,
    machine: Machine,
    threads: int,
    split: str | None,
    vector: str | None,
    output: Output,
    demand: Demand,
    tile: Microkernel | None = None,
) -> tuple[Solution, Setting]:
    """Return a solution, and what its program was written for."""
    share = share_of(problem, split, threads).with_vector(vector)
    scattered = vector is not None
    setting, relaxed = _relaxed(share, machine, threads, output, tile, scattered=scattered)
    found = best_candidate(Target.of(setting, share, machine, threads), relaxed)
    partials = count_partials(problem, split, threads)
    solution = Solution(
        problem=problem,
        machine=machine,
        threads=threads,
        split=split,
        vector=vector,
        epilogue=demand.epilogue,
        output=setting.output,
        microkernel=setting.microkernel,
        levels=tuple(place.name for place in setting.places[1:]),
        choice=found.optimum.choice,
        classes=found.integral.chains,
        nearest=tuple(found.nearest.items()),
        nest=found.nest,
        cost=with_passes(found.price, share, demand.epilogue, machine, threads, partials),
        origin=_search(found, relaxed),
    )
    return solution, setting


def _search(found: Candidate, relaxed: Relaxation) -> Search:
    """Return how a candidate was found."""
    best, integral = found.optimum, found.integral
    runner_up = next((other for other in relaxed.optima if other.choice != best.choice), None)
    return Search(
        considered=relaxed.considered,
        pruned=relaxed.pruned,
        solved=relaxed.solved,
        by_ipopt=relaxed.by_ipopt + found.by_ipopt,
        permutations=relaxed.permutations,
        relaxed=tuple(best.times.items()),
        tiles=tuple(best.tiles.items()),
        elasticities=tuple(best.elasticities.items()),
        spread=best.spread,
        integral=integral.seconds,
        priced=integral.priced,
        ruled_out=relaxed.ruled_out,
        runner_up=(runner_up.choice, runner_up.seconds) if runner_up else None,
    )


def alternatives(best: Solution) -> list[Solution]:
    """Return other solutions of the program that a solution came from, the best ones first.

    They have other tiles of the same loops, or the tiles that are best for other loops.

    Examples
    --------
    >>> from tilesolve.planning.solve import solve
    >>> best = solve(Problem.of("ik-ij-jk", 512), Machine.load("e5-2680v4"), 1, Demand())
    >>> all(other.nest != best.nest for other in alternatives(best))
    True
    """
    setting = setting_for(best)
    share, machine, threads = best.share, best.machine, best.threads
    relaxed = _relax(setting, share, machine, thorough=True)
    found = {best.nest: best}
    for one in list_candidates(Target.of(setting, share, machine, threads), relaxed):
        other = replace(
            best,
            choice=one.optimum.choice,
            classes=one.integral.chains,
            nearest=tuple(one.nearest.items()),
            nest=one.nest,
            cost=with_passes(
                one.price, share, best.epilogue, machine, threads, best.partial_outputs
            ),
            origin=_search(one, relaxed),
        )
        found.setdefault(one.nest, other)
    others = (one for one in found.values() if one is not best)
    return sorted(others, key=lambda one: one.score)


def with_tiles(
    found: Solution, setting: Setting, choice: Choice, chains: Mapping[str, Chain]
) -> Solution:
    """Return a solution with other loops and tiles of classes, whether they keep limits or not.

    Operands are packed where that repays it.

    Parameters
    ----------
    found
        A solution of the solver.
    setting
        What `setting_for` returns for it.
    choice, chains
        The loops around each tile, and the tiles of each class, nearest cache first.
    """
    return with_nest(found, setting, choice, chains, nest_of(setting, choice, chains))


def with_nest(
    found: Solution,
    setting: Setting,
    choice: Choice,
    chains: Mapping[str, Chain],
    tiles: Nest,
) -> Solution:
    """Return a solution with a nest over classes that has such tiles; see `with_tiles`."""
    share, machine, threads = found.share, found.machine, found.threads
    nest, cost, nearest = choose_copies(Target.of(setting, share, machine, threads), tiles, {})
    return replace(
        found,
        levels=tuple(band.level for band in tiles.bands[1:-1]),
        choice=choice,
        classes=tuple(chains.items()),
        nearest=tuple(nearest.items()),
        nest=nest,
        cost=with_passes(cost, share, found.epilogue, machine, threads, found.partial_outputs),
        origin=replace(found.search, integral=cost.seconds),
    )


def _relaxed(
    share: Problem,
    machine: Machine,
    threads: int,
    output: Output,
    tile: Microkernel | None = None,
    *,
    scattered: bool,
) -> tuple[Setting, Relaxation]:
    """Return what to solve for, and its continuous optima, with the best register tile if None.

    Where the best register tile does not fit a cache, because a letter of several subscripts makes
    its operand large, a narrower tile is taken, if need be of less than a vector of rows. Boxes of
    letters have whole vectors even so, see `unfuse`.

    Raises
    ------
    SolverError
        If a cache does not hold even one vector.
    """
    convex = is_convex(share.spec)
    group = lanes(share.dtype, machine.vector_bits)
    microkernel = tile or choose_register_tile(share, machine, non_temporal=output == "stream")
    setting = make_setting(share, machine, threads, output, microkernel, scattered=scattered)
    if setting.output != output:  # no cache holds whole sums
        return _relaxed(share, machine, threads, setting.output, scattered=scattered)
    try:
        return setting, _relax(setting, share, machine)
    except SolverError:
        if output == "stream":  # the smallest tiles fit, but with no choice of loops
            return _relaxed(share, machine, threads, "store", scattered=scattered)
        for narrower in _narrower(microkernel, group, least=group if convex else 1):
            smaller = make_setting(share, machine, threads, output, narrower, scattered=scattered)
            if satisfiable(smaller):
                return smaller, _relax(smaller, share, machine)
        if satisfiable(setting):
            raise
        limits = [f"{place.capacity:g} bytes of {place.name}" for place in setting.places[1:]]
        raise SolverError(
            f"no tile fits the caches of machine {machine.name!r}: tiles may take at most "
            + ", ".join(limits)
        ) from None


def _relax(
    setting: Setting, share: Problem, machine: Machine, *, thorough: bool = False
) -> Relaxation:
    """Return the continuous optima: from several starts where these may differ.

    Where the second cache holds all tensors they do not in time, see
    ``docs/decisions/020-search-cut-offs.md``.
    """
    convex = is_convex(share.spec)
    if convex or fits_second_cache(share, machine):
        try:
            return relax(setting, starts=1, convex=convex, thorough=thorough)
        except SolverError:
            if convex:
                raise
    return relax(setting, starts=STARTS, convex=convex, thorough=thorough)


def _narrower(microkernel: Microkernel, group: int, least: int) -> Iterator[Microkernel]:
    """Yield register tiles of fewer vectors, of fewer columns, then of `least` or more rows."""
    rows, columns = microkernel.rows, microkernel.columns
    while rows > group:
        rows = max(group, rows // 2 // group * group)
        yield replace(microkernel, rows=rows)
    while columns > 1:
        columns //= 2
        yield replace(microkernel, rows=rows, columns=columns)
    while rows > least:
        rows = max(least, rows // 2)
        yield replace(microkernel, rows=rows, columns=columns)
