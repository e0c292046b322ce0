"""Which statements are contractions as a whole, so that a plan computes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_letters

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec, Subscript, Tensor
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Param, Read, Reduce, Term


@dataclass(frozen=True, slots=True)
class Contraction:
    """``output = alpha · Σ product of operands + beta · output``.

    Parameters
    ----------
    spec
        In letters of one character.
    operands
        The array of each operand; one may stand there twice.
    letters
        Pairs of a letter of the spec and the statement's letter.
    alpha, beta
        Numbers and parameters that multiply the sum, and what lies in the output; None: 1, and
        nothing is added.
    """

    spec: Spec
    operands: tuple[str, ...]
    letters: tuple[tuple[str, str], ...]
    alpha: Term | None = None
    beta: Term | None = None

    def problem(self, computation: Computation) -> Problem:
        """Return it at a computation's extents.

        An array may be larger than what is read of it: a call takes its first elements then.
        """
        sizes = {short: computation.sizes[letter] for short, letter in self.letters}
        return Problem.of(self.spec, sizes, computation.output.dtype)


def find_contraction(
    stage: Stage, dtypes: Mapping[str, str]
) -> tuple[Contraction, str] | tuple[None, str]:
    """Return the contraction that a statement is; or None, and why it is none.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> floats = dict.fromkeys(["A", "B", "C"], "float32")
    >>> found, _ = find_contraction(parse_stages("C[i,j] += A[i,k] * B[k,j]")[0], floats)
    >>> print(found.spec, found.operands)
    ij-ik-kj ('A', 'B')
    >>> find_contraction(parse_stages("C[i,j] += A[i,k] + B[k,j]")[0], floats)[1]
    'A[i,k] + B[k,j] is no product of elements'
    """
    kinds = {dtypes[name] for name in (stage.name, *(read.array for read in stage.reads))}
    if stage.update is not None:
        return None, f"{stage.target} is a computed position"
    if stage.where:
        return None, f"it runs where {', '.join(map(str, stage.where))}, not at all points"
    if kinds - {"float32"} and kinds - {"float64"}:
        return None, f"contractions are of one floating dtype, not of {', '.join(sorted(kinds))}"
    try:
        return _find(stage), ""
    except SpecError as error:
        return None, str(error)


def _find(stage: Stage) -> Contraction:
    """Return the contraction; raise `SpecError` with the reason where there is none."""
    beta: Term | None = None
    scaled = None
    for part in _parts(stage.term, "add"):
        factors = _parts(part, "multiply")
        numbers = [one for one in factors if _is_number(one)]
        others = [one for one in factors if not _is_number(one)]
        if others == [stage.target] and beta is None:
            beta = _product(numbers) or Number(1)
        elif len(others) == 1 and isinstance(others[0], Reduce) and scaled is None:
            scaled = others[0], numbers
        else:
            raise SpecError(f"{part} is no sum over letters, nor {stage.target} itself")
    if scaled is None:
        raise SpecError(f"{stage.term} has no sum over letters")
    sum_, numbers = scaled
    if sum_.name != "add":
        raise SpecError(f"{sum_} is no sum")
    reads: list[Read] = []
    for factor in _parts(sum_.term, "multiply"):
        if isinstance(factor, Read):
            reads.append(factor)
        elif _is_number(factor):
            numbers = [*numbers, factor]
        else:
            raise SpecError(f"{factor} is no product of elements")
    return _contraction(stage, reads, _product(numbers), beta)


def _contraction(
    stage: Stage, reads: list[Read], alpha: Term | None, beta: Term | None
) -> Contraction:
    if not reads:
        raise SpecError(f"{stage.term} reads nothing")
    if len(stage.letters) > len(ascii_letters):
        raise SpecError(f"specs have {len(ascii_letters)} letters at most")
    named = {letter: letter for letter in stage.letters if len(letter) == 1 and letter.isalpha()}
    free = iter(sorted(set(ascii_letters) - set(named), key=ascii_letters.index))
    short = {letter: named.get(letter) or next(free) for letter in stage.letters}
    tensors = [
        Tensor(tuple(_subscript(read, one, short) for one in read.subscripts))
        for read in (stage.target, *reads)
    ]
    return Contraction(
        Spec(tensors[0], tuple(tensors[1:])),
        tuple(read.array for read in reads),
        tuple((short[letter], letter) for letter in stage.letters),
        alpha,
        beta,
    )


def _subscript(read: Read, subscript: Affine | Term, short: Mapping[str, str]) -> Subscript:
    if not isinstance(subscript, Affine):
        raise SpecError(f"the subscript {subscript} of {read} is known at run time alone")
    plain = subscript.terms and not subscript.offset and subscript.divisor == 1
    if not plain or any(factor < 0 for factor, _ in subscript.terms):
        raise SpecError(f"the subscript {subscript} of {read} is no sum of letters alone")
    return Subscript(tuple((factor, short[letter]) for factor, letter in subscript.terms))


def _parts(term: Term, name: str) -> list[Term]:
    """Return what a chain of one operation is made of."""
    if isinstance(term, Apply) and term.name == name:
        return [part for one in term.arguments for part in _parts(one, name)]
    return [term]


def _is_number(term: Term) -> bool:
    return isinstance(term, Number | Param)


def _product(numbers: list[Term]) -> Term | None:
    found = None
    for one in numbers:
        found = one if found is None else found * one
    return found
