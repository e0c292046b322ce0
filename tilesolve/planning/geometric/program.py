"""The nonlinear program of a tiling: tile sizes that minimise the time of the slowest level.

`formulate` writes the model of section 3 of the paper for one choice of innermost loops as
signomials in tile sizes. In their logarithms every contraction's program is convex.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise, takewhile

from tilesolve.constants.policy import TIE_WEIGHT
from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.spec import Spec
from tilesolve.model.access import Box, Size
from tilesolve.model.formulas import name_tile
from tilesolve.planning.geometric.class_trees import held_bytes, list_boxes, price_boxes
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

    def whole(self, sizes: Mapping[str, float]) -> dict[str, float]:
        """Return a size for each variable: those that nothing needs are the least.

        Examples
        --------
        >>> sides = {"x": (1.0, 9.0), "y": (2.0, 9.0)}
        >>> Formulation(variables=sides, times={}, aliases={}).whole({"x": 3.0})
        {'x': 3.0, 'y': 2.0}
        """
        return {name: sizes.get(name, low) for name, (low, _) in self.variables.items()}

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


def is_convex(spec: Spec) -> bool:
    """Return whether the programs of a spec are convex: no subscript adds letters.

    Examples
    --------
    >>> is_convex(Spec.parse("ik-ij-jk")), is_convex(Spec.parse("h-[h+r]-r"))
    (True, False)
    """
    return all(len(s.terms) == 1 for tensor in spec.tensors for s in tensor.subscripts)


@lru_cache(maxsize=512)
def formulate(
    setting: Setting, choice: Choice, *, loose: bool = False, level: int | None = None
) -> Formulation:
    """Return the program of one choice of innermost loops.

    Parameters
    ----------
    setting
        The problem and the machine.
    choice
        For each cache the loops around its tile; the outermost cache must have some.
    loose
        Whether to demand no more room than any choice of loops inside the tiles does.
    level
        The number of the cache whose time alone counts, and the arithmetic of the outermost; only
        its limits hold then, and the nearest one's that decides on calls. None for all.
    """
    named = _name_tiles(setting, tuple(first is not None for first in choice[:-1]))
    boxes = named.boxes
    limited: Collection[int] = range(1, setting.levels + 1)
    if level == setting.levels:
        limited = sorted({1, level})
    elif level is not None:
        limited = [level]
    return Formulation(
        variables=named.variables,
        times=_times(setting, choice, boxes, level),
        limits=_open_limits(_limits(setting, choice, boxes, limited, loose=loose)),
        nested=named.nested,
        unit=setting.fused.problem.flops / setting.rate,
        weight=TIE_WEIGHT,
        aliases=named.aliases,
    )


def _times(
    setting: Setting, choice: Choice, boxes: Sequence[Box], level: int | None
) -> dict[str, Signomial]:
    """Return the times of a program: of all levels, or of one, and of arithmetic; see `formulate`.

    What moves to a level depends on the loops around its tile, and calls are as many in any order.
    So choices that differ within that tile, or within the nearest one that copies are made of,
    share its time, if their tile there goes by the same name.
    """
    known, keys = _known_times(setting), dict[str, tuple[object, ...]]()
    places = [place.name for place in setting.places]
    copies = min([places.index(copy) for copy in setting.packed if copy], default=setting.levels)

    def shared(name: str, at: int) -> tuple[object, ...]:
        inner = max(0, at - 1)
        inherited = takewhile(lambda first: first is None, reversed(choice[:inner]))
        return name, len([*inherited]), choice[inner:]

    for at, place in enumerate(setting.places):
        if level is None or level == at:
            keys[place.server] = shared(place.name, at or copies)
    if level is None or level == setting.levels:
        keys["compute"] = shared("compute", copies)
    if missing := [name for name, key in keys.items() if key not in known]:
        found = price_boxes(setting, choice, boxes, "tiles", missing)
        known |= {keys[name]: Signomial.of(found[name]) for name in missing}
    return {name: known[key] for name, key in keys.items()}


@lru_cache(maxsize=16)
def _known_times(setting: Setting) -> dict[tuple[object, ...], Signomial]:
    """Return the times of a setting's programs so far, to be added to."""
    del setting
    return {}


def keeps_limits(setting: Setting, choice: Choice) -> bool:
    """Return whether the smallest tiles keep the limits of the program of one choice.

    Where letters are added the program's symbols say what is held, which may be more than numbers.
    """
    spec, levels = setting.fused.problem.spec, range(1, setting.levels + 1)
    tiles = [{i: float(setting.smallest(i, at)) for i in spec.letters} for at in levels]
    boxes: Sequence[Box] = list_boxes(setting, tiles)
    if not is_convex(spec):
        boxes = _name_tiles(setting, (True,) * (setting.levels - 1)).boxes
    least = {
        name_tile(at, i, setting.levels): size
        for at, tile in zip(levels, tiles, strict=True)
        for i, size in tile.items()
    }
    limits = _limits(setting, choice, boxes, levels, loose=False)
    return all(Signomial.of(held).at(least) <= 1 for _, held in limits)


def _open_limits(limits: Iterable[tuple[str, Size]]) -> dict[str, Signomial]:
    """Return the limits that tiles can still break; refuse one that no tile can keep."""
    found = {}
    for name, held in limits:
        limit = Signomial.of(held)
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
    program = formulate(setting, (*inner, first, *outer), loose=True, level=level)
    return replace(program, weight=0.0)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Tile sizes in symbols: what stands for each, boxes, and what is free within which bounds."""

    aliases: Mapping[str, str | float]
    boxes: Sequence[Box]
    variables: Mapping[str, tuple[float, float]]
    nested: tuple[tuple[str, str], ...]


@lru_cache(maxsize=64)
def _name_tiles(setting: Setting, owns: tuple[bool, ...]) -> _Tiles:
    """Return the tile sizes of a choice in which some levels but the outermost have own tiles."""
    aliases: dict[str, str | float] = {}
    variables: dict[str, tuple[float, float]] = {}
    nested: list[tuple[str, str]] = []
    sizes, levels = setting.fused.problem.sizes, range(1, setting.levels + 1)
    for index, extent in sizes.items():
        symbols = [name_tile(level, index, setting.levels) for level in range(setting.levels + 2)]
        for level in levels:
            inherits = level > 1 and not owns[level - 2]
            own = symbols[level] if setting.smallest(index, level) < extent else float(extent)
            aliases[symbols[level]] = aliases[symbols[level - 1]] if inherits else own
        aliases[symbols[-1]] = float(extent)
        aliases[symbols[0]] = (
            1.0 if index in setting.fused.reduced else float(setting.smallest(index))
        )
        found = (aliases[symbols[level]] for level in levels)
        nested += pairwise(dict.fromkeys(name for name in found if isinstance(name, str)))
    names = {name for name in aliases.values() if isinstance(name, str)}
    for level in levels:
        for index, extent in sizes.items():
            if (name := name_tile(level, index, setting.levels)) in names:
                variables[name] = float(setting.smallest(index, level)), float(extent)
    tiles = [
        {
            i: Signomial.symbol(name) if isinstance(name, str) else name
            for i in sizes
            for name in [aliases[name_tile(level, i, setting.levels)]]
        }
        for level in levels
    ]
    return _Tiles(aliases, list_boxes(setting, tiles), variables, tuple(nested))


def _limits(
    setting: Setting, choice: Choice, boxes: Sequence[Box], levels: Iterable[int], *, loose: bool
) -> Iterator[tuple[str, Size]]:
    """Yield what each of some caches must hold over what it can (Eqs 5 and 9).

    A tile shares its cache with what its next loop brings before all of the old is used again:
    another slice of each tensor that the loop moves on as a whole, and the source of each copy that
    it makes again. The source of any copy needs room when the copy is first made.

    Of Eq. 9's rounding up to whole ways the program keeps that a tensor takes at least one:
    with all tensors counted by size, and with each of them in turn counted as one way. The
    rest of the rounding is left to the integer repair.
    """
    spec = setting.fused.problem.spec
    copies = (None, *setting.packed)
    for level in levels:
        place = setting.places[level]
        if level > 1 and choice[level - 2] is None:
            continue
        sides = held_bytes(setting, boxes[level], level)
        coming: Size = 0.0
        if (first := _find_first(setting, choice, level)) is not None:
            sweep = _sweep(setting, choice, level, first)
            for tensor, side, copy in zip(spec.tensors, sides, copies, strict=True):
                moved = first in tensor.letters
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
            yield f"ways_{place.name}_{one}", sum(others) * (1 / room)


def _find_first(setting: Setting, choice: Choice, level: int) -> str | None:
    """Return the index of the first loop around a level's tile that runs; None where none does."""
    sizes = setting.fused.problem.sizes
    orders = (first for first in choice[level - 1 :] if first)
    around = (i for first in orders for i in (*first, *sizes))
    return next((i for i in around if setting.smallest(i, level) < sizes[i]), None)


def _sweep(setting: Setting, choice: Choice, level: int, first: str) -> str | None:
    """Return the index along which a tile goes over the tensors that its next loop leaves.

    In the nearest tile that is the sum of a call, farther out the loops around the nearer tile
    that index such a tensor.
    """
    tensors = setting.fused.problem.spec.tensors
    kept = {i for tensor in tensors if first not in tensor.letters for i in tensor.letters}
    sizes = setting.fused.problem.sizes
    if level == 1:
        return next((i for i in setting.fused.reduced if sizes[i] > 1), None)
    running = [i for i in choice[level - 2] or "" if setting.smallest(i, level - 1) < sizes[i]]
    return next((i for i in running if i in kept), None)
