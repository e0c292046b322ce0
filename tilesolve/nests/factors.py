"""Sums of products of three and more elements as statements that multiply fewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np

from tilesolve.constants.nests import NEST_FACTORS
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Read, Reduce, Term
from tilesolve.nests.split import new_name


def yield_factored(computation: Computation) -> Iterator[Computation]:
    """Yield a statement that sums up products of many elements as those that multiply fewer.

    Factors that no letter of the sum moves are multiplied behind it. Of others two are multiplied
    before, and summed up over letters that nothing else has.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> whole = parse_stages("C[i,j] += A[i,k] * B[k,j] * w[k] * D[i,j]")
    >>> for found in yield_factored(bind_stages(whole, 8)):
    ...     print(*found.stages, sep="; ")
    C_factor[i,k] = A[i,k] * w[k]; C[i,j] = sum(C_factor[i,k] * B[k,j], k) * D[i,j]
    C_factor[k,j] = B[k,j] * w[k]; C[i,j] = sum(A[i,k] * C_factor[k,j], k) * D[i,j]
    """
    (stage,), dtypes = computation.stages, computation.dtypes
    reduced = stage.reduction
    if reduced is None or reduced.name != "add" or stage.where or stage.update is not None:
        return
    factors = list(_list_factors(reduced.term))
    reads = [one for one in factors if isinstance(one, Read)]
    kinds = {dtypes[name] for name in (stage.name, *(one.array for one in reads))}
    plain = len(reads) == len(factors) and all(_letters(one) is not None for one in reads)
    if not (2 < len(factors) <= NEST_FACTORS and plain and len(kinds) == 1):
        return
    (kind,) = kinds
    if np.dtype(kind).kind not in "fc":
        return
    behind = [one for one in reads if not set(one.letters) & set(reduced.over)]
    within = [one for one in reads if one not in behind]
    if len(within) < 2:
        return
    if len(within) == 2:
        yield _bind(computation, [_sum_up(stage, reduced, within, behind)])
        return
    for first, second in combinations(range(len(within)), 2):
        rest = [one for at, one in enumerate(within) if at not in (first, second)]
        made = _multiply(computation, (within[first], within[second]), rest)
        if made is not None:
            over = tuple(x for x in reduced.over if _moves(x, rest, made))
            product = [*within[:first], made.target, *within[first + 1 : second]]
            product += within[second + 1 :]
            yield _bind(
                computation, [made, _sum_up(stage, replace(reduced, over=over), product, behind)]
            )


def _multiply(
    computation: Computation, pair: tuple[Read, Read], rest: Sequence[Read]
) -> Stage | None:
    """Return the statement that multiplies two factors; None if it makes more than arrays have."""
    (stage,) = computation.stages
    needed = {*stage.output, *(x for one in rest for x in one.letters)}
    larger, smaller = sorted(pair, key=lambda one: -len(set(one.letters)))
    letters = tuple(dict.fromkeys((*larger.letters, *smaller.letters)))
    over = tuple(x for x in letters if x not in needed)
    axes = [x for x in letters if x in needed]
    if not over and not set(smaller.letters) <= set(larger.letters):
        # Letters that are summed up later lie as in what they are multiplied by.
        order = [x for one in rest for x in one.letters if x not in stage.output]
        axes = [*(x for x in dict.fromkeys(order) if x in axes)]
        axes += [x for x in letters if x not in axes]
    size = prod(computation.sizes[x] for x in axes)
    if size > max(prod(one.shape) for one in computation.arrays):
        return None
    term: Term = larger * smaller
    name = new_name(f"{stage.name}_factor", set(computation.dtypes))
    term = Reduce("add", over, term) if over else term
    kind = computation.dtypes[stage.name]
    return Stage(name, tuple(map(Affine.letter, axes)), term, kind)


def _sum_up(
    stage: Stage, reduced: Reduce, product: Sequence[Read], behind: Sequence[Read]
) -> Stage:
    """Return a statement that sums up a product, and multiplies the sum by other elements."""
    term: Term = replace(reduced, term=_product(product))
    if behind:
        term = term * _product(behind)
    return replace(stage, term=term, augmented=stage.augmented and not behind)


def _product(factors: Sequence[Read]) -> Term:
    found: Term = factors[0]
    for one in factors[1:]:
        found = found * one
    return found


def _bind(computation: Computation, stages: Sequence[Stage]) -> Computation:
    shapes = {array.name: array.shape for array in computation.arrays}
    return bind_stages(stages, computation.sizes, computation.dtypes, shapes, computation.outputs)


def _moves(letter: str, rest: Sequence[Read], made: Stage) -> bool:
    """Return whether a letter is one of what is multiplied last."""
    return letter in made.output or any(letter in one.letters for one in rest)


def _list_factors(term: Term) -> Iterator[Term]:
    """Yield what a term multiplies."""
    if isinstance(term, Apply) and term.name == "multiply":
        for one in term.arguments:
            yield from _list_factors(one)
    else:
        yield term


def _letters(read: Read) -> tuple[str, ...] | None:
    """Return the letter of each axis; None where one is no letter alone."""
    found = [one.plain if isinstance(one, Affine) else None for one in read.subscripts]
    return tuple(x for x in found if x) if all(found) else None
