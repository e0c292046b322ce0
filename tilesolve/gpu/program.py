"""The program of a product on a device: sides of warps' and blocks' tiles, and of all at once.

Times and bytes are those of `tilings`, in symbols; limits are registers, threads, shared memory and
how many blocks run at once. It is a geometric program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilesolve.constants.gpu import LEAST_GROUP_COLUMNS, MOST_GROUP_COLUMNS, OTHER_REGISTERS
from tilesolve.constants.policy import TIE_WEIGHT
from tilesolve.contractions.errors import SolverError
from tilesolve.gpu.product import Product
from tilesolve.gpu.tilings import ORDERS, count_bytes, view_levels
from tilesolve.kernels.gpu.forms import Arithmetic, find_fragment, name_engine
from tilesolve.machine.device import Device
from tilesolve.model.access import Box
from tilesolve.solver.interior import find_least
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial

PREFIXES = dict(zip([level for level, _ in ORDERS], "WBG", strict=False))
"""What names of sizes begin with: of warps, of blocks, and of the group of all at once."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The least of a program: sides of tiles, such as ``B_M`` for the rows of a block's, and times.

    Times are seconds of each server, and of the arithmetic.
    """

    sizes: tuple[tuple[str, float], ...]
    times: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        """The longest time."""
        return max(seconds for _, seconds in self.times)


def state_program(
    product: Product,
    device: Device,
    arithmetic: Arithmetic,
    depth: int,
    stages: int,
    *,
    grouped: bool = False,
) -> Posynomials:
    """Return the program for one depth of tiles in shared memory, and so many stages.

    Where four warps multiply together, their instruction's tile stands for that of a warp.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> product = Product.of(Problem.of("ij-ik-kj", 4096, "float16"))
    >>> found = state_program(product, Device.load("a100"), "float16", 32, 3)
    >>> sorted(found.times), sorted(found.limits)
    (['L2', 'compute', 'memory', 'shared'], ['blocks', 'registers', 'shared', 'threads', 'warp'])
    """
    rows, columns, steps, _ = product.extents
    fragment = find_fragment(arithmetic, LEAST_GROUP_COLUMNS * grouped)
    least = {"M": fragment.rows, "N": fragment.columns}
    variables, sides = _state_sides(least, {"M": rows, "N": columns}, grouped=grouped)
    deep = (fragment.depth, depth, steps)
    boxes: dict[str, Box] = {}
    for (level, prefix), own in zip(PREFIXES.items(), deep, strict=True):
        most = steps if level == "L2" else max(1, steps // 2)
        tile = {letter: sides[f"{prefix}_{letter}"] for letter in least}
        boxes[level] = {**tile, "K": min(own, most)}
    traffic = count_bytes(product, device, boxes)
    times = {
        view.server: Signomial.of(view.seconds(own))
        for view, own in zip(view_levels(device), traffic.volumes, strict=True)
    }
    warp, block, group = (sides[f"{x}_M"] * sides[f"{x}_N"] for x in "WBG")
    area = Signomial.constant(float(rows * columns * product.extents[3]))
    peak = device.peak(name_engine(arithmetic, grouped=grouped))
    assert peak is not None
    arithmetic_seconds = Signomial.constant(product.problem.flops / peak)
    fill = device.latency_seconds / device.multiprocessors
    times["compute"] = arithmetic_seconds + area / block * fill
    first, second, sums = fragment.registers
    held = (
        warp * (sums / (fragment.rows * fragment.columns))
        + sides["W_M"] * (first / fragment.rows)
        + sides["W_N"] * (second / fragment.columns)
        + OTHER_REGISTERS
    )
    threads = block / warp * fragment.lanes
    staged = (sides["B_M"] + sides["B_N"]) * float(depth * stages * fragment.element)
    limits = {
        "warp": held * (1 / device.thread_registers),
        "registers": held * threads * (1 / device.registers),
        "threads": threads * (1 / device.block_threads),
        "shared": staged * (1 / device.shared_block),
        "blocks": group / block * (1 / device.multiprocessors),
    }
    open_limits = {name: limit for name, limit in limits.items() if limit.symbols}
    nested = [(f"{x}_{i}", f"{y}_{i}") for x, y in ("WB", "BG") for i in least]
    return Posynomials(
        variables=variables,
        times=times,
        limits=open_limits,
        nested=tuple(pair for pair in nested if pair[0] in variables),
        unit=product.problem.flops / peak,
        weight=TIE_WEIGHT,
    )


def _state_sides(
    least: dict[str, int], extents: dict[str, int], *, grouped: bool
) -> tuple[dict[str, tuple[float, float]], dict[str, Signomial]]:
    """Return the bounds of sides that can be chosen, and all sides as symbols or numbers."""
    variables, sides = dict[str, tuple[float, float]](), dict[str, Signomial]()
    for prefix in "WBG":
        for letter, low in least.items():
            name, most = f"{prefix}_{letter}", extents[letter]
            if grouped and prefix == "W":
                most = low if letter == "M" else min(most, MOST_GROUP_COLUMNS)
            if low < most:
                variables[name] = (float(low), float(most))
                sides[name] = Signomial.symbol(name)
            else:
                sides[name] = Signomial.constant(low)
    return variables, sides


@lru_cache(maxsize=256)
def relax(
    product: Product,
    device: Device,
    arithmetic: Arithmetic,
    depth: int,
    stages: int,
    *,
    grouped: bool = False,
) -> Relaxed:
    """Return the least of the program of one depth and number of stages.

    Raises
    ------
    SolverError
        If none is found.
    """
    program = state_program(product, device, arithmetic, depth, stages, grouped=grouped)
    found = find_least(program) if program.variables else None
    if program.variables and found is None:
        raise SolverError(f"no tiles found for {product.problem} on {device.name}")
    sizes = {name: low for name, (low, _) in program.variables.items()}
    sizes |= dict(found.sizes) if found else {}
    times = {name: amount.at(sizes) for name, amount in program.times.items()}
    return Relaxed(tuple(sizes.items()), tuple(times.items()))
