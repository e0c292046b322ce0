"""The tiling of least score: near the program's sizes, of whole fragments, that does not spill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product as combinations
from math import ceil

import numpy as np

from tilesolve.constants import gpu as limits
from tilesolve.contractions.errors import DtypeError, PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.launches import Launches, list_launches
from tilesolve.gpu.occupancy import Occupancy, find_occupancy
from tilesolve.gpu.product import Product
from tilesolve.gpu.program import Relaxed, relax
from tilesolve.gpu.tensor_maps import add_boxes
from tilesolve.gpu.tilings import Tiling, estimate_registers, occupy, price_tiling, score_tilings
from tilesolve.kernels.gpu.assembling import assemble
from tilesolve.kernels.gpu.forms import FRAGMENTS, GROUPED, Arithmetic, Form, name_engine
from tilesolve.kernels.gpu.targets import Nvptx
from tilesolve.machine.device import Device
from tilesolve.model.price import Price
from tilesolve.model.score import score_price

SCHEDULES = ("solved", "thesis")
"""How tiles are found: solved for, or the fixed ones of chapter 7 of the thesis."""


@dataclass(frozen=True, slots=True)
class DeviceSolution:
    """How to run a contraction on a device, and what that is predicted to cost.

    Beside the price there are seconds that are waited for. Registers of a thread are estimated
    unless the assembler counted them. `relaxed` is the least of the program, before tiles were
    whole; None for a fixed schedule. So many tilings were priced, and so many better ones were
    refused as the assembler spilled.
    """

    product: Product
    device: Device
    schedule: str
    tf32: bool
    tiling: Tiling
    cost: Price
    waiting: float
    occupancy: Occupancy
    registers: int
    assembled: bool
    relaxed: Relaxed | None
    priced: int
    spilled: int

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return score_price(self.cost, self.device.overlap, self.waiting)

    @property
    def problem(self) -> Problem:
        """The contraction."""
        return self.product.problem

    @property
    def form(self) -> Form:
        """What code is made of."""
        return self.tiling.form

    @property
    def launches(self) -> Launches:
        """The kernels, and how they are started."""
        return list_launches(self.product, self.tiling)


def choose_arithmetic(problem: Problem, device: Device, *, tf32: bool) -> Arithmetic:
    """Return how a device multiplies a dtype: by tensor cores where it has some for it.

    Raises
    ------
    DtypeError
        If the device has nothing for the dtype.
    PlanError
        If TF32 is asked for of another dtype, or of a device without it.

    Examples
    --------
    >>> problem = Problem.of("ij-ik-kj", 64, "float32")
    >>> [choose_arithmetic(problem, Device.load("a100"), tf32=asked) for asked in (False, True)]
    ['fma32', 'tf32']
    """
    names: dict[str, tuple[Arithmetic, ...]] = {
        "float32": ("tf32",) if tf32 else ("fma32",),
        "float64": ("float64", "fma64"),
    }
    if tf32 and (problem.dtype != "float32" or device.peak("tf32") is None):
        raise PlanError(f"tf32 is of float32, on devices that have it: not {device.name}")
    able = Nvptx(device.capability)
    own = tuple(one for one in FRAGMENTS if one == problem.dtype)
    for name in names.get(problem.dtype, own):
        if device.peak(name) is not None and able.has(name):
            return name
    raise DtypeError(f"kernels for {device.name} compute no {problem.dtype}")


def can_group(product: Product, device: Device, arithmetic: Arithmetic) -> bool:
    """Return whether four warps can multiply together, by `wgmma`.

    It takes operands of other than two bytes only where they lie along the sum.

    Examples
    --------
    >>> product = Product.of(Problem.of("ij-ik-kj", 4096, "float16"))
    >>> [can_group(product, Device.load(name), "float16") for name in ("a100", "h100")]
    [False, True]
    """
    if arithmetic not in GROUPED or not Nvptx(device.capability).has("groups"):
        return False
    known = device.peak(name_engine(arithmetic, grouped=True)) is not None
    halves = FRAGMENTS[arithmetic].element == 2
    return known and (halves or all(product.operand(at).along_sum for at in range(2)))


def solve_for_device(
    product: Product,
    device: Device,
    *,
    schedule: str = "solved",
    tf32: bool = False,
    grouped: bool = True,
) -> DeviceSolution:
    """Return the solution of least score that the assembler, where there is one, does not spill.

    Where the device can, four warps multiply together if that costs less; unless `grouped` says no.

    Raises
    ------
    PlanError
        If there is no such schedule, or no tiling fits the device.
    DtypeError
        If the device has no arithmetic for the dtype.

    Examples
    --------
    >>> product = Product.of(Problem.of("ij-ik-kj", 4096, "float16"))
    >>> found = solve_for_device(product, Device.load("a100"))
    >>> found.tiling.form.rows * found.tiling.form.columns >= 128 * 128
    True
    """
    arithmetic = choose_arithmetic(product.problem, device, tf32=tf32)
    if schedule == "thesis":
        found = [_thesis_tiling(product, arithmetic)]
    elif schedule == "solved":
        found = list(list_tilings(product, device, arithmetic))
        if grouped and can_group(product, device, arithmetic):
            found += list_tilings(product, device, arithmetic, grouped=True)
    else:
        raise PlanError(f"schedule is one of {', '.join(SCHEDULES)}, not {schedule!r}")
    ranked = rank_tilings(product, device, found)
    for spilled, tiling in enumerate(ranked):
        form = tiling.form
        made = assemble(form, device.capability)
        registers = made.registers if made else estimate_registers(form)
        held = find_occupancy(device, form.threads, registers, form.shared_bytes)
        if held.blocks and not (made and (made.spilled or made.serialized)):
            return price_solution(
                *(product, device, tiling, schedule, tf32, registers, made is not None),
                priced=len(found),
                spilled=spilled,
            )
    raise PlanError(f"no tiles of {schedule!r} fit {device.name} for {product.problem}")


def price_solution(
    product: Product,
    device: Device,
    tiling: Tiling,
    schedule: str,
    tf32: bool,
    registers: int,
    assembled: bool,
    priced: int,
    spilled: int,
) -> DeviceSolution:
    """Return a tiling as a solution."""
    form = tiling.form
    held = find_occupancy(device, form.threads, registers, form.shared_bytes)
    cost, waiting = price_tiling(product, device, tiling, held)
    solved = schedule == "solved"
    relaxed = relax_best(product, device, form.arithmetic, grouped=form.grouped) if solved else None
    return DeviceSolution(
        *(product, device, schedule, tf32, tiling, cost, waiting, held, registers),
        *(assembled, relaxed, priced, spilled),
    )


def _depths(arithmetic: Arithmetic) -> list[int]:
    fragment = FRAGMENTS[arithmetic]
    if not fragment.instructions:
        return list(limits.FMA_DEPTHS)
    return [size // fragment.element for size in limits.DEPTH_BYTES]


def _stages(device: Device, *, grouped: bool) -> tuple[int, ...]:
    if grouped:
        return limits.GROUP_STAGES
    return limits.STAGES if Nvptx(device.capability).has("copies") else limits.WAITED_STAGES


def relax_best(
    product: Product, device: Device, arithmetic: Arithmetic, *, grouped: bool = False
) -> Relaxed:
    """Return the least of all programs: of each depth and number of stages."""
    pairs = combinations(_depths(arithmetic), _stages(device, grouped=grouped))
    return min(
        (relax(product, device, arithmetic, *pair, grouped=grouped) for pair in pairs),
        key=lambda one: one.seconds,
    )


def make_tiling(
    product: Product,
    arithmetic: Arithmetic,
    block: tuple[int, int, int],
    warps: tuple[int, int],
    stages: int,
    parts: int = 1,
    group: int = 1,
    grouped: bool = False,
) -> Tiling:
    """Return a tiling of a product by given sides."""
    operands = product.operand(0), product.operand(1)
    ending = product.ending(arithmetic)
    form = Form(ending, *block, warps, stages, *operands, parts > 1, grouped)
    return Tiling(add_boxes(product, form), parts, group)


def _thesis_tiling(product: Product, arithmetic: Arithmetic) -> Tiling:
    """Return the schedule of chapter 7: 128×128 of C, eight warps, copies that are waited for."""
    depth = _depths(arithmetic)[-1]
    return make_tiling(product, arithmetic, (128, 128, depth), (4, 2), 1)


def list_tilings(
    product: Product, device: Device, arithmetic: Arithmetic, *, grouped: bool = False
) -> Iterator[Tiling]:
    """Yield tilings of whole fragments near the program's sizes, as far as they fit a device."""
    sizes = dict(relax_best(product, device, arithmetic, grouped=grouped).sizes)
    rows, columns, steps, _ = product.extents
    base = make_tiling(product, arithmetic, (16, 16, 16), (1, 1), 2, grouped=grouped).form
    wide = limits.GROUP_COLUMNS if grouped else limits.BLOCK_SIDES
    near = (
        _near(sizes.get("B_M"), rows, limits.BLOCK_SIDES, grouped=grouped),
        _near(sizes.get("B_N"), columns, wide, grouped=grouped),
    )
    for down, across in combinations(*near):
        for warps in _divide(down, across, grouped=grouped):
            stages_of = _stages(device, grouped=grouped)
            deep = (
                replace(base, rows=down, columns=across, depth=depth, warps=warps)
                for depth in _depths(arithmetic)
            )
            boxed = [add_boxes(product, one) for one in deep]
            for own, stages in combinations(boxed, stages_of):
                form = replace(own, stages=stages)
                if not occupy(device, form).blocks:
                    continue
                for parts in limits.PARTS:
                    if parts == 1 or steps >= parts * max(limits.LEAST_PART, form.depth):
                        whole = replace(form, partial=parts > 1)
                        yield Tiling(whole, parts)


def _divide(down: int, across: int, *, grouped: bool) -> Iterator[tuple[int, int]]:
    """Yield how many warps, or groups of four, rows and columns of a block may be divided among."""
    counts = limits.GROUP_COUNTS if grouped else limits.WARP_COUNTS
    least = [min(limits.LEAST_WARP_SIDE, side) for side in (down, across)]
    if grouped:
        least = [64, limits.LEAST_GROUP_COLUMNS]
    for warps in combinations(counts, counts):
        fits = down // warps[0] >= least[0] and across // warps[1] >= least[1]
        if grouped and across % (warps[1] * limits.LEAST_GROUP_COLUMNS):
            continue
        if fits and warps[0] * warps[1] * (4 if grouped else 1) <= limits.MOST_WARPS:
            yield warps


def _near(size: float | None, extent: int, sides: tuple[int, ...], *, grouped: bool) -> list[int]:
    """Return sides near a size of the program; those beyond the extent are no use."""
    reach = limits.GROUP_REACH_RATIO if grouped else limits.REACH_RATIO
    most = min([side for side in sides if side >= extent], default=max(sides))
    least = min(most, sides[0] if grouped else limits.LEAST_SIDE)
    wanted = min(max(size or extent, least), most)
    return [
        side for side in sides if least <= side <= most and wanted / reach <= side <= wanted * reach
    ]


def rank_tilings(product: Product, device: Device, found: Iterable[Tiling]) -> list[Tiling]:
    """Return the best tilings by their scores, each with its best order of blocks."""
    tilings = [one for one in found if occupy(device, one.form).blocks]
    if not tilings:
        return []
    scores = score_tilings(product, device, tilings)
    best = [tilings[at] for at in np.argsort(scores, kind="stable")[: limits.CANDIDATES]]
    down = product.extents[0]
    tries = [
        replace(one, group=group)
        for one in best
        for group in limits.GROUPS
        if group <= ceil(down / one.form.rows)
    ]
    order = np.argsort(score_tilings(product, device, tries), kind="stable")
    return list({tries[at].form: tries[at] for at in order[::-1]}.values())[::-1]
