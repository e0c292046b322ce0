"""Roles of letters: what each letter does in a contraction of two operands.

Rows and columns are letters of the output and of one operand, sums are summed over, and batches
are in the output and in all operands. This is the one partition that runs, models and reports use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tilesolve.contractions.spec import Spec

if TYPE_CHECKING:
    from tilesolve.contractions.problem import Problem

ROWS, COLUMNS, SUMS, BATCHES = range(4)
"""Numbers of the roles: positions in `Roles`, and in every table that has one entry per role."""


class Roles(NamedTuple):
    """The letters of each role.

    Rows are in the output and in the operand that has the rows; columns are in the output and
    in no operand that has the rows; sums are not in the output; batches are in the output and
    in all operands.

    Examples
    --------
    >>> Roles.of("bij", ["bik", "bkj"])
    Roles(rows=('i',), columns=('j',), sums=('k',), batches=('b',))
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    sums: tuple[str, ...]
    batches: tuple[str, ...]

    @classmethod
    def of(
        cls,
        output: Sequence[str],
        operands: Sequence[Sequence[str]],
        *,
        rows: int = 0,
        order: Iterable[str] | None = None,
    ) -> Roles:
        """Return the roles of all letters.

        Parameters
        ----------
        output, operands
            The letters of each tensor. Where there are not two operands, all others have columns.
        rows
            Which operand has the rows.
        order
            All letters, in the order that each role has; if None, batches are in the order of the
            output, all others in that of the operands, the one with the rows first.

        Examples
        --------
        >>> Roles.of("ij", ["ik", "kj"], rows=1, order="kij").rows
        ('j',)
        """
        first = operands[rows] if operands else ()
        batches = [i for i in output if all(i in letters for letters in operands)]
        found: tuple[list[str], ...] = ([], [], [], [])
        others = (i for letters in operands for i in letters)
        for letter in dict.fromkeys((*first, *others, *output) if order is None else order):
            if letter not in output:
                found[SUMS].append(letter)
            elif letter not in batches:
                found[ROWS if letter in first else COLUMNS].append(letter)
            elif order is not None:
                found[BATCHES].append(letter)
        if order is None:
            found[BATCHES].extend(dict.fromkeys(batches))
        return cls(*map(tuple, found))

    @classmethod
    def of_spec(cls, spec: Spec, *, rows: int = 0) -> Roles:
        """Return the roles of a spec's letters, each in the order in which the spec has them.

        Examples
        --------
        >>> Roles.of_spec(Spec.parse("abcd-aebf-dfce"))
        Roles(rows=('a', 'b'), columns=('c', 'd'), sums=('e', 'f'), batches=())
        """
        operands = [tensor.letters for tensor in spec.operands]
        return cls.of(spec.output.letters, operands, rows=rows, order=spec.letters)

    @classmethod
    def of_problem(cls, problem: Problem, *, rows: int = 0) -> Roles:
        """Return the roles of a problem's letters as they are run.

        A shared lane is the row: vectors along it multiply vectors. All else that the operand with
        the rows has of the output are batches then.

        Examples
        --------
        >>> from tilesolve.contractions.problem import Problem
        >>> Roles.of_problem(Problem.of("mnb-mkb-nkb", 8))
        Roles(rows=('b',), columns=('n',), sums=('k',), batches=('m',))
        """
        found, lane = cls.of_spec(problem.spec, rows=rows), shared_lane(problem)
        if lane is None:
            return found
        others = (*found.batches, *found.rows)
        batches = tuple(i for i in problem.spec.letters if i in others and i != lane)
        return cls((lane,), found.columns, found.sums, batches)

    def number(self, letter: str) -> int:
        """Return the number of a letter's role."""
        for number, letters in enumerate(self):
            if letter in letters:
                return number
        raise KeyError(letter)

    def split(self, letters: Iterable[str]) -> list[list[str]]:
        """Return loops in order, in as few groups as it takes that no role comes back in any.

        Examples
        --------
        >>> roles = Roles(rows=("k",), columns=("h", "w"), sums=("c",), batches=())
        >>> roles.split("cwkh"), roles.split("cwhk")
        ([['c', 'w', 'k'], ['h']], [['c', 'w', 'h', 'k']])
        """
        found: list[list[str]] = [[]]
        seen, latest = set[int](), -1
        for letter in letters:
            role = self.number(letter)
            if role != latest and role in seen:
                found.append([])
                seen.clear()
            found[-1].append(letter)
            seen.add(role)
            latest = role
        return found


def shared_lane(problem: Problem) -> str | None:
    """Return the letter that vectors lie along if the output and both operands have it.

    All of them end with it, unless the problem names it; no tensor has it elsewhere, too.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> layer = Problem.of("hwc-[h+r][w+s]c-rsc", 8)
    >>> shared_lane(layer), shared_lane(layer.with_vector("w"))
    ('c', None)
    >>> shared_lane(Problem.of("chw-c[h+r][w+s]-crs", 8).with_vector("c"))
    'c'
    """
    spec, letter = problem.spec, problem.lane
    if len(spec.operands) != 2 or letter is None:
        return None
    for tensor in spec.tensors:
        own = [one for one in tensor.subscripts if letter in one.letters]
        last = problem.vector is not None or own == [*tensor.subscripts[-1:]]
        if len(own) != 1 or not own[0].plain or not last:
            return None
    return letter


def lane_is_last(problem: Problem, tensor: int) -> bool:
    """Return whether a tensor ends with the letter that vectors lie along."""
    subscripts = problem.spec.tensors[tensor].subscripts
    return bool(subscripts) and subscripts[-1].letters == (problem.lane,)
