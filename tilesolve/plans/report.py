"""A plan as text that users read and paste: what runs, what it moves, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod, sqrt

from tilesolve.contractions.problem import Problem
from tilesolve.model.footprints import touched_bytes
from tilesolve.model.price import stores
from tilesolve.planning.register_tile import stores_alias
from tilesolve.plans.copy_sizes import copy_bytes
from tilesolve.plans.plan import Plan
from tilesolve.system.units import format_duration, format_volume


def report(plan: Plan) -> str:
    """Return a plan's report.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> print(report(plan("ik-ij-jk", 512, "i7-6700k", cache=False)).splitlines()[0])
    ik-ij-jk i=512 k=512 j=512 float64 on i7-6700k, 1 thread
    """
    return "\n".join(
        (
            *_head(plan),
            "",
            *_tiles(plan),
            "",
            *_levels(plan),
            "",
            *_packing(plan),
            "",
            *_search(plan),
        )
    )


def bounds(plan: Plan) -> list[float]:
    """Return for each level bytes that no schedule of one thread's share moves fewer of.

    Every tensor crosses each level once, the output twice if it is added to; and a contraction
    moves at least ``2·M·N·K/√S - 2·S`` elements into a store of ``S`` (Smith et al. 2019).

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> found = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> all(b <= level.volume for b, level in zip(bounds(found), found.price.levels))
    True
    """
    share = plan.share
    touched = touched_bytes(share)
    once = sum(touched) + (touched[0] if plan.output == "accumulate" else 0)
    found = []
    for place in stores(plan.machine, plan.threads):
        held = place.capacity / share.itemsize
        products = 2 * prod(share.sizes.values()) / sqrt(held) - 2 * held
        found.append(max(float(once), products * share.itemsize if _plain(share) else 0.0))
    return found


def _plain(problem: Problem) -> bool:
    """Return whether the bound for matrix products holds: two operands, classes M, N and K."""
    return {c.name for c in problem.classes} <= {"M", "N", "K"}


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield lines of columns: the first column left, the others right aligned.

    Examples
    --------
    >>> list(table([["a", "12"], ["bc", "3"]]))
    ['  a   12', '  bc   3']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield ("  " + "  ".join((first, *others))).rstrip()


def _head(plan: Plan) -> Iterator[str]:
    problem = plan.problem
    many = "1 thread" if plan.threads == 1 else f"{plan.threads} threads dividing {plan.split!r}"
    yield f"{problem} on {plan.machine.name}, {many}"
    groups = dict(plan.setting.fused.groups)
    yield "classes: " + ", ".join(
        f"{index} = {''.join(letters)} ({prod(plan.share.sizes[i] for i in letters)})"
        for index, letters in groups.items()
    )
    speed = f"{plan.flops / 1e9:.4g} GFLOP/s" if plan.seconds else "nothing to compute"
    reach = f", {plan.roofline / plan.seconds:.0%} of the roofline" if plan.seconds else ""
    time = format_duration(plan.seconds)
    yield f"predicted: {time}, {speed}{reach}, bound by {plan.price.bottleneck}"


def _tiles(plan: Plan) -> Iterator[str]:
    """Yield the tiles per level: classes, letters, and what stays in place around them."""
    fused = plan.setting.fused
    indices = [index for index, _ in plan.classes]
    rows = [["tile", *indices, "around it", "in place", "box"]]
    kernel = plan.microkernel
    call = {i: fused.problem.sizes[i] and 1 for i in indices}
    call |= {i: chain[0] for i, chain in plan.classes if i in fused.reduced and chain}
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
            _box(plan, 0),
        ]
    )
    for at, first in enumerate(plan.choice):
        name = plan.nest.bands[at + 1].level
        tiles = [str(chain[at]) for _, chain in plan.classes]
        rows.append([name, *tiles, first or "-", _stationary(plan, first), _box(plan, at + 1)])
    yield from table(rows)


def _box(plan: Plan, band: int) -> str:
    return " ".join(f"{i}:{side}" for i, side in plan.nest.bands[band].box if side > 1) or "1"


def _stationary(plan: Plan, first: str | None) -> str:
    """Return the tensors that the loops around a tile leave in place."""
    if not first:
        return "-"
    spec = plan.setting.fused.problem.spec
    kept = [n for n, t in zip(spec.names, spec.tensors, strict=True) if first[0] not in t.letters]
    return " ".join(kept) or "-"


def _levels(plan: Plan) -> Iterator[str]:
    """Yield what each level moves and how long that takes, beside the bounds."""
    names = plan.problem.spec.names
    rows = [["level", *names, "packing", "together", "at least", "time", "of longest"]]
    longest = plan.seconds or 1.0
    for level, least in zip(plan.price.levels, bounds(plan), strict=True):
        pure = [v - p for v, p in zip(level.volumes, level.packing, strict=True)]
        rows.append(
            [
                level.level,
                *map(format_volume, pure),
                format_volume(sum(level.packing)),
                format_volume(level.volume),
                format_volume(least),
                format_duration(level.seconds),
                f"{level.seconds / longest:.0%}",
            ]
        )
    compute = plan.price.compute
    filler = ["-"] * (len(names) + 3)
    rows.append(["compute", *filler, format_duration(compute), f"{compute / longest:.0%}"])
    yield from table(rows)


def _packing(plan: Plan) -> Iterator[str]:
    kernel, strides = plan.microkernel, plan.problem.strides(0)
    written = _WRITTEN[plan.output]
    cell = dict(plan.nest.bands[0].box)
    if plan.output == "stream" and stores_alias(plan.problem, plan.machine, strides, cell):
        written = _HINDERED
    yield (
        f"microkernel {kernel.rows}×{kernel.columns}, {plan.price.calls:.4g} calls; C is {written}"
    )
    spec, share = plan.problem.spec, plan.share
    counts = plan.price.packed
    for name, tensor, level, count in zip(
        spec.names[1:], spec.operands, plan.nest.packed, counts, strict=True
    ):
        if level is None:
            yield f"{name} ({tensor}) is read in place: packing it would cost more"
        else:
            elements = prod(tensor.shape(share.sizes)) or 1
            yield (
                f"{name} ({tensor}) is packed into {level}, each element "
                f"{count / elements:.3g} times: its tile must be contiguous to stay there"
            )
    sizes = copy_bytes(plan)
    if any(sizes):
        each = "" if plan.threads == 1 else " in each thread"
        yield f"packed copies take {format_volume(sum(sizes))} at most{each}"


_HINDERED = "overwritten through the caches: past them its lines would hinder each other"

_WRITTEN = {
    "accumulate": "added to",
    "store": "overwritten",
    "stream": "overwritten past the caches: it would not stay in the last one",
}


def _search(plan: Plan) -> Iterator[str]:
    search = plan.search
    yield (
        f"{search.permutations} permutations of loops come down to {search.considered} choices "
        f"(innermost class, or no tile, per level): {search.pruned} ruled out by bounds, "
        f"{search.solved} solved"
    )
    relaxed = max((seconds for _, seconds in search.relaxed), default=0.0)
    yield (
        f"continuous optimum {format_duration(relaxed)}; "
        f"integer tiles {format_duration(search.integral)} "
        f"({search.gap:+.2%}, best of {search.priced}); "
        f"as boxes, in lines {format_duration(plan.seconds)}"
    )
    if search.spread:
        yield f"the starts of IPOPT differ by {search.spread:.2%}: the program is not convex"
    if search.runner_up:
        choice, seconds = search.runner_up
        around = ", ".join(first or "-" for first in choice)
        yield f"runner-up: {around} around the tiles, {format_duration(seconds)}"
    gains = {name: gain for name, gain in plan.sensitivity.items() if gain >= 0.005}
    if gains:
        yield "1 % more of it saves: " + ", ".join(f"{n} {g:.2f} %" for n, g in gains.items())
