"""What a nest costs: bytes through every level, the time they take, and the arithmetic.

`compute_price` is the one exact evaluator (sections 3.1–3.3, 5.3 and 5.4 of the paper); the printed
expressions and the nonlinear program come from the same walk and are tested against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import mul

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.costs import Costs
from tilesolve.machine.microkernel import Microkernel, default_microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.access import Size
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import tree_of
from tilesolve.model.nest import REGISTER, Nest
from tilesolve.model.traffic import Traffic, count_traffic
from tilesolve.model.walk import Rule
from tilesolve.system.units import format_duration


@dataclass(frozen=True, slots=True)
class LevelPrice:
    """What one level serves, as bytes per tensor, and how long that takes.

    Parameters
    ----------
    level
        The level that serves: L1 fills the registers, memory fills the last cache.
    holder
        What it fills.
    moved
        Bytes of each tensor that come in, output first: the misses of the holder.
    volumes
        Bytes of each tensor both ways, packing included: what the time is made of.
    packing
        The part of the volumes that packing causes.
    seconds
        How long the server takes for the volumes.

    Examples
    --------
    >>> found = LevelPrice("L2", "L1", (8.0, 8.0), (16.0, 8.0), (0.0, 0.0), 1e-9)
    >>> found.volume
    24.0
    """

    level: str
    holder: str
    moved: tuple[float, ...]
    volumes: tuple[float, ...]
    packing: tuple[float, ...]
    seconds: float

    @property
    def volume(self) -> float:
        """Bytes of all tensors together."""
        return sum(self.volumes)

    def share(self, shares: Sequence[float]) -> LevelPrice:
        """Return the time of shares of each tensor, without their bytes."""
        bytes_shared = sum(map(mul, shares, self.volumes))
        part = self.seconds * bytes_shared / self.volume if bytes_shared else 0.0
        return LevelPrice(self.level, self.holder, (), (), (), part)


@dataclass(frozen=True, slots=True)
class Turn:
    """The part of a price that one of several works has, which run one after another.

    Parameters
    ----------
    share
        Of the arithmetic.
    shares
        Of each tensor's bytes.
    """

    share: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a nest.

    Parameters
    ----------
    levels
        Nearest server first.
    compute
        Seconds of arithmetic, microkernel calls and packing work.
    calls
        How often a microkernel is called.
    packed
        Elements of each operand that are packed, repetitions counted.
    past_caches
        Seconds that memory takes for an output that goes there, beside what it serves; else 0.
    turns
        Of each work, where several run one after another: the last one has that output.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> nest = Nest.of(problem, [("register", "kmn", 8), ("memory", "kmn", 64)])
    >>> cost = compute_price(problem, nest, Machine.load("i7-6700k"))
    >>> cost.bottleneck, cost.calls
    ('compute', 512.0)
    """

    levels: tuple[LevelPrice, ...]
    compute: float
    calls: float
    packed: tuple[float, ...]
    past_caches: float = 0.0
    turns: tuple[Turn, ...] = ()

    def __repr__(self) -> str:
        return f"<Price {format_duration(self.seconds)}, bound by {self.bottleneck}>"

    @property
    def seconds(self) -> float:
        """The time of the slowest level, compute included (Eq. 3)."""
        return self.ranking[0]

    @property
    def bottleneck(self) -> str:
        """Name of the slowest level, or ``"compute"``."""
        slowest = max(self.levels, key=lambda level: level.seconds)
        if self.past_caches > max(self.compute, slowest.seconds):
            return self.levels[-1].level
        return slowest.level if slowest.seconds > self.compute else "compute"

    @property
    def ranking(self) -> tuple[float, ...]:
        """All times, longest first: what two nests of equal time are compared by (Eq. 6).

        What goes past the caches is one more level.
        """
        past = (self.past_caches,) if self.past_caches else ()
        times = (self.compute, *(level.seconds for level in self.levels), *past)
        return tuple(sorted(times, reverse=True))

    def take_turns(self) -> tuple[Price, ...]:
        """Return the price of each work, or this one; bytes of a level take alike long."""
        if not self.turns:
            return (self,)
        found = []
        for number, turn in enumerate(self.turns, start=1):
            levels = tuple(level.share(turn.shares) for level in self.levels)
            past = self.past_caches if number == len(self.turns) else 0.0
            found.append(Price(levels, turn.share * self.compute, self.calls, (), past))
        return tuple(found)

    def level(self, name: str) -> LevelPrice:
        """Return the price of the level that serves under this name."""
        return next(level for level in self.levels if level.level == name)


@lru_cache(maxsize=16)
def list_levels(machine: Machine, threads: int = 1) -> tuple[LevelView, ...]:
    """Return the register file and the caches as one of several busy cores sees them.

    A shared level's capacity is divided among the threads that share it, its bandwidth is what
    is left for each when all draw on it, see `Machine.bandwidth`. A level that does not repeat
    the nearer one's contents adds to it (section 5.5).

    Examples
    --------
    >>> [store.name for store in list_levels(Machine.load("i7-6700k"))]
    ['register', 'L1', 'L2', 'L3']
    >>> list_levels(Machine.load("i7-6700k"), threads=4)[3].capacity
    2097152.0
    """
    made = []
    ways: int | None
    name, line, ways = REGISTER, 1, None
    capacity = machine.vector_registers * machine.vector_bits / 8
    for level in machine.levels:
        bandwidth = machine.bandwidth(level, threads) / threads
        share = bandwidth / level.bandwidth
        read, stream = (rate and rate * share for rate in (level.read, level.stream))
        made.append(LevelView(name, capacity, line, level.name, bandwidth, ways, read, stream))
        if level.usable is None:
            break
        own = level.usable / min(threads, level.shared_by)
        nearer = 0.0 if level.inclusive or name == REGISTER else capacity
        name, line, ways, capacity = level.name, level.line, level.ways, own + nearer
    return tuple(made)


def compute_price(
    problem: Problem,
    nest: Nest,
    machine: Machine,
    *,
    microkernel: Microkernel | None = None,
    threads: int = 1,
    rule: Rule = "distance",
) -> Price:
    """Return what a nest costs on a machine.

    Parameters
    ----------
    problem
        The contraction or convolution.
    nest
        Any nest over its letters whose last band is the whole problem.
    machine
        With any number of levels.
    microkernel
        The costs of arithmetic, calls and packing; the catalogue's default if None.
    threads
        Those that work at once; shared levels are divided among them, and so are the cores, if
        there are fewer.
    rule
        When a tensor outlives a loop that does not index it; see `walk`.

    Examples
    --------
    A matrix product in one piece on a machine whose caches hold it moves every matrix once, C
    both ways:

    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> nest = Nest.of(problem, [("register", "kmn", 8), ("memory", "kmn", 64)])
    >>> cost = compute_price(problem, nest, Machine.load("i7-6700k"))
    >>> cost.level("memory").volumes
    (65536.0, 32768.0, 32768.0)
    """
    nest.check(problem)
    kernel = microkernel or default_microkernel(machine, problem.dtype)
    places = list_levels(machine, threads)
    _check_copies(nest, places)
    if 0 in problem.sizes.values():
        return _empty(problem, places)
    found = count_traffic(tree_of(problem, nest), places, rule)
    levels = price_levels(places, found)
    rate, frequency = core_rates(machine, problem.dtype, kernel, threads)
    seconds = arithmetic(problem, kernel, rate, frequency, found)
    seconds += _reading(problem, nest, kernel, found, rate, frequency)
    if nest.scattered:
        # Registers take in C's tile once for each call that writes it.
        written = found.moved[0][0] / problem.sum_itemsize
        seconds += float(written) * _crossing_cycles(problem, machine.costs) / frequency
    return Price(levels, seconds, float(found.calls), found.packed[1:])


def price_levels(
    places: Sequence[LevelView], found: Traffic, share: float = 1.0
) -> tuple[LevelPrice, ...]:
    """Return what each level serves, and how long that takes; `share` is of what moves."""
    parts = zip(places, found.moved, found.volumes, found.packing, strict=True)
    return tuple(
        LevelPrice(
            place.server,
            place.name,
            tuple(share * float(size) for size in moved),
            tuple(share * float(size) for size in volumes),
            tuple(share * float(size) for size in packing),
            share * float(place.seconds(volumes)),
        )
        for place, moved, volumes, packing in parts
    )


def send_past_caches(
    levels: Sequence[LevelPrice], places: Sequence[LevelView], at: int = 0
) -> tuple[tuple[LevelPrice, ...], float]:
    """Return what levels serve of all but one tensor, and how long memory takes for that one.

    It goes past the caches, so that the registers alone have it.

    Examples
    --------
    >>> near = LevelPrice("L1", "register", (64.0,), (64.0,), (0.0,), 1.0)
    >>> far = LevelPrice("memory", "L1", (64.0,), (64.0,), (0.0,), 4.0)
    >>> views = [LevelView(x, 32.0, 64, y, 16.0, stream=8.0) for x, y in ("rL", "Lm")]
    >>> levels, seconds = send_past_caches((near, far), views)
    >>> levels[1].volume, levels[1].seconds, seconds
    (0.0, 0.0, 8.0)
    """
    seconds = levels[-1].volumes[at] / places[-1].stream_rate

    def leave_out(level: LevelPrice, place: LevelView) -> LevelPrice:
        moved, volumes = (
            tuple(0.0 if n == at else size for n, size in enumerate(sizes))
            for sizes in (level.moved, level.volumes)
        )
        spared = float(place.seconds(level.volumes)) - float(place.seconds(volumes))
        left = max(level.seconds - spared, 0.0)
        return replace(level, moved=moved, volumes=volumes, seconds=left)

    return (levels[0], *map(leave_out, levels[1:], places[1:])), seconds


def _crossing_cycles(problem: Problem, costs: Costs) -> float:
    """Return the cycles of writing an element of C across the rows of register tiles.

    What lies side by side in C are columns, or batches.
    """
    beside = problem.spec.output.letters[-1]
    both = all(beside in operand.letters for operand in problem.spec.operands)
    return costs.scattered_store_cycles if both else costs.turned_store_cycles


def core_rates(
    machine: Machine, dtype: str, kernel: Microkernel, threads: int = 1
) -> tuple[float, float]:
    """Return the flop/s and the cycles per second of the core of one of several threads.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> [core_rates(machine, "float64", Microkernel(8, 6), threads) for threads in (1, 8)]
    [(67200000000.0, 4200000000.0), (33600000000.0, 2100000000.0)]
    """
    rate = machine.peak(dtype, threads) / threads * kernel.efficiency
    return rate, machine.frequency * machine.busy_cores(threads) / threads


def _reading(
    problem: Problem, nest: Nest, kernel: Microkernel, found: Traffic, rate: float, frequency: float
) -> float:
    """Return the seconds that reading in place costs besides the bytes it moves.

    A copy is read in the order in which it lies, so that hardware prefetches it. Rows in place come
    as whole vectors; calls wait for them where they enter the second cache. Columns in place are as
    many streams as there are columns; calls wait where they enter the first. Steps of k take longer
    with either, but for columns beside rows that were prepared: kernels that read both keep up.
    """
    seconds = 0.0
    for number, copy in enumerate(nest.packed or (None,) * len(problem.spec.operands), start=1):
        operand = problem.spec.operands[number - 1]
        if copy is None and nest.kind(number - 1) == "in place" and operand.subscripts:
            rows = is_read_by_rows(problem, number)
            entered = found.moved[min(1 + rows, len(found.moved) - 1)][number] / problem.itemsize
            seconds += reading_seconds(problem, nest, kernel, number, entered, rate, frequency)
    return seconds


def is_read_by_rows(problem: Problem, number: int) -> bool:
    """Return whether an operand that is read in place comes as rows: it lies as C's vectors do."""
    running = {letter for letter, extent in problem.sizes.items() if extent > 1}
    unit = problem.spec.tensors[number].subscripts[-1].letters
    return running & set(unit) == running & {problem.lane}


def reading_seconds(
    problem: Problem,
    nest: Nest,
    kernel: Microkernel,
    number: int,
    entered: float,
    rate: float,
    frequency: float,
) -> float:
    """Return the seconds that one operand costs which is read in place, see `_reading`.

    So many of its elements enter the cache at which calls wait for them.
    """
    rows = is_read_by_rows(problem, number)
    each = kernel.in_place_rows_cycles if rows else kernel.in_place_columns_cycles
    slower = kernel.in_place_rows_slowdown if rows else kernel.in_place_columns_slowdown
    if not rows and "prepared" in map(nest.kind, range(len(problem.spec.operands))):
        slower = 1.0
    return entered * each / frequency + (slower - 1) * problem.flops / rate


def arithmetic(
    problem: Problem, kernel: Microkernel, rate: float, frequency: float, found: Traffic
) -> Size:
    """Return the seconds of flops at a rate, microkernel calls and packing work.

    Examples
    --------
    >>> problem, kernel = Problem.of("mn-mk-kn", 64), Microkernel(8, 6)
    >>> found = Traffic((), (), (), (0.0, 4096.0, 4096.0), 0.0, calls=512.0)
    >>> round(1e6 * arithmetic(problem, kernel, 67.2e9, 4.2e9, found), 1)
    17.1
    """
    cycles = found.calls * kernel.call_cycles
    cycles = cycles + _packing_cycles(kernel, sum(found.packed) - found.relaid, found.relaid)
    seconds: Size = problem.flops / rate + cycles / frequency
    return seconds


def packing_share(
    cost: Price, nest: Nest, machine: Machine, kernel: Microkernel, dtype: str, threads: int = 1
) -> float:
    """Return the share of a price's time that packing has: of the slowest level, or of compute.

    Examples
    --------
    >>> problem, machine = Problem.of("mn-mk-kn", 64), Machine.load("i7-6700k")
    >>> boxes = [("register", "kmn", 8), ("L1", "kmn", 64), ("memory", "kmn", 64)]
    >>> nest = Nest.of(problem, boxes, packed=(None, "L1"))
    >>> cost = compute_price(problem, nest, machine)
    >>> kernel = default_microkernel(machine, "float64")
    >>> round(packing_share(cost, nest, machine, kernel, "float64"), 2)
    0.04
    """
    if not cost.seconds:
        return 0.0
    if cost.bottleneck != "compute":
        level = cost.level(cost.bottleneck)
        return sum(level.packing) / level.volume
    return packing_seconds(cost, nest, machine, kernel, dtype, threads) / cost.compute


def packing_seconds(
    cost: Price, nest: Nest, machine: Machine, kernel: Microkernel, dtype: str, threads: int = 1
) -> float:
    """Return the part of a price's compute that is work of packing."""
    relaid = sum(n for at, n in enumerate(cost.packed) if nest.kind(at) == "windows")
    cycles = _packing_cycles(kernel, sum(cost.packed) - relaid, relaid)
    return float(cycles) / core_rates(machine, dtype, kernel, threads)[1]


def _packing_cycles(kernel: Microkernel, panels: Size, relaid: Size) -> Size:
    """Return the cycles of packing so many elements into micro-panels and into window copies."""
    found: Size = panels * kernel.pack_cycles + relaid * kernel.window_cycles
    return found


def _check_copies(nest: Nest, places: Sequence[LevelView]) -> None:
    tiles = {band.level for band in nest.bands} & {place.name for place in places[1:]}
    for level in nest.packed:
        if level is not None and level not in tiles:
            raise SizeError(f"a packed copy cannot live in {level!r}: the nest has no tile for it")


def _empty(problem: Problem, places: Sequence[LevelView]) -> Price:
    """Price a problem without iterations: an output that has elements is set once."""
    size = float(problem.bytes[0])
    sizes = (size, *(0.0 for _ in problem.spec.operands))
    none = tuple(0.0 for _ in sizes)
    levels = tuple(
        LevelPrice(place.server, place.name, sizes, sizes, none, size / place.bandwidth)
        for place in places
    )
    return Price(levels, 0.0, 0.0, none[1:])
