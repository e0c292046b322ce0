"""From class tiles to boxes: how many iterations of each letter a tile covers.

Memory moves in lines, so a tile should cover at least a line along every tensor's unit-stride
letter (section 5.4). Sides that do not divide the extents waste iterations at the edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import ceil, gcd, prod
from operator import mul
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import BOXES_AT_ONCE, EDGE_WASTE_POWER, MOST_PARTS, SIDES_PER_LETTER
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.machine.costs import DEFAULT_COSTS
from tilesolve.model.fused import Fused
from tilesolve.model.lines import line_waste
from tilesolve.model.loop_order import innermost_first, order_loops
from tilesolve.model.nest import Band, Nest
from tilesolve.model.pages import has_aliased_lines


def box_letters(
    problem: Problem,
    fused: Fused,
    nest: Nest,
    line: int,
    lanes: int = 1,
    *,
    avoids_aliased_stores: bool = False,
    tlb_pages: float = DEFAULT_COSTS.tlb_pages,
    most: Mapping[str, int] = MappingProxyType({}),
    ends: float = 0.0,
) -> Nest:
    """Return a nest over letters whose boxes are as large as the tiles of a nest over classes.

    Parameters
    ----------
    problem
        The problem in letters.
    fused
        The same over classes.
    nest
        A nest over classes.
    line
        Bytes of a line of memory.
    lanes
        Elements of a vector: boxes are whole vectors along the output's unit-stride letter, so
        that C can be stored in vectors.
    avoids_aliased_stores
        Whether aliased lines of C go through the caches, see `Machine.avoids_aliased_stores`.
    tlb_pages
        Pages whose addresses a core keeps translated.
    most
        Sides of some letters that no box but the whole problem exceeds.
    ends
        See `lines.bytes_at_ends`.

    Examples
    --------
    >>> from tilesolve.model.fused import fuse
    >>> problem = Problem.of("abcd-aebf-dfce", 72)
    >>> fused = fuse(problem)
    >>> classes = [("L1", "K", dict(M=144, N=8, K=256)), ("memory", "M", 5184)]
    >>> boxes = box_letters(problem, fused, Nest.of(fused.problem, classes), 64)
    >>> boxes.bands[0].box
    (('a', 2), ('b', 72), ('c', 1), ('d', 8), ('e', 16), ('f', 16))
    """
    depths, chosen = (
        _depths(problem, nest),
        _sides_of_bands(problem, fused, nest, line, lanes, ends),
    )
    for sides in chosen[:-1]:
        sides |= {letter: min(side, sides[letter]) for letter, side in most.items()}
    order = {index: innermost_first(problem, letters) for index, letters in fused.groups}
    strides = [problem.strides(t) for t in range(len(problem.spec.tensors))]
    aliased = avoids_aliased_stores and has_aliased_lines(strides[0], chosen[0], line)
    bands = []
    for at, (band, sizes) in enumerate(zip(nest.bands, chosen, strict=True)):
        within = [order[index] for index in band.order]
        loops: Sequence[str] = [letter for letters in within for letter in letters]
        if at:
            # Loops within a copy's tile never meet the pages of the tensor that was copied.
            seen = [
                steps if at > depth else {} for steps, depth in zip(strides, depths, strict=True)
            ]
            loops = order_loops(within, chosen[at - 1], sizes, seen, line, tlb_pages)
            if at == 1 and nest.output == "stream":
                loops = _along_output(problem, loops, within, sizes, aliased=aliased)
        box_of = tuple((letter, sizes[letter]) for letter in problem.spec.letters)
        bands.append(Band(band.level, tuple(loops), box_of))
    return replace(nest, bands=tuple(bands))


def _depths(problem: Problem, nest: Nest) -> list[int]:
    """Return for each tensor the number of the band whose tile its copy holds; 0 for no copy."""
    levels = [band.level for band in nest.bands]
    copies = (None, *(nest.packed or (None,) * len(problem.spec.operands)))
    return [levels.index(copy) if copy else 0 for copy in copies]


def _sides_of_bands(
    problem: Problem, fused: Fused, nest: Nest, line: int, lanes: int, ends: float
) -> list[dict[str, int]]:
    """Return for each band the sides of its letters."""
    # Where a tile covers a class, the sides of its letters are known before any is decided.
    boxes = [dict(band.box) for band in nest.bands]
    chosen = [
        {
            letter: max(1, problem.sizes[letter])
            for index, letters in fused.groups
            if box[index] >= fused.problem.sizes[index]
            for letter in letters
        }
        for box in boxes
    ]
    vector = {problem.lane}
    tensors, elements = problem.spec.tensors, max(1, line // problem.itemsize)
    depths = _depths(problem, nest)
    # C's unit-stride letters first: whether a run of it goes on into another class depends on them.
    place = {letter: at for at, letter in enumerate(problem.spec.output.letters)}
    groups = sorted(
        fused.groups, key=lambda group: -max(place.get(letter, -1) for letter in group[1])
    )
    for index, letters in groups:
        inner = {i: max(1, min(lanes, problem.sizes[i])) if i in vector else 1 for i in letters}
        for at, box in enumerate(boxes):
            size, met, whole = box[index], list[Tensor](), dict[str, int]()
            if len(letters) > 1 and letters[0] not in chosen[at]:
                # Tiles within a copy's never meet the copied tensor's lines, but leave room for a
                # line in that tile; register boxes along C's lines for half of one.
                cuts = at == 0 and not vector.isdisjoint(letters)
                room = elements * size / (2 if cuts else 1)
                met = [
                    tensor
                    for tensor, depth in zip(tensors, depths, strict=True)
                    if at >= depth or boxes[depth][index] < room
                ]
                whole = {} if at else _whole_blocks(problem, letters, depths, min(lanes, size))
            weight = EDGE_WASTE_POWER if at or index in fused.reduced else 1.0
            inner = shape_box(
                problem, letters, inner, size, line, met, weight, chosen[at], whole, ends
            )
            chosen[at] |= inner
    return chosen


def _whole_blocks(
    problem: Problem, letters: Sequence[str], depths: Sequence[int], block: int
) -> dict[str, int]:
    """Return letters of which a register tile should have one iteration, or so many at least.

    An operand that is contiguous along a letter is packed in vectors along it, or in transposed
    blocks, where each micro-panel has one iteration; in between element by element. Where C's
    vectors fill micro-panels, each has one of all other letters.
    """
    lane = problem.lane
    if lane is not None and lane in letters and problem.sizes[lane] >= block:
        return {}
    copied = (t for t, depth in zip(problem.spec.operands, depths[1:], strict=True) if depth)
    units = {t.subscripts[-1].letters[0] for t in copied if t.subscripts and t.subscripts[-1].plain}
    return dict.fromkeys((units - {lane}) & {*letters}, block)


def _along_output(
    problem: Problem,
    loops: Sequence[str],
    classes: Sequence[Sequence[str]],
    sizes: Mapping[str, int],
    *,
    aliased: bool,
) -> list[str]:
    """Return the loops of the nearest tile for C with non-temporal stores, class by class.

    What lies side by side in C is written together: letters of the end of C go innermost. Where
    aliased lines go through the caches, the vectors' letter comes last if the tile cuts it, so that
    all steps in between are alike, which hardware can follow.
    """
    place = {letter: at for at, letter in enumerate(problem.spec.output.letters)}
    cut = {i for i in problem.spec.output.letters[-1:] if aliased and sizes[i] < problem.sizes[i]}
    return [
        i
        for letters in classes
        for i in sorted(
            (letter for letter in loops if letter in letters),
            key=lambda letter: (letter in cut, -place.get(letter, 0)),
        )
    ]


def shape_box(
    problem: Problem,
    letters: Sequence[str],
    inner: Mapping[str, int],
    size: int,
    line: int,
    tensors: Sequence[Tensor],
    weight: float = 1.0,
    known: Mapping[str, int] = MappingProxyType({}),
    blocks: Mapping[str, int] = MappingProxyType({}),
    ends: float = 0.0,
) -> dict[str, int]:
    """Return the sides of a box of at most so many iterations, around a smaller box.

    Of boxes whose sides are multiples of the inner ones, or whole extents, the one is taken that
    has the least product of wastes: iterations below the size, edges cut off at the extents, parts
    of lines. Of more than `BOXES_AT_ONCE`, the sides nearest to unit stride are decided first.

    Parameters
    ----------
    problem
        The problem in letters.
    letters
        The letters of one class.
    inner
        Sides of the box inside it.
    size
        Iterations to cover.
    line
        Bytes of a line of memory.
    tensors
        Those whose lines the box is read from or written to.
    weight
        Power of the waste by size and edges, where that by lines has the power 1.
    known
        Sides of the tile's letters of other classes, as far as they are decided.
    blocks
        Letters whose sides are 1, or so many at least.
    ends
        Bytes that each run of C costs beyond its own.

    Examples
    --------
    >>> problem = Problem.of("abcd-aebf-dfce", 72)
    >>> shape_box(problem, ("e", "f"), {"e": 1, "f": 1}, 256, 64, problem.spec.tensors)
    {'e': 16, 'f': 16}
    """
    sizes = problem.sizes
    extents = {i: max(1, sizes[i]) for i in letters}
    if size >= prod(extents.values()):
        return extents
    if len(letters) == 1:
        return {i: max(size, inner[i]) for i in letters}
    within, least = (tuple(sides.get(i, 1) for i in letters) for sides in (inner, blocks))
    decided = tuple(sorted(known.items()))
    wanted = _Wanted(
        problem, tuple(letters), within, size, line, tuple(tensors), weight, decided, least, ends
    )
    return dict(zip(letters, _choose_sides(wanted), strict=True))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What `shape_box` is asked for: by letter the inner sides, and the least ones besides 1."""

    problem: Problem
    letters: tuple[str, ...]
    inner: tuple[int, ...]
    size: int
    line: int
    tensors: tuple[Tensor, ...]
    weight: float
    known: tuple[tuple[str, int], ...]
    least: tuple[int, ...]
    ends: float


@lru_cache(maxsize=4096)
def _choose_sides(wanted: _Wanted) -> tuple[int, ...]:
    """Return the sides of a box, kept: one plan's candidates need each about three times."""
    problem, letters, size = wanted.problem, wanted.letters, wanted.size
    extents, line = {i: max(1, problem.sizes[i]) for i in letters}, wanted.line
    steps = line_steps(problem, line, wanted.tensors, parts=2)
    found = dict(zip(letters, wanted.inner, strict=True))
    options = {
        i: [
            side
            for side in _sides_to_try(inner, extents[i], size, steps.get(i, 1))
            if side in (1, inner) or side >= least
        ]
        for i, inner, least in zip(letters, wanted.inner, wanted.least, strict=True)
    }
    for some in _letter_groups(letters, options, problem.spec.tensors):
        # Each letter has an axis of its own.
        sides: dict[str, NDArray[np.float64]] = {
            i: np.array(options[i], dtype=float).reshape(-1, *(1,) * after)
            for i, after in zip(some, reversed(range(len(some))), strict=True)
        }
        product = reduce(mul, sides.values(), prod(found[i] for i in letters if i not in some))
        waste = np.where(product <= size, size / product, np.inf)
        for i in some:
            waste = waste * (np.ceil(extents[i] / sides[i]) * sides[i] / extents[i])
        waste = waste if wanted.weight == 1 else waste**wanted.weight
        others = {**dict(wanted.known), **{i: found[i] for i in letters if i not in some}}
        waste = waste * line_waste(problem, sides, others, line, wanted.tensors, wanted.ends)
        least = waste.min()
        if np.isfinite(least):
            places = np.unravel_index(np.flatnonzero(waste == least), waste.shape)
            equals = [
                {i: options[i][at] for i, at in zip(some, one, strict=True)}
                for one in zip(*(at.tolist() for at in places), strict=True)
            ]
            if len(equals) > 1:
                ranks = [_preference(problem, one, others, line) for one in equals]
                equals = [equals[ranks.index(min(ranks))]]
            found |= equals[0]
    return tuple(found[i] for i in letters)


def _preference(
    problem: Problem, sides: Mapping[str, int], others: Mapping[str, int], line: int
) -> tuple[bool, int]:
    """Return a key by which the first of boxes is taken that waste as much.

    Along a letter in which a tensor is contiguous, packing copies vectors instead of transposing
    them, unless lines of C would alias then. Otherwise the last letter, nearer to unit stride in
    the output, is cut last.
    """
    *_, last = sides
    strides = problem.strides(0)
    along = any(sides[i] == prod(sides.values()) for i in unit_letters(problem) & sides.keys())
    tile = {**dict.fromkeys(strides, 1), **others, **sides}
    return not along or has_aliased_lines(strides, tile, line), -sides[last]


def unit_letters(problem: Problem) -> set[str]:
    """Return the letters along which a tensor is contiguous."""
    return {t.subscripts[-1].terms[-1][1] for t in problem.spec.tensors if t.subscripts}


def _letter_groups(
    letters: Sequence[str], options: Mapping[str, Sequence[int]], tensors: Sequence[Tensor]
) -> list[list[str]]:
    """Return the letters whose sides are decided together, those nearest to unit stride first."""
    if prod(len(options[i]) for i in letters) <= BOXES_AT_ONCE:
        return [list(letters)]
    ends = [tensor.letters[::-1] for tensor in tensors]
    near = {i: min(end.index(i) for end in ends if i in end) for i in letters}
    found: list[list[str]] = [[]]
    for letter in sorted(letters, key=near.__getitem__):
        if prod(len(options[i]) for i in (*found[-1], letter)) > BOXES_AT_ONCE:
            found.append([])
        found[-1].append(letter)
    return [sorted(some, key=letters.index) for some in found]


def line_steps(
    problem: Problem, line: int, tensors: Sequence[Tensor], *, parts: int = 1
) -> dict[str, int]:
    """Return for each letter along which tensors lie in whole lines the elements of one.

    Or of the largest part that they lie in wholes of, if so many of these make a line at most.
    """
    elements, found = max(1, line // problem.itemsize), dict[str, int]()
    for tensor in tensors:
        if tensor.subscripts and tensor.subscripts[-1].plain:
            letter = tensor.subscripts[-1].letters[0]
            even = gcd(problem.sizes[letter], elements)
            if parts * even >= elements:
                found[letter] = even
    return found


@lru_cache(maxsize=4096)
def _sides_to_try(inner: int, extent: int, size: int, line: int) -> tuple[int, ...]:
    """Return sides to consider: multiples of the inner one that cut an extent well, or all of it.

    These are the divisors and powers of two among the multiples, those that cut the extent into few
    near-equal parts, and the extent. Where tensors lie in lines of so many iterations, longer sides
    cover whole lines: vectors in two of them take packing up to twice as long.
    """
    most = max(1, min(extent, size) // inner)
    parts = 0 if extent % inner else extent // inner
    times = {count for count in range(1, min(most, parts, MOST_PARTS) + 1) if not parts % count}
    times |= {2**power for power in range(most.bit_length())}
    whole = line if line % inner == 0 else inner
    near = [ceil(extent / parts) for parts in range(1, SIDES_PER_LETTER)]
    times |= {ceil(side / step) * step // inner for side in near for step in {inner, whole}}
    found = {min(extent, inner * count) for count in times if count <= most}
    found = {side for side in found if side < whole or side == extent or side % whole == 0}
    sides = sorted(found | ({extent} if extent <= size else set()))
    step = max(1, ceil(len(sides) / SIDES_PER_LETTER))
    return tuple(sorted({sides[0], *sides[::-1][::step]}))
