"""From letters to classes: the smaller problem that the solver sees.

Within a class only products of extents enter a volume, so each class becomes one index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilesolve.contractions.letters import fresh
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import Roles, shared_lane
from tilesolve.contractions.spec import Spec, Subscript, Tensor


@dataclass(frozen=True, slots=True)
class Fused:
    """A problem over classes, and which letters each of its indices stands for.

    Parameters
    ----------
    problem
        One index per class; the layout within a class is forgotten.
    groups
        Index of the fused problem and the letters of its class, as pairs.
    rows, columns
        The indices that the register tile's MR and NR run along; None where there is none.
        Rows are where vectors lie along, which mostly is the output's unit-stride index; if it is
        one of batches, both operands have to be contiguous along it.
    reduced
        Indices that are summed over.

    Examples
    --------
    >>> fused = fuse(Problem.of("abcd-aebf-dfce", 72))
    >>> str(fused.problem.spec), fused.rows, fused.problem.sizes["M"]
    ('MN-MK-NK', 'N', 5184)
    """

    problem: Problem
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    rows: str | None
    columns: str | None
    reduced: tuple[str, ...]

    def letters(self, index: str) -> tuple[str, ...]:
        """Return the letters of an index's class."""
        return dict(self.groups)[index]


@lru_cache(maxsize=64)
def fuse(problem: Problem) -> Fused:
    """Return the problem over classes.

    Examples
    --------
    >>> str(fuse(Problem.of("khw-c[h+r][w+s]-kcrs", 8)).problem.spec)
    'Nhw-K[h+r][w+s]-NKrs'
    """
    classes = problem.classes
    names: dict[str, str] = {}
    single = {c.name for c in classes if len(c.name) == 1}
    free = fresh("MNKBPQUVWXYZ", taken=single)
    for group in classes:
        names[group.name] = group.name if len(group.name) == 1 else next(free)
    index_of = {i: names[group.name] for group in classes for i in group.letters}
    spec = problem.spec
    lane = shared_lane(problem)
    tensors = [_fused(tensor, index_of, lane) for tensor in spec.tensors]
    fused = Spec(tensors[0], tuple(tensors[1:]))
    sizes = {names[group.name]: prod(problem.sizes[i] for i in group.letters) for group in classes}
    roles = Roles.of(fused.output.letters, [t.letters for t in fused.operands], order=fused.letters)
    free_of = [i for i in fused.letters if i in (*roles.rows, *roles.columns)]
    last = index_of[problem.lane] if problem.lane else None
    largest = max(free_of, key=sizes.__getitem__, default=None)
    rows = last if last in free_of or lane else largest
    others = [i for i in free_of if not _share_tensors(i, rows, tensors)]
    return Fused(
        Problem.of(fused, sizes, problem.dtype).with_vector(rows),
        tuple((names[group.name], group.letters) for group in classes),
        rows,
        _columns(fused, others, sizes),
        roles.sums,
    )


def fuse_share(problem: Problem) -> Fused:
    """Return the problem over classes; extents of 0 count as 1, since tiles have logarithms."""
    return fuse(problem.part({letter: max(1, extent) for letter, extent in problem.sizes.items()}))


def _columns(fused: Spec, others: Sequence[str], sizes: Mapping[str, int]) -> str | None:
    """Return the index of a register tile's columns: the largest, or one that is half as large.

    Of those the one that comes last in the output, whose elements lie closest together there.
    """
    largest = max((sizes[i] for i in others), default=0)
    able = [i for i in others if 2 * sizes[i] >= largest]
    return max(able, key=fused.output.letters.index, default=None)


def _fused(tensor: Tensor, index_of: dict[str, str], lane: str | None) -> Tensor:
    """Return a tensor over classes: each class once, where its first letter stands.

    That of a letter that all tensors are contiguous along comes last.
    """
    made: dict[tuple[tuple[int, str], ...], None] = {}
    for subscript in tensor.subscripts:
        made[tuple((c, index_of[i]) for c, i in subscript.terms)] = None
    last = ((1, index_of[lane]),) if lane else ()
    return Tensor(tuple(Subscript(terms) for terms in sorted(made, key=last.__eq__)))


def _share_tensors(index: str, other: str | None, tensors: list[Tensor]) -> bool:
    """Return whether two indices stand in exactly the same tensors."""
    return other is not None and all(
        (index in tensor.letters) == (other in tensor.letters) for tensor in tensors
    )
