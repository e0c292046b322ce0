"""The variants of convolutions that PolyDL generates (Fig. 8 of the paper, its loops reordered).

A microkernel takes a row of the output and a block of filters and of channels, of 16, 32 or 64
each. Loops go over blocks, rows of the output and taps in four orders, and in two more that cut the
rows into tiles: as many as there are, halved while that divides them. Images are outermost; threads
divide them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import COLUMNS, ROWS
from tilesolve.model.fused import Fused
from tilesolve.model.nest import REGISTER, Band, Nest, Output
from tilesolve.model.price import list_levels
from tilesolve.planning.geometric.strategy import setting_for, with_nest
from tilesolve.planning.geometric.tilings import Chain, feasible
from tilesolve.planning.runner import roles_of
from tilesolve.planning.setting import Setting
from tilesolve.planning.slicing.nest import SlicedLayer
from tilesolve.planning.solution import Solution, class_tiles
from tilesolve.ranking.polydl import pick_some, smaller_microkernel

Box = dict[str, int]
"""Iterations of each letter."""

BLOCKS = (64, 32, 16)
"""Filters and channels of a block: the first that divides both."""

UNTILED = (
    ("images", "filters", "channels", "height", "taps"),
    ("images", "height", "taps", "filters", "channels"),
    ("images", "filters", "taps", "channels", "height"),
    ("images", "channels", "taps", "height", "filters"),
)
"""Orders of all loops around the microkernel, outermost first; Fig. 8 has the first one."""

BETWEEN = ("images", "height")
"""Loops around a tile of rows of the output, outermost first."""

WITHIN = (
    ("filters", "channels", "height", "taps"),
    ("height", "filters", "channels", "taps"),
)
"""Orders of the loops in such a tile, outermost first."""


@dataclass(frozen=True, slots=True)
class BlockedLayer:
    """A convolution by what its letters are to PolyDL.

    `letters` are those of each loop around the microkernel, innermost first; `width` is the
    letter of the microkernel's rows of the output; `blocks` are the iterations of filters and
    channels in a block.

    Examples
    --------
    >>> sizes = "n=4 k=96 c=64 h=8 w=8 r=3 s=3"
    >>> layer = BlockedLayer.of(Problem.of("nkhw-nc[h+r][w+s]-kcrs", sizes))
    >>> layer.letters["taps"], layer.width, layer.blocks
    (('s', 'r'), 'w', (('k', 32), ('c', 32)))
    """

    letters: dict[str, tuple[str, ...]]
    width: str
    blocks: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, problem: Problem) -> BlockedLayer:
        """Return a problem as a layer: filters and channels are blocked already, or a letter each.

        Raises
        ------
        PlanError
            If it is no convolution of two dimensions, or no block divides its channels.
        """
        layer = SlicedLayer.of(problem)
        operand = problem.spec.operands[layer.input_operand]
        windows = [one.letters for one in operand.subscripts if not one.plain]
        moving = [i for letters in windows for i in letters if i in layer.windows]
        sides = layer.filters, layer.channels
        dimensions = 2
        blocked = {len(side) for side in sides}
        if len(moving) != dimensions or layer.groups or blocked not in ({1}, {2}):
            raise PlanError(
                "PolyDL's rule gives variants of convolutions of two dimensions without groups, "
                f"such as 'nkhw-nc[h+r][w+s]-kcrs', got {str(problem.spec)!r}"
            )
        height, width = moving
        letters = {
            "images": tuple(i for i in layer.windows if i not in moving),
            "height": (height,),
            "filters": layer.filters,
            "channels": layer.channels,
            "taps": tuple(sorted(layer.taps, key=lambda i: i in windows[0])),
        }
        return cls(letters, width, tuple((side[0], _block(problem, sides, side)) for side in sides))

    def call(self, sizes: Box) -> Box:
        """Return the box of the microkernel."""
        return {**dict.fromkeys(sizes, 1), self.width: sizes[self.width], **dict(self.blocks)}

    def loops(self, order: Sequence[str]) -> list[str]:
        """Return the letters of loops that are given outermost first, innermost first."""
        return [letter for name in reversed(order) for letter in self.letters[name]]


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a variant.

    Parameters
    ----------
    within, between
        Loops in a tile of rows of the output and around it, outermost first.
    rows
        Rows of the output in a tile: all, where no loop is around it.
    """

    within: tuple[str, ...]
    between: tuple[str, ...]
    rows: int


def polydl_loops(problem: Problem) -> list[Loops]:
    """Return the loops that PolyDL's rule gives for a convolution, in its order.

    In the first order of tiles, a tile of all rows gives the loops of Fig. 8, and is left out. In
    the second, tiles of any rows run alike; the paper counts them, so that there are 5 to 21.

    Raises
    ------
    PlanError
        If the problem is no such convolution.

    Examples
    --------
    >>> sizes = "n=1 k=64 c=64 h=56 w=56 r=3 s=3"
    >>> len(polydl_loops(Problem.of("nkhw-nc[h+r][w+s]-kcrs", sizes)))
    13
    """
    layer = BlockedLayer.of(problem)
    extent = problem.sizes[layer.letters["height"][0]]
    tiles, rows = [], extent
    while rows:
        tiles += [rows] if extent % rows == 0 else []
        rows //= 2
    first, second = WITHIN
    return [
        *(Loops(order[1:], order[:1], extent) for order in UNTILED),
        *(Loops(first, BETWEEN, rows) for rows in tiles if rows < extent),
        *(Loops(second, BETWEEN, rows) for rows in tiles),
    ]


def vary_convolution(best: Solution, count: int, seed: int) -> Iterator[tuple[Solution, bool]]:
    """Yield PolyDL's variants of a convolution, and whether their tiles keep all limits.

    Operands that are packed are packed for an image at a time: the paper's lie in blocks before.

    There are `count` variants at most; `seed` draws them where there are more.

    Raises
    ------
    PlanError
        If the problem is no such convolution, threads do not divide its images, or the machine has
        fewer tiles.
    """
    layer, every = BlockedLayer.of(best.problem), polydl_loops(best.problem)
    base, register = _base(best, layer)
    share = base.share
    setting = _over_letters(setting_for(base), share)
    caches = [place.name for place in list_levels(best.machine, best.threads)[1:]]
    tiled = [place.name for place in setting.places[1:]]
    for loops in pick_some(every, count, seed):
        nest = _nest(setting, share, layer, loops, register, caches)
        levels, choice, classes = class_tiles(nest, share)
        found = with_nest(base, setting, choice, dict(classes), nest)
        first = dict(zip(levels, choice, strict=True))
        tiles = [band for band in nest.bands if band.level in tiled]
        chains: dict[str, Chain] = {i: tuple(one[i] for one in tiles) for i in share.spec.letters}
        yield found, feasible(setting, tuple(first[name] for name in tiled), chains)


def _base(best: Solution, layer: BlockedLayer) -> tuple[Solution, Box]:
    """Return what all variants share, and the box of a register tile, which is in a microkernel."""
    output: Output = "accumulate" if best.output == "accumulate" else "store"
    base = replace(best, split=_divided(best, layer), output=output)
    call = layer.call(dict(base.share.sizes))
    register = {i: min(best.nest.bands[0][i], side) for i, side in call.items()}
    register |= {i: side for i, side in layer.blocks if i in layer.letters["channels"]}
    roles = roles_of(base.share)
    rows, columns = (prod(register[i] for i in roles[role]) for role in (ROWS, COLUMNS))
    return replace(base, microkernel=smaller_microkernel(base, rows, columns)), register


def _block(problem: Problem, sides: Sequence[Sequence[str]], side: Sequence[str]) -> int:
    """Return the iterations of filters, or channels, in a block."""
    sizes = [problem.sizes[letters[0]] for letters in sides]
    if len(side) > 1:
        return problem.sizes[side[0]]
    found = next((block for block in BLOCKS if all(size % block == 0 for size in sizes)), None)
    if found is None:
        said = " and ".join(f"{letters[0]}={problem.sizes[letters[0]]}" for letters in sides)
        raise PlanError(f"PolyDL's blocks are of 64, 32 or 16, none divides {said}")
    return found


def _divided(best: Solution, layer: BlockedLayer) -> str | None:
    """Return the letter of the images that threads divide; None for one thread."""
    sizes, images, threads = best.problem.sizes, layer.letters["images"], best.threads
    if threads == 1:
        return None
    found = next((i for i in images if sizes[i] % threads == 0), None)
    if found is None:
        said = ", ".join(f"{i}={sizes[i]}" for i in images)
        what = f"{threads} do not divide {said}" if said else "no letter is one of images"
        raise PlanError(f"PolyDL's threads divide images, {what}: got {threads} threads")
    return found


def _over_letters(setting: Setting, share: Problem) -> Setting:
    """Return a setting whose indices are letters, not classes."""
    fused = setting.fused
    first = {index: letters[0] for index, letters in fused.groups}
    rows = share.lane if share.lane in fused.letters(fused.rows or "") else None
    sums = tuple(i for i in share.spec.letters if i not in share.spec.output.letters)
    groups = tuple((letter, (letter,)) for letter in share.spec.letters)
    found = Fused(share, groups, rows, first.get(fused.columns or ""), sums)
    return replace(setting, fused=found, lines=(), runs=(), even=())


def _nest(
    setting: Setting,
    share: Problem,
    layer: BlockedLayer,
    loops: Loops,
    register: Box,
    caches: Sequence[str],
) -> Nest:
    """Return a variant's nest: a microkernel's tile, one of rows of the output, one of an image."""
    sizes = dict(share.sizes)
    tiles = ("microkernel", "rows", "image")
    if len(caches) < len(tiles):
        raise PlanError(
            f"PolyDL's variants of convolutions have {len(tiles)} tiles, the machine has "
            f"{len(caches)} for {share}"
        )
    call = layer.call(sizes)
    image = {i: 1 if i in layer.letters["images"] else size for i, size in sizes.items()}
    height, *_ = layer.letters["height"]
    middle = len(caches) - 2
    roles = roles_of(share)
    inside = [i for i in (*roles.rows, *roles.columns, *roles.sums) if call[i] > 1]
    within, between = layer.loops(loops.within), layer.loops(loops.between)
    boxes = [register, call, *[{**image, height: loops.rows}] * middle, image, sizes]
    orders = [inside, inside, *[within] * middle, between, between]
    levels = (REGISTER, *caches, setting.places[-1].server)
    bands = tuple(
        Band(level, (*order, *(i for i in sizes if i not in order)), tuple(box.items()))
        for level, order, box in zip(levels, orders, boxes, strict=True)
    )
    return Nest(bands, setting.packed, setting.output, setting.kinds, setting.scattered)
