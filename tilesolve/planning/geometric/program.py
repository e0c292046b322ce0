"""The nonlinear program of a tiling: tile sizes that minimise the time of the slowest level.

`formulate` writes the model of section 3 of the paper for one choice of innermost loops as
signomials in tile sizes. In their logarithms every contraction's program is convex.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise

from tilesolve.constants.policy import PACK_CROSSINGS, TIE_WEIGHT
from tilesolve.contractions.errors import SolverError
from tilesolve.model.access import Access
from tilesolve.model.formulas import SymbolicLoop, name_tile, symbolic_footprint, write_amounts
from tilesolve.planning.setting import Choice, Setting
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulation(Posynomials):
    """The program of tile sizes for one choice of innermost loops.

    Times are the seconds of each server, and of ``"compute"``; limits are capacity and
    associativity. The unit is the bare arithmetic.

    Parameters
    ----------
    aliases
        For each tile size the symbol or number that stands for it: a level without a tile of
        its own has the nearer one's.
    """

    aliases: Mapping[str, str | float]

    def tiles(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return every tile size, those without a variable of their own included.

        Examples
        --------
        >>> aliases = {"T2_M": "T1_M", "N_M": 64.0}
        >>> Formulation(variables={}, times={}, aliases=aliases).tiles({"T1_M": 8.0})
        {'T2_M': 8.0, 'N_M': 64.0}
        """
        return {
            symbol: values[name] if isinstance(name, str) else name
            for symbol, name in self.aliases.items()
        }


@lru_cache(maxsize=512)
def formulate(setting: Setting, choice: Choice, *, loose: bool = False) -> Formulation:
    """Return the program of one choice of innermost loops.

    Parameters
    ----------
    setting
        The problem and the machine.
    choice
        For each cache the loops around its tile; the outermost cache must have some.
    loose
        Whether to demand no more room than any choice of loops inside the tiles does.
    """
    aliases = _aliases(setting, choice)
    names = {s: a for s, a in aliases.items() if isinstance(a, str)}
    numbers = {s: a for s, a in aliases.items() if not isinstance(a, str)}

    def settled(amount: Signomial) -> Signomial:
        return amount.substitute(numbers).rename(names)

    free = set(names.values())
    sizes = setting.fused.problem.sizes
    variables = {
        name_tile(level, index, setting.levels): (
            float(setting.smallest(index, level)),
            float(sizes[index]),
        )
        for level in range(1, setting.levels + 1)
        for index in sizes
        if name_tile(level, index, setting.levels) in free
    }
    limits = ((name, settled(amount)) for name, amount in _limits(setting, choice, loose=loose))
    return Formulation(
        variables=variables,
        times={name: settled(amount) for name, amount in _symbolic_times(setting, choice)},
        limits=_open_limits(limits),
        nested=tuple(_nested(setting, names)),
        unit=setting.fused.problem.flops / setting.rate,
        weight=TIE_WEIGHT,
        aliases=aliases,
    )


def _open_limits(limits: Iterable[tuple[str, Signomial]]) -> dict[str, Signomial]:
    """Return the limits that tiles can still break; refuse one that no tile can keep."""
    found = {}
    for name, limit in limits:
        if limit.symbols:
            found[name] = limit
        elif limit.at({}) > 1:
            kind, store = name.split("_")[:2]
            raise SolverError(
                f"{store} cannot hold the only tile there is: {kind} exceeded by "
                f"{limit.at({}) - 1:.3g} of what it has"
            )
    return found


def bounding(setting: Setting, level: int, first: str) -> Formulation:
    """Return a smaller program whose optimum no choice with these loops around a tile beats.

    It keeps the one time that the loops around the level's tile decide, and for the outermost
    level the arithmetic, whose packing they decide too; nothing but the level's own limits (and
    the nearest level's, for the calls) binds, and the tiles beyond are free.

    Parameters
    ----------
    setting
        The problem and the machine.
    level
        Number of the cache, 1 the nearest.
    first
        The loops around its tile, innermost first.
    """
    any_order = "".join(setting.fused.problem.spec.letters)
    inner = [None if at < level - 1 else any_order for at in range(1, level)]
    outer = [any_order] * (setting.levels - level)
    program = formulate(setting, (*inner, first, *outer), loose=True)
    outermost = level == setting.levels
    times = {setting.places[level].server, *(["compute"] if outermost else [])}
    names = {setting.places[at].name for at in ([1, level] if outermost else [level])}
    return replace(
        program,
        times={name: amount for name, amount in program.times.items() if name in times},
        limits={
            name: limit for name, limit in program.limits.items() if name.split("_")[1] in names
        },
    )


def _aliases(setting: Setting, choice: Choice) -> dict[str, str | float]:
    """Return what stands for each tile size and extent."""
    aliases: dict[str, str | float] = {}
    reduced = setting.fused.reduced
    for index, extent in setting.fused.problem.sizes.items():
        symbols = [name_tile(level, index, setting.levels) for level in range(setting.levels + 2)]
        for level in range(1, setting.levels + 1):
            inherits = level > 1 and choice[level - 2] is None
            own = symbols[level] if setting.smallest(index, level) < extent else float(extent)
            aliases[symbols[level]] = aliases[symbols[level - 1]] if inherits else own
        aliases[symbols[-1]] = float(extent)
        aliases[symbols[0]] = 1.0 if index in reduced else float(setting.smallest(index))
    return aliases


def _tiling_loops(setting: Setting, choice: Choice, level: int) -> list[SymbolicLoop]:
    """Return the loops outside a cache's tile, innermost first."""
    indices = setting.fused.problem.spec.letters
    around = []
    for at, first in enumerate(choice, start=1):
        if first is not None:
            order = first + "".join(i for i in indices if i not in first)
            around.append((at, order))
    return [
        SymbolicLoop(index, at, setting.levels)
        for at, order in around
        if at >= level
        for index in order
        if setting.fused.problem.sizes[index] > 1
    ]


def _moved_bytes(setting: Setting, choice: Choice, level: int) -> tuple[Signomial, ...]:
    """Return the bytes of each tensor that a cache takes in."""
    loops = tuple(_tiling_loops(setting, choice, level))
    # A copy's own cache takes in its source.
    accesses = setting.accesses_at(level + 1)
    found = write_amounts(accesses, level, loops, setting.levels, _unit_indices(setting, level))
    return tuple(size * one.element for size, one in zip(found, accesses, strict=True))


def _loaded_bytes(setting: Setting, calls: Signomial) -> tuple[Signomial, ...]:
    """Return the bytes of each tensor that the register file takes in, by so many calls.

    A call runs over the whole reduced range of the nearest cache's tile. It takes in its tile of
    the output once, and what a step of the sums needs of the operands in each step.
    """
    levels, ones = setting.levels, _unit_indices(setting, 0)
    steps = calls
    for index in setting.fused.reduced:
        steps = steps * Signomial.symbol(name_tile(1, index, levels))
    accesses = setting.accesses_at(1)
    output, *operands = (symbolic_footprint(one, 0, levels, ones) * one.element for one in accesses)
    return output * calls, *(side * steps for side in operands)


def _copied_elements(setting: Setting, choice: Choice, level: int, copy: Access) -> Signomial:
    """Return the elements that are copied into a copy whose tile is that of a level.

    A copy is made whole whenever a loop outside has moved to another tile (Eqs 11-14).
    """
    amount = symbolic_footprint(copy, level, setting.levels, _unit_indices(setting, level))
    moved = False
    for loop in _tiling_loops(setting, choice, level):
        moved |= loop.letter in copy.letters
        if moved:
            amount = amount * loop.trips
    return amount


def _unit_indices(setting: Setting, level: int) -> frozenset[str]:
    """Return the indices whose tile is 1: of extent 1, or in the register tile (level 0)."""
    fused, sizes = setting.fused, setting.fused.problem.sizes
    return frozenset(
        i
        for i, extent in sizes.items()
        if extent == 1 or (level == 0 and (i in fused.reduced or setting.smallest(i) == 1))
    )


def _symbolic_times(setting: Setting, choice: Choice) -> Iterator[tuple[str, Signomial]]:
    """Yield the seconds of each server and of the arithmetic (Eqs 2, 10-14)."""
    problem, fused = setting.fused.problem, setting.fused
    size = problem.itemsize
    names = [place.name for place in setting.places]
    buffers = [0, *(names.index(level) if level else 0 for level in setting.packed)]
    calls = Signomial.constant(1)
    for index, extent in problem.sizes.items():
        inner = name_tile(1 if index in fused.reduced else 0, index, setting.levels)
        calls = calls * (Signomial.constant(extent) / Signomial.symbol(inner))
    caches = range(1, setting.levels + 1)
    moved = [
        _loaded_bytes(setting, calls),
        *(_moved_bytes(setting, choice, level) for level in caches),
    ]
    packed = [
        _copied_elements(setting, choice, at, setting.accesses_at(at)[t]) if at else Signomial(())
        for t, at in enumerate(buffers)
    ]
    whole = float(problem.bytes[0])
    for at, place in enumerate(setting.places):
        unread = setting.output == "stream" or (setting.output == "store" and at == 0)
        # Sums are as wide as copies, but where they leave the last cache.
        wide = problem.sum_itemsize / size
        outermost = at + 1 == len(setting.places)
        volumes = [(2 * moved[at][0] - wide * whole * unread) * (1 / wide if outermost else 1.0)]
        for t, buffer in enumerate(buffers[1:], start=1):
            element = setting.accesses_at(at + 1)[t].element
            crossings = size + element * ((2 if at == 0 else PACK_CROSSINGS) - 1)
            copied = crossings * packed[t] if at < buffer else Signomial(())
            volumes.append(moved[at][t] + copied)
        yield place.server, place.seconds(volumes)
    cycles = calls * setting.microkernel.call_cycles
    kernel = setting.microkernel
    for amount, kind in zip(
        packed[1:], setting.kinds or ("micro-panels",) * len(buffers), strict=False
    ):
        cycles = cycles + amount * (
            kernel.window_cycles if kind == "windows" else kernel.pack_cycles
        )
    yield "compute", cycles * (1 / setting.frequency) + problem.flops / setting.rate


def _limits(setting: Setting, choice: Choice, *, loose: bool) -> Iterator[tuple[str, Signomial]]:
    """Yield what each cache must hold over what it can (Eqs 5 and 9).

    A tile shares its cache with what its next loop brings before all of the old is used again:
    another slice of each tensor that the loop moves on as a whole, and the source of each copy that
    it makes again. The source of any copy needs room when the copy is first made.

    Of Eq. 9's rounding up to whole ways the program keeps that a tensor takes at least one:
    with all tensors counted by size, and with each of them in turn counted as one way. The
    rest of the rounding is left to the integer repair.
    """
    spec = setting.fused.problem.spec
    copies = (None, *setting.packed)
    for level, place in enumerate(setting.places[1:], start=1):
        if level > 1 and choice[level - 2] is None:
            continue
        ones = _unit_indices(setting, level)
        sides = [
            symbolic_footprint(one, level, setting.levels, ones) * one.element
            for one in setting.accesses_at(level)
        ]
        coming = Signomial.constant(0)
        if first := next((c for c in choice[level - 1 :] if c), None):
            sweep = _sweep(setting, choice, level, first[0])
            for tensor, side, copy in zip(spec.tensors, sides, copies, strict=True):
                moved = first[0] in tensor.letters
                if moved and (copy == place.name or not (loose or sweep in tensor.letters)):
                    coming = coming + side
        total = sum(sides, coming)
        yield f"capacity_{place.name}", total * (1 / place.capacity)
        for name, side, copy in zip(spec.names, sides, copies, strict=True):
            if copy == place.name:
                yield f"copy_{place.name}_{name}", sum(sides, side) * (1 / place.capacity)
        if (ways := place.ways_for(len(sides))) is None:
            continue
        room = place.capacity * (1 - 1 / ways)
        for one, others in zip(
            spec.names, combinations(reversed(sides), len(sides) - 1), strict=True
        ):
            filled = sum(others, Signomial.constant(0)) * (1 / room)
            yield f"ways_{place.name}_{one}", filled


def _sweep(setting: Setting, choice: Choice, level: int, first: str) -> str | None:
    """Return the index along which a tile goes over the tensors that its next loop leaves.

    In the nearest tile that is the sum of a call, farther out the loops around the nearer tile
    that index such a tensor.
    """
    tensors = setting.fused.problem.spec.tensors
    kept = {i for tensor in tensors if first not in tensor.letters for i in tensor.letters}
    inner = setting.fused.reduced if level == 1 else choice[level - 2] or ""
    running = [i for i in inner if setting.fused.problem.sizes[i] > 1]
    return next((i for i in running if level == 1 or i in kept), None)


def _nested(setting: Setting, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of tile sizes that must not shrink from one level to the next."""
    for index in setting.fused.problem.sizes:
        own = [name_tile(level, index, setting.levels) for level in range(1, setting.levels + 1)]
        distinct = list(dict.fromkeys(names[symbol] for symbol in own if symbol in names))
        yield from pairwise(distinct)
