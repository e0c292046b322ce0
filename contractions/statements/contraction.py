"""Which statements are contractions as a whole, so that plans compute them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from string import ascii_letters

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.pairing import FIRST, SECOND, Pairing
from tilesolve.contractions.problem import DTYPES, PAIRED_DTYPES, Problem
from tilesolve.contractions.spec import Spec, Subscript, Tensor
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.followed_sums import find_followed_sum
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Param, Read, Reduce, Term
from tilesolve.contractions.statements.values import replace_terms


@dataclass(frozen=True, slots=True)
class Product:
    """``alpha · Σ first · second``, or another pairing: what one plan computes.

    `spec` has letters of one character; `letters` pairs them with the statement's. `reads` has the
    element that each operand stands for: where no letter moves along an axis, the operand lacks it.
    `alpha` has the numbers and
    parameters that multiply the sum; None for 1. `pairing` has what is done with pairs of elements
    that are not multiplied and added up.
    """

    spec: Spec
    reads: tuple[Read, ...]
    letters: tuple[tuple[str, str], ...]
    alpha: Term | None = None
    pairing: Pairing | None = None

    @property
    def operands(self) -> tuple[str, ...]:
        """The array of each operand; one may stand there twice."""
        return tuple(one.array for one in self.reads)

    @property
    def begins_within(self) -> bool:
        """Whether an operand begins behind the first element of its array."""
        return any(isinstance(x, Affine) and x.offset for one in self.reads for x in one.subscripts)

    def problem(self, computation: Computation, dtype: str) -> Problem:
        """Return it at a computation's extents, in the dtype of the array that it is a part of.

        An array may have more elements than are read: a call takes its first ones then.
        """
        sizes = {short: computation.sizes[letter] for short, letter in self.letters}
        found = Problem.of(self.spec, sizes, dtype)
        return replace(found, pairing=self.pairing)

    def __str__(self) -> str:
        return f"{self.spec} of {self.pairing}" if self.pairing else str(self.spec)


@dataclass(frozen=True, slots=True)
class Contraction:
    """``output = product + … + product + beta · output``, in the statement's region.

    `added` is the statement's term without the output. `beta` has the numbers and parameters
    that multiply the output's old elements; None if nothing is added. `epilogue` is what is done to
    each element then, in the letters of the last product, and `operands` what it reads.
    """

    products: tuple[Product, ...]
    added: Term
    beta: Term | None = None
    epilogue: Epilogue | None = None
    operands: tuple[Read, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it is all of some arrays, from their first elements on, and nothing follows."""
        return self.epilogue is None and not any(one.begins_within for one in self.products)

    @property
    def reuses(self) -> bool:
        """Whether elements are used again: those of rows that are multiplied by rows are not."""
        pairs = ([set(one.letters) for one in x.spec.tensors[1:]] for x in self.products)
        return any(first != second for first, second in pairs)

    @property
    def multiplies(self) -> bool:
        """Whether both operands of a product have rows that the other one is read again for."""
        pairs = ([set(one.letters) for one in x.spec.tensors[1:]] for x in self.products)
        return any(first - second and second - first for first, second in pairs)

    def flops(self, computation: Computation, dtype: str) -> int:
        """Return the operations at a computation's extents, as if it had no region."""
        return sum(one.problem(computation, dtype).flops for one in self.products)

    def __str__(self) -> str:
        found = " + ".join(map(str, self.products))
        return found if self.epilogue is None else f"{found} then {self.epilogue}"


def find_contraction(
    stage: Stage, dtypes: Mapping[str, str]
) -> tuple[Contraction, str] | tuple[None, str]:
    """Return the contraction that a statement is; or None, and why it is none.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> floats = dict.fromkeys(["A", "B", "C"], "float32")
    >>> found, _ = find_contraction(parse_stages("C[i,j] += A[i,k] * B[k,j]")[0], floats)
    >>> print(found, found.products[0].operands)
    ij-ik-kj ('A', 'B')
    >>> find_contraction(parse_stages("C[i,j] += A[i,k] + B[k,j]")[0], floats)[1]
    'A[i,k] has 1 operand, a plan has two'
    """
    kinds = {dtypes[name] for name in (stage.name, *(read.array for read in stage.reads))}
    if stage.update is not None:
        return None, f"{stage.target} is a computed position"
    if len(kinds) > 1 or not kinds <= {*DTYPES}:
        return None, f"contractions are of one floating dtype, not of {', '.join(sorted(kinds))}"
    for condition in stage.where:
        if len(condition.letters) > 2:
            found = ", ".join(condition.letters)
            return None, f"the condition {condition} has more letters than two, {found}"
    try:
        contraction = _find_any(stage)
        pairs = next((one for one in contraction.products if one.pairing), None)
        if pairs and not kinds <= {*PAIRED_DTYPES}:
            return None, f"{pairs} is of real numbers alone"
        if contraction.epilogue and not kinds <= {*PAIRED_DTYPES}:
            return None, f"{contraction.epilogue} is of real numbers alone"
        inside = all(len(one.letters) == 1 and one in stage.bounds for one in stage.where)
        if not contraction.is_plain and not inside:
            return None, f"{contraction} is of parts of arrays, in a region that is no box"
        return contraction, ""
    except SpecError as error:
        return None, str(error)


def _find_any(stage: Stage) -> Contraction:
    """Return the contraction, with what follows; raise `SpecError` where there is none."""
    try:
        return _find(stage)
    except SpecError as error:
        followed = find_followed_sum(stage)
        if not followed.operations:
            raise
        try:
            found = _find(replace(stage, term=followed.inner, augmented=False))
        except SpecError:
            raise error from None
        if any(one.pairing for one in found.products):
            raise
        short = {letter: own for own, letter in found.products[-1].letters}
        chain = Epilogue(followed.operations).rename(short)
        return replace(found, epilogue=chain, operands=followed.operands)


def _find(stage: Stage) -> Contraction:
    """Return the contraction; raise `SpecError` with the reason where there is none."""
    beta: Term | None = None
    added: Term | None = None
    products: list[Product] = []
    for numbers, part in _parts(stage.term, ()):
        if part == stage.target and beta is None:
            beta = _product(numbers) or Number(1)
        elif isinstance(part, Reduce):
            scale = _product(numbers)
            scaled = part if scale is None else scale * part
            added = scaled if added is None else added + scaled
            products += _make_products(stage, part, numbers)
        else:
            raise SpecError(f"{part} is no sum over letters, nor {stage.target} itself")
    if added is None:
        raise SpecError(f"{stage.term} has no sum over letters")
    if any(one.pairing and not one.pairing.adds for one in products):
        _check_alone(stage, added)
    for condition in stage.where:
        for letter in condition.letters:
            missing = [one for one in products if letter not in dict(one.letters).values()]
            if missing:
                raise SpecError(f"the condition {condition} has {letter!r}, {missing[0].spec} not")
    return Contraction(tuple(products), added, beta)


def _check_alone(stage: Stage, reduced: Term) -> None:
    """Raise `SpecError` unless a reduction that does not add is the whole of a statement."""
    if stage.term != reduced or not isinstance(reduced, Reduce):
        raise SpecError(f"{stage.term} is no sum, and no other reduction alone")
    if any(letter in stage.summed for one in stage.where for letter in one.letters):
        raise SpecError(f"the region of {reduced} has letters that it runs over")


def _make_products(stage: Stage, sum_: Reduce, numbers: tuple[Term, ...]) -> list[Product]:
    """Return what a reduction is: a product for each that is added up, or else one of pairs."""
    if sum_.name != "add":
        return [_make_pairs(stage, sum_, _product(numbers))]
    parts = list(_parts(sum_.term, ()))
    try:
        return [
            _make_product(stage, sum_, inner, _product((*numbers, *own))) for own, inner in parts
        ]
    except SpecError:
        # A part with one read is a sum of its own, which takes no pairs.
        if all(len(one.reads) < 2 for _, one in parts):
            raise
        with suppress(SpecError):
            return [_make_pairs(stage, sum_, _product(numbers))]
        raise


def _make_pairs(stage: Stage, reduced: Reduce, alpha: Term | None) -> Product:
    """Return what a reduction of a term of two elements is, given what multiplies it."""
    reads, term = reduced.term.reads, reduced.term
    if len(reads) != 2:
        raise SpecError(f"{term} reads {len(reads)} elements, pairs are of two")
    if term.params:
        raise SpecError(f"{term} has the parameter {term.params[0]}, which pairs have not")
    own = [set(one.letters) & set(stage.output) for one in reads]
    if own[0] <= own[1] or own[1] <= own[0]:
        raise SpecError(f"{reads[0]} and {reads[1]} do not both have letters of their own")
    pairing = Pairing(reduced.name, replace_terms(term, {reads[0]: FIRST, reads[1]: SECOND}))
    return replace(_product_of(stage, reduced, term, reads, alpha), pairing=pairing)


def _make_product(stage: Stage, sum_: Reduce, term: Term, alpha: Term | None) -> Product:
    """Return what a sum of one product is, given what multiplies it."""
    reads: list[Read] = []
    for factor in _factors(term):
        if not isinstance(factor, Read):
            raise SpecError(f"{factor} is no product of elements")
        reads.append(factor)
    if len(reads) != 2:
        count = "1 operand" if len(reads) == 1 else f"{len(reads)} operands"
        raise SpecError(f"{term} has {count}, a plan has two")
    return _product_of(stage, sum_, term, reads, alpha)


def _product_of(
    stage: Stage, sum_: Reduce, term: Term, reads: Sequence[Read], alpha: Term | None
) -> Product:
    """Return what a reduction of two elements is, given what multiplies it."""
    letters = tuple(dict.fromkeys((*stage.output, *term.letters)))
    for letter in sum_.over:
        if letter not in letters:
            raise SpecError(f"{term} is summed over {letter!r}, which it has not")
    if len(letters) > len(ascii_letters):
        raise SpecError(f"specs have {len(ascii_letters)} letters at most")
    named = {letter: letter for letter in letters if len(letter) == 1 and letter.isalpha()}
    free = iter(sorted(set(ascii_letters) - set(named), key=ascii_letters.index))
    short = {letter: named.get(letter) or next(free) for letter in letters}
    tensors = [
        Tensor(tuple(x for one in read.subscripts if (x := _subscript(read, one, short))))
        for read in (stage.target, *reads)
    ]
    for read, tensor in zip(reads, tensors[1:], strict=True):
        if not tensor.subscripts:
            raise SpecError(f"{read} is a single element")
    return Product(
        Spec(tensors[0], tuple(tensors[1:])),
        tuple(reads),
        tuple((short[letter], letter) for letter in letters),
        alpha,
    )


def _subscript(read: Read, subscript: Affine | Term, short: Mapping[str, str]) -> Subscript | None:
    """Return how letters move along an axis; None if they do not."""
    if not isinstance(subscript, Affine):
        raise SpecError(f"the subscript {subscript} of {read} is known at run time alone")
    if subscript.divisor > 1 or any(factor < 0 for factor, _ in subscript.terms):
        raise SpecError(f"the subscript {subscript} of {read} is no sum of letters")
    if not subscript.terms:
        return None
    return Subscript(tuple((factor, short[letter]) for factor, letter in subscript.terms))


def _parts(term: Term, numbers: tuple[Term, ...]) -> Iterator[tuple[tuple[Term, ...], Term]]:
    """Yield what is added up, each with the numbers and parameters that multiply it."""
    if isinstance(term, Apply):
        match term.name, term.arguments:
            case "add", arguments:
                for one in arguments:
                    yield from _parts(one, numbers)
                return
            case "subtract", (first, second):
                yield from _parts(first, numbers)
                yield from _parts(second, (*numbers, Number(-1)))
                return
    factors = _factors(term)
    scales = tuple(one for one in factors if isinstance(one, Number | Param))
    others = [one for one in factors if not isinstance(one, Number | Param)]
    if scales and len(others) == 1:
        yield from _parts(others[0], (*numbers, *scales))
    elif scales and others:
        yield (*numbers, *scales), _multiplied(others)
    else:
        yield numbers, term


def _factors(term: Term) -> list[Term]:
    """Return what a chain of multiplications and signs is made of."""
    if isinstance(term, Apply) and term.name in ("multiply", "negative"):
        sign = [Number(-1)] if term.name == "negative" else []
        return [*sign, *(part for one in term.arguments for part in _factors(one))]
    return [term]


def _multiplied(terms: list[Term]) -> Term:
    found = terms[0]
    for one in terms[1:]:
        found = found * one
    return found


def _product(numbers: tuple[Term, ...]) -> Term | None:
    return _multiplied(list(numbers)) if numbers else None
