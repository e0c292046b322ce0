"""The class of a statement: what its tiles are made for."""

from __future__ import annotations

from enum import StrEnum

from tilesolve.constants.nests import NEST_CONTRACTION_FLOPS
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.contraction import find_contraction
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.programs.layout import is_pixel
from tilesolve.nests.cuts import largest_part


class NestClass(StrEnum):
    """What tiles of a nest are made for.

    Two of them say that another part of the library has the whole statement: `CONTRACTION` (a
    plan) and `MOVE` (a transpose). `FUSED` are several statements that run together.
    """

    CONTRACTION = "contraction"
    MOVE = "move"
    TEMPORAL = "temporal"
    SPATIAL = "spatial"
    NO_TRANSFORM = "no transform"
    FUSED = "fused"


def tile_class(stage: Stage) -> NestClass:
    """Return the class by which tiles are chosen: that of the thesis's figure 4.2.

    Letters on the right that the output lacks bring elements back: temporal. Else a read whose
    last axis has another letter than the output's walks across lines: spatial. Else all runs are
    contiguous, and tiles would cut them. Statements with computed positions, and those that read
    nothing, are left as they are.
    """
    if (
        not stage.term.reads
        or stage.update is not None
        or any(read.plain is None for read in stage.reads)
    ):
        return NestClass.NO_TRANSFORM
    if set(stage.term.letters) != set(stage.output):
        return NestClass.TEMPORAL
    column = stage.output[-1] if stage.output else None
    if any(_crosses(read, column) for read in stage.reads):
        return NestClass.SPATIAL
    return NestClass.NO_TRANSFORM


def _crosses(read: Read, column: str | None) -> bool:
    """Return whether a read moves along the column letter by another axis than its last."""
    last = read.subscripts[-1] if read.subscripts else None
    if not isinstance(last, Affine) or column in last.letters:
        return False
    return column in read.letters


def is_contraction(
    computation: Computation, stage: Stage, least_flops: int = NEST_CONTRACTION_FLOPS
) -> bool:
    """Return whether most of a statement is a contraction that is large enough for a plan.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("C[i,j] = max(sum(A[i,k] * B[k,j], k), 0)")
    >>> [is_contraction(bind_stages(stages, size), stages[0]) for size in (16, 256)]
    [False, True]
    """
    found, _ = find_contraction(largest_part(computation, stage), computation.dtypes)
    if found is None or not found.reuses:
        return False
    return found.flops(computation, computation.dtypes[stage.name]) >= least_flops


def find_move(stage: Stage, computation: Computation) -> tuple[int, ...] | None:
    """Return the axes of the input in the output's order, where a statement moves it as it is.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("B[x,y] = A[y,x]"), 8)
    >>> find_move(found.stages[0], found)
    (1, 0)
    """
    read = stage.term
    if not isinstance(read, Read) or stage.where or stage.update is not None:
        return None
    letters = [one.plain if isinstance(one, Affine) else None for one in read.subscripts]
    if sorted(map(str, letters)) != sorted(stage.output):
        return None
    axes = tuple(letters.index(letter) for letter in stage.output)
    moves = axes != tuple(range(len(axes)))
    same = computation.dtypes[read.array] == computation.dtypes[stage.name]
    whole = computation.array(read.array).shape == tuple(
        computation.sizes[letter] for letter in letters if letter
    )
    return axes if moves and same and whole else None


def find_channels(stage: Stage, computation: Computation) -> tuple[str, str] | None:
    """Return the letter of a pixel's channels, and that of pixels side by side; None if none are.

    The output or a read has pixels, all of whose channels are computed, another array has them in
    another way, and nothing else is read across lines.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("P[c,y,x] = I[y,x,c]"), {"c": 3, "y": 9, "x": 8})
    >>> find_channels(found.stages[0], found)
    ('c', 'x')
    """
    reads = stage.reads
    if stage.update is not None or stage.summed or any(one.plain is None for one in reads):
        return None
    if all(one.subscripts == stage.target.subscripts for one in reads):
        return None
    for element in (stage.target, *reads):
        if not has_pixels(element, computation):
            continue
        along, channel = (
            x.plain if isinstance(x, Affine) else None for x in element.subscripts[-2:]
        )
        others = [x for x in stage.output if x != channel]
        if channel is None or channel not in stage.output or others[-1:] != [along]:
            continue
        whole = computation.sizes[channel] == computation.array(element.array).shape[-1]
        bounded = any(channel in one.letters for one in stage.where)
        crossed = (one for one in reads if _crosses(one, along))
        if whole and not bounded and all(has_pixels(one, computation) for one in crossed):
            return channel, others[-1]
    return None


def has_pixels(element: Read, computation: Computation) -> bool:
    """Return whether an array's last axis is short, and what is behind it walks a letter alone."""
    shape = computation.array(element.array).shape
    if len(shape) < 2 or not is_pixel(shape[-1]):
        return False
    along = element.subscripts[-2]
    return isinstance(along, Affine) and along.plain is not None


def is_written_once(stage: Stage) -> bool:
    """Return whether each element of the output is written by one iteration and read by none.

    Then it may go past the caches. A sum that is kept in registers is written once as well; that
    is the program's to know.
    """
    return stage.update is None and not stage.in_place and not stage.summed
