"""A plan as text that users read and paste: what runs, what it moves, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod, sqrt

from tilesolve.contractions.errors import ModelError, PlanError
from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import COLUMNS, ROWS, shared_lane
from tilesolve.kernels.dtypes import register_tiles
from tilesolve.model.access import touched_bytes
from tilesolve.model.nest import REGISTER
from tilesolve.model.price import LevelPrice, list_levels
from tilesolve.planning.composition.describe import scheme_of
from tilesolve.planning.geometric.bound import find_bound
from tilesolve.planning.geometric.strategy import setting_for
from tilesolve.planning.layout_policy import LayoutPolicy, policy_of
from tilesolve.planning.reuses import reuses_of
from tilesolve.planning.setting import RuledOut
from tilesolve.planning.solution import Composed, Search, Sliced, Solution
from tilesolve.planning.waiting import amid_share
from tilesolve.plans.copy_sizes import copy_bytes
from tilesolve.plans.loop_listing import list_loops
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_volume


def write_report(solution: Solution) -> str:
    """Return a plan's report: what runs, what it moves, and how it was found."""
    return "\n".join(
        (
            *_head(solution),
            "",
            *_tiles(solution),
            "",
            *_loops(solution),
            *_levels(solution),
            "",
            *_used_again(solution),
            *_running(solution),
            "",
            *_origin(solution),
        )
    )


def least_volumes(solution: Solution) -> list[float]:
    """Return for each level bytes that no schedule of one thread's share moves fewer of.

    Every tensor crosses each level once, the output twice if it is added to; and a contraction
    moves at least ``2·M·N·K/√S - 2·S`` elements into a store of ``S`` (Smith et al. 2019).
    """
    share = solution.share
    touched = touched_bytes(share)
    once = sum(touched) + (touched[0] if solution.output == "accumulate" else 0)
    found = []
    for place in list_levels(solution.machine, solution.threads):
        held = place.capacity / share.itemsize
        products = 2 * prod(share.sizes.values()) / sqrt(held) - 2 * held
        found.append(max(float(once), products * share.itemsize if _plain(share) else 0.0))
    return found


def _plain(problem: Problem) -> bool:
    """Return whether the bound for matrix products holds: two operands, classes M, N and K."""
    return {c.name for c in problem.classes} <= {"M", "N", "K"}


def _head(solution: Solution) -> Iterator[str]:
    problem = solution.problem
    many = (
        "1 thread"
        if solution.threads == 1
        else f"{solution.threads} threads dividing {solution.split!r}"
    )
    dtype = summed_dtype(problem.dtype)
    summed = f", summed in {dtype}" if dtype != problem.dtype else ""
    yield f"{problem}{summed} on {solution.machine.name}, {many}"
    groups = dict(solution.fused.groups)
    yield "classes: " + ", ".join(
        f"{index} = {''.join(letters)} ({prod(solution.share.sizes[i] for i in letters)})"
        for index, letters in groups.items()
    )
    speed = f"{solution.flops / 1e9:.4g} GFLOP/s" if solution.seconds else "nothing to compute"
    reach = (
        f", {solution.roofline / solution.seconds:.0%} of the roofline" if solution.seconds else ""
    )
    time = format_duration(solution.seconds)
    yield f"predicted: {time}, {speed}{reach}, bound by {solution.cost.bottleneck}"


def _tiles(solution: Solution) -> Iterator[str]:
    """Yield the tiles per level: classes, letters, and what stays in place around them."""
    fused = solution.fused
    indices = [index for index, _ in solution.classes]
    rows = [["tile", *indices, "around it", "in place", "box"]]
    kernel = solution.microkernel
    call = {i: fused.problem.sizes[i] and 1 for i in indices}
    call |= {i: chain[0] for i, chain in solution.classes if i in fused.reduced and chain}
    if fused.rows:
        call[fused.rows] = min(kernel.rows, fused.problem.sizes[fused.rows])
    if fused.columns:
        call[fused.columns] = min(kernel.columns, fused.problem.sizes[fused.columns])
    rows.append(
        [
            "register",
            *(str(call[i]) for i in indices),
            "".join(fused.reduced) or "-",
            "C",
            _box(solution, REGISTER),
        ]
    )
    for at, (name, first) in enumerate(zip(solution.levels, solution.choice, strict=True)):
        tiles = [str(chain[at]) for _, chain in solution.classes]
        rows.append(
            [name, *tiles, first or "-", _stationary(solution, first), _box(solution, name)]
        )
    yield from align_columns(rows)
    yield f"scheme {scheme_of(solution)}"


def _box(solution: Solution, level: str) -> str:
    """Return the tile of a level as it runs; that of a call where it is no tile of its own."""
    call, *tiles = solution.nest.bands
    band = next((band for band in tiles if band.level == level), call)
    return " ".join(f"{i}:{side}" for i, side in band.box if side > 1) or "1"


def _loops(solution: Solution) -> Iterator[str]:
    """Yield the loops as they run for contiguous arrays, outermost first."""
    policy = _policy(solution)
    if policy:
        yield "loops as they run, outermost first:"
        yield from list_loops(solution, policy)
        yield ""


def _stationary(solution: Solution, first: str | None) -> str:
    """Return the tensors that the loops around a tile leave in place."""
    if not first:
        return "-"
    spec = solution.fused.problem.spec
    kept = [n for n, t in zip(spec.names, spec.tensors, strict=True) if first[0] not in t.letters]
    return " ".join(kept) or "-"


def _levels(solution: Solution) -> Iterator[str]:
    """Yield what each level moves and how long that takes, beside the bounds, and what waits."""
    names = solution.problem.spec.names
    rows = [["level", *names, "packing", "together", "at least", "time", "of longest"]]
    longest = solution.cost.seconds or 1.0
    for level, least in zip(solution.cost.levels, least_volumes(solution), strict=True):
        rows.append(level_row(level, least, longest))
    filler = ["-"] * (len(names) + 3)
    for name, seconds in (("compute", solution.cost.compute), ("waiting", solution.waiting)):
        rows.append([name, *filler, format_duration(seconds), f"{seconds / longest:.0%}"])
    yield from align_columns(rows)


def level_row(level: LevelPrice, least: float, longest: float) -> list[str]:
    """Return a row of the table of levels: bytes of each tensor, their bound, and the time."""
    pure = [v - p for v, p in zip(level.volumes, level.packing, strict=True)]
    return [
        level.level,
        *map(format_volume, pure),
        format_volume(sum(level.packing)),
        format_volume(level.volume),
        format_volume(least),
        format_duration(level.seconds),
        f"{level.seconds / longest:.0%}",
    ]


def _used_again(solution: Solution) -> Iterator[str]:
    """Yield what loops around calls use again, and which level holds it until then."""
    try:
        found = [one for one in reuses_of(solution) if one.over]
    except (ModelError, PlanError) as error:
        yield f"what is used again: {error}"
        yield ""
        return
    if not found:
        return
    names = solution.problem.spec.names
    rows = [["used again", "by loop", "over", "times", "apart", "all", "held by"]]
    for one in found:
        sizes = format_volume(one.least), format_volume(one.most)
        rows.append([names[one.tensor], one.loop, one.over, f"{one.count:.4g}", *sizes, one.level])
    yield from align_columns(rows)
    yield ""


def _running(solution: Solution) -> Iterator[str]:
    """Yield how C is written, what is packed and what is prefetched: for contiguous arrays."""
    kernel, policy = solution.microkernel, _policy(solution)
    calls = f"{solution.cost.calls:.4g} calls"
    written = _written(solution, policy)
    yield f"microkernel {kernel.rows}×{kernel.columns}, {calls}; C is {written}"
    if solution.output == "stream":
        amid = amid_share(solution.share, solution.nest, solution.machine)
        begins = "with" if solution.problem.aligned_output else "amid"
        yield f"C is priced as it begins {begins} a line: ends of runs lie amid lines in {amid:.0%}"
    if solution.vector is not None:
        yield f"vectors lie along {solution.vector}: C is written across its rows"
    if lane := shared_lane(solution.share):
        yield f"along {lane} vectors multiply vectors: all tensors have it"
    if partials := solution.partial_outputs:
        size = format_volume(solution.problem.bytes[0])
        arrays = "1 partial output" if partials == 1 else f"{partials} partial outputs"
        yield f"threads divide the sum over {solution.split}: {arrays} of {size}, added to C"
    if solution.epilogue is not None:
        near = "on C once it is whole" if partials else "on what a tile wrote, while it is near"
        yield f"epilogue {solution.epilogue}: {near}"
    spec, share = solution.problem.spec, solution.share
    names = [
        f"{name} ({tensor})" for name, tensor in zip(spec.names[1:], spec.operands, strict=True)
    ]
    counts = solution.cost.packed
    for at, (level, count) in enumerate(zip(solution.nest.packed, counts, strict=True)):
        if solution.nest.kind(at) == "prepared":
            yield f"{names[at]} is packed before all calls"
        elif level is None:
            yield f"{names[at]} is {_read(solution, policy, at)}"
        elif solution.nest.kind(at) == "windows":
            yield f"{names[at]} is copied into {level} as windows, with its zeros"
        else:
            elements = prod(spec.operands[at].shape(share.sizes)) or 1
            yield (
                f"{names[at]} is packed into {level}, each element "
                f"{count / elements:.3g} times: its tile must be contiguous to stay there"
            )
    sizes = copy_bytes(solution)
    if any(sizes):
        each = "" if solution.threads == 1 else " in each thread"
        yield f"packed copies take {format_volume(sum(sizes))} at most{each}"
    if policy:
        found = ", ".join(_prefetches(solution, policy, sizes))
        yield f"prefetched before use: {found or 'nothing'}"


def _policy(solution: Solution) -> LayoutPolicy | None:
    """Return what runs for contiguous arrays; None if nothing can be run."""
    problem, machine = solution.problem, solution.machine
    kernels = register_tiles(problem.dtype, machine.vector_registers)
    if len(problem.spec.operands) != 2 or not kernels or not all(problem.sizes.values()):
        return None
    part, _ = solution.parts[0]
    return policy_of(solution, part, [problem.strides(tensor) for tensor in range(3)])


def _written(solution: Solution, policy: LayoutPolicy | None) -> str:
    half = is_half(solution.problem.dtype)
    if solution.output == "accumulate":
        return "added to once its sums are whole, and rounded" if half else "added to"
    if solution.output == "store":
        return "overwritten, rounded once its sums are whole" if half else "overwritten"
    if policy and not policy.non_temporal:
        return "overwritten through the caches: lines of non-temporal stores would alias"
    staged = policy and policy.stages_output
    through = ", through a staging buffer where it lies amid pieces of lines" if staged else ""
    return "overwritten by non-temporal stores, as it would not stay in the last cache" + through


def _read(solution: Solution, policy: LayoutPolicy | None, at: int) -> str:
    """Return how an operand is read that the solution does not pack."""
    if policy:
        side = ROWS if at == policy.rows_operand else COLUMNS
        if band := policy.packed[side]:
            packed_into = policy.nest.names[band]
            return f"packed into {packed_into}: it has no whole vectors of rows side by side"
    return "read in place: packing it would cost more"


def _prefetches(solution: Solution, policy: LayoutPolicy, sizes: Sequence[int]) -> Iterator[str]:
    first, names = policy.rows_operand, solution.problem.spec.names[1:]
    for at, name in enumerate(names):
        if policy.prefetched[ROWS if at == first else COLUMNS]:
            yield f"lines of {name} that are packed next"
    if policy.packed[ROWS] and sizes[first] > policy.near_copy_bytes:
        yield f"the next micro-panels of {names[first]}"
    if policy.non_temporal and policy.prefetches_next_rows:
        yield f"first lines of {names[first]} for the next call"


def _origin(solution: Solution) -> Iterator[str]:
    """Yield how the tiles were found."""
    match solution.origin:
        case Composed(strategy="scheme"):
            yield "the scheme was given"
        case Composed(strategy=strategy, considered=considered, kept=kept):
            yield f"{strategy}: best of {kept} schemes kept of {considered}"
        case Sliced(slices):
            yield f"slicing: {slices}"
        case Search() as search:
            yield from _search(solution, search)


def _search(solution: Solution, search: Search) -> Iterator[str]:
    yield (
        f"{search.permutations} permutations of loops come down to {search.considered} choices "
        f"(innermost class, or no tile, per level): {search.pruned} ruled out by bounds, "
        f"{search.solved} solved"
    )
    if search.by_ipopt:
        yield f"programs whose interior point did not arrive, for IPOPT: {search.by_ipopt}"
    relaxed = max((seconds for _, seconds in search.relaxed), default=0.0)
    yield from _ruled_out(solution, search.ruled_out, relaxed)
    bound = find_bound(setting_for(solution))
    yield (
        f"continuous optimum {format_duration(relaxed)}; "
        f"integer tiles {format_duration(search.integral)} (best of {search.priced}), "
        f"{search.integral / bound - 1:.2%} above what none go below; "
        f"as boxes, in lines {format_duration(solution.cost.seconds)}"
    )
    if search.spread:
        yield f"the starts differ by {search.spread:.2%}: the program is not convex"
    if search.runner_up:
        choice, seconds = search.runner_up
        around = ", ".join(first or "-" for first in choice)
        yield f"runner-up: {around} around the tiles, {format_duration(seconds)}"
    gains = {name: gain for name, gain in search.elasticities if gain >= 0.005}
    if gains:
        yield "1 % more of it saves: " + ", ".join(f"{n} {g:.2f} %" for n, g in gains.items())


def _ruled_out(solution: Solution, ruled_out: Sequence[RuledOut], relaxed: float) -> Iterator[str]:
    """Yield which choices were not solved, and what none of their tiles take less than."""
    for one in ruled_out:
        loops = ", ".join(first or "-" for first in one.loops)
        count = len(one.choices)
        if one.level is None:
            which = f"all {count} other choices, as no loop runs:"
        elif one.level:
            which = f"{count} with {loops} around {solution.levels[one.level - 1]}'s tile:"
        else:
            which = f"{loops} around the tiles:"
        proved = "" if one.level is None or one.multipliers else ", as the solver says"
        more = f"{one.seconds / relaxed - 1:+.2%}" if relaxed else "none"
        yield f"  {which} at least {format_duration(one.seconds)} ({more}){proved}"
