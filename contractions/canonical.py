"""One form for all problems that differ only in their letters and the order of operands.

A plan is kept under this form, so writing a contraction another way finds the same plan.

Letters are told apart by colour refinement: a letter's colour is refined by where it stands
and beside which colours, until nothing changes. The output gives each of its letters a place
of its own, so for nearly all specs this alone decides. Letters that stay tied are split by trying
each tied letter; letters that turn out to be images of each other under a symmetry of the problem
are tried once, so that many like operands cost a polynomial number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any

from tilesolve.contractions.letters import fresh
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec, Subscript, Tensor

_Operand = tuple[tuple[tuple[int, int], ...], ...]  # per subscript, (coefficient, letter number)
_Key = tuple[tuple[tuple[int, int], ...], ...]  # the same, with ranks in place of letters


@dataclass(frozen=True, slots=True)
class CanonicalForm:
    """The canonical form of a problem, and how to get there.

    Parameters
    ----------
    problem
        The canonical problem: letters renamed a, b, …, operands ordered, terms within brackets
        ordered; layouts, extents and dtype as they were.
    letters
        Pairs of an original letter and its canonical one.
    operands
        For each canonical operand, the position of the original one.

    Examples
    --------
    >>> found = canonicalize(Problem.of("mn-kn-mk", "m=2 n=3 k=4"))
    >>> str(found.problem), found.operands
    ('ab-ac-cb a=2 b=3 c=4 float64', (1, 0))
    """

    problem: Problem
    letters: tuple[tuple[str, str], ...]
    operands: tuple[int, ...]


def canonicalize(problem: Problem) -> CanonicalForm:
    """Return the canonical form of a problem.

    Examples
    --------
    >>> first = Problem.of("ij,jk->ik", "i=2 j=3 k=4")
    >>> second = Problem.of("xz-yz-xy", "x=2 y=3 z=4")
    >>> canonicalize(first).problem == canonicalize(second).problem
    True
    >>> transposed = Problem.of("xz-zy-xy", "x=2 y=3 z=4")
    >>> canonicalize(first).problem == canonicalize(transposed).problem
    False
    """
    spec = problem.spec
    number = {letter: i for i, letter in enumerate(spec.letters)}
    operands = [
        tuple(tuple((c, number[x]) for c, x in sub.terms) for sub in operand.subscripts)
        for operand in spec.operands
    ]
    # Letters of the output come first in spec.letters, and their place there is theirs alone.
    places = len(spec.output.letters)
    start = _ranks([(min(i, places), extent) for i, (_, extent) in enumerate(problem.extents)])
    ranks = _search(operands, start)

    keys = [_key(operand, ranks) for operand in operands]
    order = sorted(range(len(operands)), key=keys.__getitem__)
    named: dict[int, str] = {}
    letters = fresh(ascii_letters)
    for rank in (
        *(ranks[number[letter]] for letter in spec.output.letters),
        *(rank for i in order for subscript in keys[i] for _, rank in subscript),
    ):
        if rank not in named:
            named[rank] = next(letters)
    renamed = {letter: named[ranks[i]] for letter, i in number.items()}
    output = Tensor(tuple(Subscript(((1, renamed[x]),)) for x in spec.output.letters))
    tensors = tuple(
        Tensor(tuple(Subscript(tuple((c, named[r]) for c, r in sub)) for sub in keys[i]))
        for i in order
    )
    target = Spec(output, tensors)
    sizes = {renamed[letter]: extent for letter, extent in problem.extents}
    extents = tuple((letter, sizes[letter]) for letter in target.letters)
    padding = (replace(one, tensor=1 + order.index(one.tensor - 1)) for one in problem.padding)
    return CanonicalForm(
        Problem(
            target,
            extents,
            problem.dtype,
            tuple(padding),
            tuple(1 + order.index(at - 1) for at in problem.constant),
            aligned_output=problem.aligned_output,
            pairing=problem.pairing.of_operand(order[0]) if problem.pairing else None,
        ),
        tuple(renamed.items()),
        tuple(order),
    )


def _search(operands: Sequence[_Operand], ranks: list[int]) -> list[int]:
    """Return ranks without ties, the same for every way to write the problem.

    Of the ways to split the first tie, the one whose form is least counts. Two choices that
    lead to the same form are images of each other, so the forms below the second are known.
    """
    ranks = _refine(operands, ranks)
    tied = _tied(ranks)
    if not tied:
        return ranks
    seen: set[tuple[_Key, ...]] = set()
    leaves = []
    for letter in tied:
        split = _split(ranks, letter)
        form = _form(operands, _descend(operands, split))
        if form not in seen:
            seen.add(form)
            leaves.append(_search(operands, split))
    return min(leaves, key=lambda leaf: _form(operands, leaf))


def _descend(operands: Sequence[_Operand], ranks: list[int]) -> list[int]:
    """Return ranks without ties by splitting each tie at its first letter."""
    ranks = _refine(operands, ranks)
    while tied := _tied(ranks):
        ranks = _refine(operands, _split(ranks, tied[0]))
    return ranks


def _refine(operands: Sequence[_Operand], ranks: list[int]) -> list[int]:
    """Split ranks by where letters stand and beside which ranks, until nothing changes."""
    while len(set(ranks)) < len(ranks):
        uses: list[list[tuple[_Key, int, int]]] = [[] for _ in ranks]
        for operand in operands:
            key = _key(operand, ranks)
            for position, subscript in enumerate(operand):
                for coefficient, letter in subscript:
                    uses[letter].append((key, position, coefficient))
        finer = _ranks([(rank, sorted(use)) for rank, use in zip(ranks, uses, strict=True)])
        if finer == ranks:
            break
        ranks = finer
    return ranks


def _ranks(signatures: Sequence[Any]) -> list[int]:
    """Return the rank of each signature: how many are smaller, so that splits keep the rest."""
    ordered = sorted(range(len(signatures)), key=signatures.__getitem__)
    ranks = [0] * len(signatures)
    for position, i in enumerate(ordered):
        before = ordered[position - 1]
        same = position > 0 and signatures[before] == signatures[i]
        ranks[i] = ranks[before] if same else position
    return ranks


def _tied(ranks: list[int]) -> list[int]:
    """Return the letters that share the lowest rank which is shared, or none."""
    shared = [rank for rank in set(ranks) if ranks.count(rank) > 1]
    return [i for i, rank in enumerate(ranks) if rank == min(shared)] if shared else []


def _split(ranks: list[int], letter: int) -> list[int]:
    """Put one letter before those that it is tied with."""
    return _ranks([(rank, i != letter) for i, rank in enumerate(ranks)])


def _key(operand: _Operand, ranks: list[int]) -> _Key:
    """Return an operand with ranks for letters; the order of terms in brackets is no matter."""
    return tuple(tuple(sorted((c, ranks[x]) for c, x in subscript)) for subscript in operand)


def _form(operands: Sequence[_Operand], ranks: list[int]) -> tuple[_Key, ...]:
    """Return the whole problem as untied ranks write it; the order of operands is no matter."""
    return tuple(sorted(_key(operand, ranks) for operand in operands))
