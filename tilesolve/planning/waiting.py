"""Waiting: seconds lost at the ends of runs in memory, for late lines, and for stores of C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tilesolve.constants import policy, tuning
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.codegen.shape import Shape
from tilesolve.kernels.codegen.unrolling import prefetches_columns_of_c
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.microkernel import uses_half_vectors
from tilesolve.machine.model import Machine
from tilesolve.model.access import accesses_of
from tilesolve.model.lines import part_seconds, run_of, run_touched, run_waste, share_amid_lines
from tilesolve.model.nest import Nest
from tilesolve.model.pages import runs_of
from tilesolve.model.price import Price, list_levels
from tilesolve.model.score import score_times
from tilesolve.packing.sizes import PAGE_BYTES, VECTOR_BYTES
from tilesolve.planning.call_runs import count_runs
from tilesolve.planning.prefetch import capacity_of, is_packed_late, third_cache_feeds

_STAGED = tuning.MIN_STAGED_RUN_BYTES


def waiting_seconds(
    share: Problem, nest: Nest, cost: Price, machine: Machine, nearest: Mapping[str, int]
) -> float:
    """Return the seconds lost at the ends of the runs in which memory is read and written.

    What is packed is read in the outermost tile's runs, what is not in those of the nearest tile,
    whose loops may run with those of others: other loops may come between. Runs of an operand that
    are pages apart take some time each.

    Parameters
    ----------
    share, nest, cost
        What runs, and its price.
    machine
        Where.
    nearest
        The box of the nearest tile that was solved for, see `nearest_tile`.
    """
    memory, volumes, last = list_levels(machine)[-1], cost.levels[-1].volumes, outermost_tile(nest)
    nearest = {**dict.fromkeys(share.sizes, 1), **nearest}
    boxes = [
        last,
        *(
            last if copy or nest.kind(at) == "prepared" else nearest
            for at, copy in enumerate(nest.packed)
        ),
    ]
    wasted, visits = [], 0.0
    for t, (access, tile) in enumerate(zip(accesses_of(share), boxes, strict=True)):
        run = run_touched(access, tile)
        wasted.append(volumes[t] * float(run_waste(run, machine.memory.line, share.itemsize)))
        if t and nest.kind(t - 1) != "prepared":
            size = access.touched(tile, 1)
            runs = runs_of(share.strides(t), tile, PAGE_BYTES)
            each = machine.costs.page_visit_seconds - float(memory.seconds([0.0, size / runs]))
            visits += volumes[t] / size * runs * max(0.0, each)
    copies = sum(copy_seconds(share, nest, cost, machine).values())
    return float(memory.seconds(wasted)) + visits + copies + run_seconds(share, nest, machine)


def run_seconds(share: Problem, nest: Nest, machine: Machine) -> float:
    """Return the seconds in which the macrokernel prepares runs of calls, see `count_runs`.

    Kernels compute halves of vectors but in long runs past the caches.
    """
    long = nest.output == "stream" and mean_run(share, nest) >= _STAGED
    halves = 1 if long or not uses_half_vectors(machine, share.dtype) else 2
    lead = find_lead(share, nest, machine)
    runs = count_runs(share, nest, lanes(share.dtype, machine.vector_bits), halves, lead)
    return runs * machine.costs.call_run_cycles / machine.frequency


def late_seconds(share: Problem, nest: Nest, cost: Price, machine: Machine) -> dict[int, float]:
    """Return for each operand that is packed how long packing waits for its lines.

    By the operand's number; see `late_share`.
    """
    wait = late_line_seconds(machine) / machine.memory.line
    return {
        number: cost.levels[-1].volumes[number] * wait * late_share(share, number, nest, machine)
        for number, copy in enumerate(nest.packed, start=1)
        if copy
    }


def copy_seconds(share: Problem, nest: Nest, cost: Price, machine: Machine) -> dict[int, float]:
    """Return for each operand that is packed what that takes beyond its bytes and its elements.

    It waits for late lines, and packs some elements one by one.
    """
    each = machine.costs.single_pack_cycles / machine.frequency
    found = late_seconds(share, nest, cost, machine)
    for number in found:
        if nest.kind(number - 1) == "micro-panels":
            single = single_share(share, number, nest, machine)
            found[number] += each * single * cost.packed[number - 1]
    return found


def single_share(share: Problem, number: int, nest: Nest, machine: Machine) -> float:
    """Return the share of an operand's elements that are packed one by one, not in vectors.

    Vectors go along what lies side by side: rows that a micro-panel has, of which the last ones
    are too few, or else iterations of one letter of which each micro-panel has one, or all.
    """
    tensor, group = share.spec.operands[number - 1], lanes(share.dtype, machine.vector_bits)
    if not tensor.subscripts:
        return 1.0
    unit, lane, output = tensor.subscripts[-1].letters[-1], share.lane, share.spec.output.letters
    rows, box = dict(nest.bands[0].box), outermost_tile(nest)
    if unit not in output:
        return 0.0 if box[unit] > 1 else 1.0
    has_rows = lane in tensor.letters
    if unit == lane if has_rows else rows[unit] >= group:
        last = (box[unit] - 1) % rows[unit] + 1
        return last % group / box[unit]
    whole = lane is None or not has_rows or rows[lane] % group == 0
    return 0.0 if box[unit] > 1 and (whole or rows[unit] == 1) else 1.0


def late_line_seconds(machine: Machine) -> float:
    """Return how long packing waits for a line that comes late."""
    return machine.costs.late_line_cycles / machine.frequency


def late_share(share: Problem, number: int, nest: Nest, machine: Machine) -> float:
    """Return the share of the lines packed from memory that nothing fetches early.

    Hardware follows a run from its second page on, if micro-panels take in what lies side by side.
    What a plan prefetches waits less, and what fits the second cache is there anyway.
    """
    tile = outermost_tile(nest)
    if share.bytes[number] <= capacity_of(machine.second_cache):
        return 0.0
    if is_packed_late(share, number, tile, machine):
        return 1.0
    if nest.kind(number - 1) != "micro-panels":
        return 0.0
    waits = policy.PREFETCHED_WAIT_SHARE if third_cache_feeds(machine) else 1.0
    tensor, rows = share.spec.operands[number - 1], dict(nest.bands[0].box)
    unit = tensor.subscripts[-1].letters if tensor.subscripts else ()
    if unit and all(i in share.spec.output.letters and rows[i] == 1 for i in unit):
        return waits
    run = run_touched(accesses_of(share)[number], tile)
    return waits * min(1.0, PAGE_BYTES / run)


def store_seconds(share: Problem, nest: Nest, cost: Price, machine: Machine) -> float:
    """Return the seconds by which stores past the caches delay calls, beyond memory's part.

    What leaves straight from registers does so beside the next steps, as a level works beside the
    arithmetic, and so does what goes through the caches where calls prefetch its lines. Calls wait
    for all else. Long runs take as long as memory takes for their bytes. Short runs, which go
    through the caches, take longer, and as long as their ends take at least, where these lie amid
    lines: see `share_amid_lines`. What the score has of the bytes as memory's time is left out. See
    ``docs/decisions/071-stores-wait.md``.
    """
    if nest.output != "stream" or is_half(share.dtype):
        return 0.0
    memory, view, size = machine.memory, list_levels(machine)[-1], cost.levels[-1].volumes[0]
    costs, taken = machine.costs, size / view.stream_rate
    beside = leaves_registers(share, nest, machine)
    if not beside and mean_run(share, nest) < _STAGED:
        runs = size / run_touched(accesses_of(share)[0], _stored_box(nest))
        ends = runs * amid_share(share, nest, machine) * part_seconds(machine)
        taken = max(costs.cached_store_slowdown * taken, taken + ends)
    beside = beside or (not is_staged(share, nest, machine) and prefetches_c(share, nest, machine))
    if beside:
        taken = float(score_times([cost.seconds, taken], costs.level_overlap)) - cost.seconds
    shown = 1.0 if cost.bottleneck == memory.name else costs.level_overlap
    return max(0.0, taken - shown * float(view.seconds([size])))


def leaves_registers(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether calls store C past the caches in vectors, or in pieces of lines.

    All register tiles are whole vectors then, side by side in C. Pieces are for short sums, and for
    tiles of few long runs; C that begins with a line needs none. See ``docs/decisions/051``.
    """
    whole = _is_whole(share, nest, machine)
    if share.aligned_output or not whole:
        return whole
    if find_lead(share, nest, machine):
        return True
    few = _tile_runs(share, nest) <= tuning.MAX_RUNS_IN_PIECES
    return few and not _has_long_sums(share, nest) and mean_run(share, nest) >= _STAGED


def is_staged(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether what does not leave from registers goes through the staging buffer.

    Short sums go through the caches where calls prefetch its lines: they hide no staging.
    """
    if not _has_long_sums(share, nest) and prefetches_c(share, nest, machine):
        return False
    few = _is_whole(share, nest, machine) or _tile_runs(share, nest) <= tuning.MAX_RUNS_IN_PIECES
    return few and mean_run(share, nest) >= _STAGED


def find_lead(share: Problem, nest: Nest, machine: Machine) -> int:
    """Return how many rows tiles leave before C's first whole line, if they begin there; else 0.

    Long columns that are whole lines do though C begins amid one, so that C leaves in lines. See
    ``docs/decisions/099``; runs tell by the arrays, `runs_of_c.find_lead`.
    """
    lane = share.lane
    rows = [at for at, x in enumerate(share.spec.operands) if lane in x.letters]
    if lane is None or nest.output != "stream" or share.aligned_output:
        return 0
    if not _is_whole(share, nest, machine):
        return 0
    if not all(nest.kind(at) == "micro-panels" for at in rows) or lane in nest.sequences:
        return 0
    width, size = lanes(share.dtype, machine.vector_bits), share.sizes[lane]
    tiles = -(-size // min(band[lane] for band in nest.bands[1:]))
    long = size >= tiles * tuning.MIN_VECTORS_BEHIND_LEAD * width
    return width - VECTOR_BYTES // share.itemsize if long else 0


def _is_whole(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether all register tiles are whole vectors side by side in C."""
    along = share.lane == share.spec.output.letters[-1]
    return along and _has_whole_vectors(share, nest, machine)


def _tile_runs(share: Problem, nest: Nest) -> float:
    """Return how many runs of C a register tile is."""
    output, tile = share.spec.output, dict(nest.bands[0].box)
    size = prod(tile[i] for i in output.letters) * share.itemsize
    return float(size / run_of(share, output, tile))


def prefetches_c(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether calls prefetch lines of C that they store through the caches.

    Long sums do, and of short ones those of wide kernels that read copies. Rows in place that are
    no whole vectors are copied when they run.
    """
    whole, copied = _has_whole_vectors(share, nest, machine), True
    for number, tensor in enumerate(share.spec.operands):
        if nest.kind(number) == "in place" and (whole or share.lane not in tensor.letters):
            copied = False
    shape = Shape(share.dtype, machine.vector_bits, 1, 1, 1, packed=copied)
    return _has_long_sums(share, nest) or prefetches_columns_of_c(shape)


def _has_whole_vectors(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether all tiles have whole vectors of the letter that vectors lie along."""
    if share.lane is None:
        return False
    sides = [share.sizes[share.lane], *(band[share.lane] for band in nest.bands)]
    return not any(side % lanes(share.dtype, machine.vector_bits) for side in sides)


def _has_long_sums(share: Problem, nest: Nest) -> bool:
    """Return whether calls have as many steps as it takes to prefetch all lines of C one by one."""
    box, output = outermost_tile(nest), share.spec.output.letters
    steps = prod(side for letter, side in box.items() if letter not in output)
    return steps >= tuning.MIN_STEPS_TO_PREFETCH_C


def mean_run(share: Problem, nest: Nest) -> float:
    """Return the mean bytes of C that calls for the nearest tile write side by side.

    A run ends where register tiles get smaller.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> boxes = [("register", "kmn", 8), ("L1", "kmn", 20), ("memory", "kmn", 64)]
    >>> mean_run(problem, Nest.of(problem, boxes))
    80.0
    """
    call, near = (dict(band.box) for band in nest.bands[:2])
    run = float(share.itemsize)
    for letter in reversed(share.spec.output.letters):
        side, tile = near[letter], call[letter]
        equal = side <= tile or side % tile == 0
        run *= side if equal else side / 2
        if not equal or side < share.sizes[letter]:
            break
    return run


def lengthen_runs(share: Problem, nest: Nest) -> Nest | None:
    """Return a nest whose nearest tile writes runs that are long enough, see `store_seconds`.

    It takes more of C's last letters, up to the next tile. None where that is of no use.
    """
    call, near, *farther = nest.bands
    if nest.output != "stream" or not farther or mean_run(share, nest) >= _STAGED:
        return None
    for letter in reversed(share.spec.output.letters):
        box = tuple((i, farther[0][i] if i == letter else side) for i, side in near.box)
        near = replace(near, box=box)
        longer = replace(nest, bands=(call, near, *farther))
        if mean_run(share, longer) >= _STAGED:
            return longer
    return None


def crossing_seconds(problem: Problem, split: str | None, threads: int, machine: Machine) -> float:
    """Return the seconds by which later works take longer if threads part a layer's filters.

    All read its whole image then, and those who read its result by rows have parts of all threads:
    each writes such lines again in a network, whose arrays follow one another in the same memory.

    Examples
    --------
    >>> layer = Problem.of("xk-xc-kc", {"x": 196, "k": 1024, "c": 256}, constant=(2,))
    >>> machine = Machine.load("e5-2680v4")
    >>> [crossing_seconds(layer, split, 2, machine) > 0 for split in "xk"]
    [False, True]
    """
    if split is None or 2 not in problem.constant or split in problem.spec.operands[0].letters:
        return 0.0
    made, image, _ = problem.bytes
    lines = (image + made * (threads - 1) / threads) / machine.memory.line
    return lines / threads * machine.costs.read_line_seconds


def amid_share(share: Problem, nest: Nest, machine: Machine) -> float:
    """Return the share of the runs that calls store whose ends lie amid lines."""
    return float(share_amid_lines(share, _stored_box(nest), machine.memory.line))


def _stored_box(nest: Nest) -> dict[str, int]:
    """Return what calls store one right after another: register tiles of the first loop."""
    call, around = nest.bands[:2]
    first = next((letter for letter in around.order if around[letter] > call[letter]), None)
    return dict(call.box) | ({first: around[first]} if first else {})


def nearest_tile(nest: Nest) -> dict[str, int]:
    """Return the box of the nearest tile of a nest that has not the form yet in which it runs."""
    return dict(nest.bands[min(1, len(nest.bands) - 1)].box)


def outermost_tile(nest: Nest) -> dict[str, int]:
    """Return the box of the last cache's tile."""
    *tiles, whole = (band for band in nest.bands if band.level)
    return dict((tiles or [whole])[-1].box)
