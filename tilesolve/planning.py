"""Plans: a problem's tiles on a machine, priced and explained.

`plan` is the library's front door. It solves the continuous program over all choices of
innermost loops, repairs the optimum to integers, turns class tiles into boxes of letters, and
decides what is worth packing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tilesolve.boxes import line_tiles
from tilesolve.contractions.errors import MachineError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.fuse import Fused, fuse
from tilesolve.kernels.catalogue import Microkernel, default
from tilesolve.machine import Machine
from tilesolve.movement import Price, price, stores
from tilesolve.nest import Nest, Output
from tilesolve.program import TIE, Choice, Setting, formulate, pyomo_model

if TYPE_CHECKING:
    from tilesolve.certificate import Certificate

Sizes = Mapping[str, int] | str | int
"""Extents as `Problem.of` takes them."""


@dataclass(frozen=True, slots=True)
class Search:
    """How the tiles were found.

    Parameters
    ----------
    considered, pruned, solved
        Choices of innermost loops: all, ruled out by a bound, solved by IPOPT.
    permutations
        Loop permutations that the choices stand for, in the paper's count.
    relaxed
        Seconds of each server and of the arithmetic at the continuous optimum, as pairs.
    tiles
        The continuous tile sizes, by symbol, as pairs.
    elasticities
        By how many percent the time falls when a bandwidth, a capacity or the arithmetic
        grows by one percent, as pairs.
    spread
        Relative difference between the starts of IPOPT; 0 where one is enough.
    integral
        Seconds of the integer class tiles, before they became boxes.
    priced
        Integer tilings that were compared.
    runner_up
        The second best choice and its seconds; None if there is just one.

    Examples
    --------
    >>> search = plan("ik-ij-jk", 512, "i7-6700k", cache=False).search
    >>> search.permutations, search.considered == search.pruned + search.solved
    (27, True)
    """

    considered: int
    pruned: int
    solved: int
    permutations: int
    relaxed: tuple[tuple[str, float], ...]
    tiles: tuple[tuple[str, float], ...]
    elasticities: tuple[tuple[str, float], ...]
    spread: float
    integral: float
    priced: int
    runner_up: tuple[Choice, float] | None

    @property
    def gap(self) -> float:
        """What rounding to integers costs: relative excess over the continuous optimum."""
        longest = max((seconds for _, seconds in self.relaxed), default=0.0)
        return self.integral / longest - 1 if longest else 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run a problem on a machine, and what that is predicted to cost.

    Parameters
    ----------
    problem
        What is computed.
    machine
        Where.
    threads
        Cores that share the work.
    split
        The letter whose range the threads divide; None for one thread.
    output
        How C is written.
    microkernel
        The register tile and its costs.
    choice
        For each cache the classes of the loops around its tile, innermost first.
    classes
        For each class its tile sizes, nearest cache first.
    nest
        Loops and boxes over letters, of one thread's share.
    price
        What the nest costs, line by line of memory.
    search
        How it was found.

    Examples
    --------
    >>> found = plan("abcd-aebf-dfce", 72, "e5-2680v4", cache=False)
    >>> found.price.bottleneck
    'compute'
    """

    problem: Problem
    machine: Machine
    threads: int
    split: str | None
    output: Output
    microkernel: Microkernel
    choice: Choice
    classes: tuple[tuple[str, tuple[int, ...]], ...]
    nest: Nest
    price: Price
    search: Search

    @property
    def share(self) -> Problem:
        """The part of the problem that one thread computes."""
        return _share(self.problem, self.split, self.threads)

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self.price.seconds

    @property
    def flops(self) -> float:
        """Predicted flop/s of all threads together."""
        return self.problem.flops / self.seconds if self.seconds else 0.0

    @property
    def roofline(self) -> float:
        """Seconds that no implementation beats: arithmetic at peak, each tensor moved once."""
        peak = self.machine.peak(self.problem.dtype) * self.threads
        memory = self.machine.memory
        bandwidth = memory.bandwidth
        if self.threads > 1 and memory.bandwidth_all is not None:
            bandwidth = memory.bandwidth_all
        return max(self.problem.flops / peak, sum(self.problem.bytes) / bandwidth)

    @property
    def gap(self) -> float:
        """Relative excess of the integer tiles' time over the continuous optimum."""
        return self.search.gap

    @property
    def sensitivity(self) -> dict[str, float]:
        """By how many percent the time falls per percent more of each resource.

        From the multipliers of the continuous optimum: names are those of `whatif`.

        Examples
        --------
        >>> found = plan("abcd-aebf-dfce", 72, "e5-2680v4", cache=False)
        >>> max(found.sensitivity, key=found.sensitivity.get)
        'compute'
        """
        return dict(self.search.elasticities)

    @property
    def setting(self) -> Setting:
        """What the nonlinear program was written for."""
        return _setting(self.share, self.machine, self.threads, self.output, self.microkernel)

    @property
    def program(self) -> Any:  # noqa: ANN401 - Pyomo has no types
        """The Pyomo model of the chosen innermost loops, to print or to write to a file.

        Examples
        --------
        >>> found = plan("ik-ij-jk", 512, "e5-2680v4", cache=False)
        >>> sorted(found.program.seconds)
        ['L1', 'L2', 'L3', 'compute', 'memory']
        """
        return pyomo_model(formulate(self.setting, self.choice))

    def whatif(self, **factors: float) -> Plan:
        """Return the plan for a machine with some figures multiplied.

        Parameters
        ----------
        **factors
            ``<level>_bandwidth``, ``<level>_capacity`` in lower case, or ``compute``: what each
            is multiplied by.

        Examples
        --------
        >>> found = plan("abcdef-degb-gfac", "a=24 b=16 c=16 d=24 e=16 f=16 g=24", "e5-2680v4",
        ...              cache=False)
        >>> found.whatif(compute=0.5).price.bottleneck
        'compute'
        """
        return solve(
            self.problem, changed(self.machine, factors), self.threads, self.output != "accumulate"
        )

    def certify(self, *, limit: float = 300.0) -> Certificate:
        """Prove with SCIP how far the integer tiles are from the best ones.

        Needs the extra ``certify``, and few enough nested tiles; see `certificate.certify`.
        """
        from tilesolve.certificate import certify

        return certify(self, limit=limit)

    def __repr__(self) -> str:
        return (
            f"<Plan {self.problem.spec} {self.problem.dtype}: {self.flops / 1e9:.1f} GFLOP/s "
            f"predicted on {self.machine.name}, bound by {self.price.bottleneck}>"
        )

    def __str__(self) -> str:
        from tilesolve.report import report

        return report(self)

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""
        from tilesolve.plan_files import dump

        return dump(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON.

        Examples
        --------
        >>> found = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
        >>> Plan.from_json(found.to_json()) == found
        True
        """
        from tilesolve.plan_files import load

        return load(text)


def plan(
    spec: Spec | str | Problem,
    sizes: Sizes | None = None,
    machine: Machine | str | None = None,
    *,
    dtype: npt.DTypeLike = "float64",
    threads: int = 1,
    accumulate: bool = False,
    cache: bool = True,
) -> Plan:
    """Solve for the tiles of a contraction or convolution on a machine.

    Parameters
    ----------
    spec
        Such as ``"abcd-aebf-dfce"`` or ``"aebf,dfce->abcd"``, or a whole `Problem`.
    sizes
        Extents: a mapping, text such as ``"a=72,b=72"``, or an int for all letters.
    machine
        A `Machine`, a name or a path; see `Machine.load`.
    dtype
        Of all tensors.
    threads
        Cores that share the work.
    accumulate
        Whether the result is added to what the output holds.
    cache
        Whether plans kept in memory and on disk may be used and added to.

    Examples
    --------
    >>> plan("ik-ij-jk", 64, "i7-6700k", cache=False).problem.flops
    524288
    """
    from tilesolve import plan_cache

    if not cache or not plan_cache.enabled():
        problem = _problem(spec, sizes, dtype)
        return solve(problem, Machine.load(machine), threads, not accumulate)
    return plan_cache.cached(spec, sizes, machine, dtype, threads, accumulate)


def _problem(spec: Spec | str | Problem, sizes: Sizes | None, dtype: npt.DTypeLike) -> Problem:
    if isinstance(spec, Problem):
        if sizes is not None:
            raise SizeError("a Problem has its sizes already; do not give any beside it")
        return spec
    if sizes is None:
        raise SizeError(f"sizes are missing: give an extent for each letter of {str(spec)!r}")
    return Problem.of(spec, sizes, dtype)


def changed(machine: Machine, factors: Mapping[str, float]) -> Machine:
    """Return a machine with some figures multiplied; see `Plan.whatif` for their names.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> changed(machine, {"l3_capacity": 2.0}).level("L3").capacity
    16777216
    """
    levels = {level.name.lower(): level for level in machine.levels}
    peaks = machine.peaks
    for name, factor in factors.items():
        match = re.fullmatch(r"(\w+)_(bandwidth|capacity)", name)
        if name == "compute":
            peaks = tuple(replace(peak, flops=peak.flops * factor) for peak in peaks)
        elif match and match[1] in levels and (match[2], match[1]) != ("capacity", "memory"):
            level = levels[match[1]]
            if match[2] == "bandwidth":
                all_of_it = level.bandwidth_all
                grown = all_of_it * factor if all_of_it is not None else None
                level = replace(level, bandwidth=level.bandwidth * factor, bandwidth_all=grown)
            else:
                level = replace(level, capacity=int((level.capacity or 0) * factor))
            levels[match[1]] = level
        else:
            known = [f"{n}_bandwidth" for n in levels] + [f"{n}_capacity" for n in levels]
            known.remove("memory_capacity")
            raise MachineError(f"unknown figure {name!r}; known are compute, {', '.join(known)}")
    return machine.replace(levels=tuple(levels.values()), peaks=peaks, fingerprint="")


def solve(problem: Problem, machine: Machine, threads: int, overwrite: bool) -> Plan:
    """Return the best plan, without any cache: of all letters that threads may divide.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", {"i": 2000, "j": 40, "k": 40})
    >>> solve(problem, Machine.load("i7-6700k"), threads=2, overwrite=True).split
    'i'
    """
    if type(threads) is not int or not threads >= 1:
        raise MachineError(f"threads must be a positive integer, got {threads!r}")
    places = stores(machine, threads)
    large = problem.bytes[0] > places[-1].capacity
    output: Output = ("stream" if large else "store") if overwrite else "accumulate"
    microkernel = default(problem.dtype, machine.vector_bits, machine.vector_registers)
    plans = [
        _solve(problem, machine, threads, split, output, microkernel)
        for split in _splits(problem, threads)
    ]
    return min(plans, key=lambda found: found.seconds)


def _splits(problem: Problem, threads: int) -> list[str | None]:
    """Return the letters that threads may divide: the longest one of each class of the output."""
    if threads == 1:
        return [None]
    groups = [c.letters for c in problem.classes if 0 in c.tensors]
    longest = [max(letters, key=problem.sizes.__getitem__) for letters in groups]
    return [i for i in longest if problem.sizes[i] > 1] or [None]


def _share(problem: Problem, split: str | None, threads: int) -> Problem:
    if split is None:
        return problem
    sizes = dict(problem.sizes)
    sizes[split] = -(-sizes[split] // threads)
    return Problem.of(problem.spec, sizes, problem.dtype)


def _setting(
    share: Problem, machine: Machine, threads: int, output: Output, microkernel: Microkernel
) -> Setting:
    """Return what to solve for; sizes of 0 count as 1, since a program needs logarithms."""
    sizes = {letter: max(1, extent) for letter, extent in share.sizes.items()}
    places = stores(machine, threads)
    outermost = places[-1].name if len(places) > 1 else None
    whole = Problem.of(share.spec, sizes, share.dtype)
    fused = fuse(whole)
    # Classes have no layout, so that their volumes are counted in elements, not in lines.
    elements = tuple(replace(place, line=1) for place in places)
    return Setting(
        fused,
        elements,
        microkernel,
        machine.peak(share.dtype) * microkernel.efficiency,
        machine.frequency,
        (outermost,) * len(share.spec.operands),
        output,
        line_tiles(whole, fused, places[-1]),
    )


def _solve(
    problem: Problem,
    machine: Machine,
    threads: int,
    split: str | None,
    output: Output,
    microkernel: Microkernel,
) -> Plan:
    from tilesolve.boxes import unfuse
    from tilesolve.relaxation import relax
    from tilesolve.repair import repair

    share = _share(problem, split, threads)
    setting = _setting(share, machine, threads, output, microkernel)
    relaxed = relax(setting, starts=1 if _convex(share.spec) else STARTS)
    best = relaxed.best
    integral = repair(setting, best.choice, best.tiles)
    nest = unfuse(share, setting.fused, integral.nest, machine.memory.line)
    nest, cost = _packing(share, setting.fused, nest, machine, threads, microkernel)
    runner_up = relaxed.optima[1] if len(relaxed.optima) > 1 else None
    return Plan(
        problem,
        machine,
        threads,
        split,
        output,
        microkernel,
        best.choice,
        integral.chains,
        nest,
        cost,
        Search(
            relaxed.considered,
            relaxed.pruned,
            relaxed.solved,
            relaxed.permutations,
            tuple(best.times.items()),
            tuple(best.tiles.items()),
            tuple(best.elasticities.items()),
            best.spread,
            integral.seconds,
            integral.priced,
            (runner_up.choice, runner_up.seconds) if runner_up else None,
        ),
    )


STARTS = 3
"""Points that IPOPT starts from where the program is not convex."""


def _convex(spec: Spec) -> bool:
    return all(len(s.terms) == 1 for tensor in spec.tensors for s in tensor.subscripts)


def _packing(
    share: Problem,
    fused: Fused,
    nest: Nest,
    machine: Machine,
    threads: int,
    microkernel: Microkernel,
) -> tuple[Nest, Price]:
    """Return the nest that packs only what repays it, and its price.

    The rows of the register tile are loaded and stored as vectors: an operand that they index
    can be read in place only if its unit-stride letter is the output's.
    """
    rows = fused.letters(fused.rows) if fused.rows else ()
    vector = share.spec.output.letters[-1:]
    options = []
    for operand, copy in zip(share.spec.operands, nest.packed, strict=True):
        loaded = any(letter in rows for letter in operand.letters)
        unit = operand.subscripts[-1] if operand.subscripts else None
        along = unit is not None and unit.plain and unit.letters == vector
        options.append([copy, None] if copy and (along or not loaded) else [copy])
    priced = []
    for packed in product(*options):
        candidate = replace(nest, packed=packed)
        cost = price(share, candidate, machine, microkernel=microkernel, threads=threads)
        times = cost.ranking
        priced.append((times[0] + TIE * sum(times) / len(times), candidate, cost))
    _, chosen, cost = min(priced, key=lambda found: found[0])
    return chosen, cost
