"""numpy's einsum notation, brought to one form: a letter for every axis.

This module has the parts of einsum that a `Spec` leaves out: an implicit output, an ellipsis, axes
of extent 1 that are broadcast, and subscripts as lists of integers. `read` fills an ellipsis with
letters that the text does not use, so that later modules need to know nothing of it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from types import EllipsisType

import numpy as np

from tilesolve.contractions.errors import LabelsError, SizeError, SpecError
from tilesolve.contractions.inference import infer
from tilesolve.contractions.letters import fresh
from tilesolve.contractions.spec import Spec

_LABELS = 52  # of the list format: A to Z, then a to z, which sort as their numbers do
_DOTS = "…"  # an ellipsis as one symbol


@dataclass(frozen=True, slots=True)
class Subscripts:
    """A letter for each axis of the operands and of the output.

    A letter that stands twice in an operand takes a diagonal; letters that the output lacks are
    summed over. `ellipsis` are the letters that stand for axes of an ellipsis. `spec` has all
    subscripts where some are affine; an operand has a letter of its own for such an axis.

    Examples
    --------
    >>> found = read("...ij,jk", [3, 2])
    >>> found.operands, found.output
    (('αij', 'jk'), 'αik')
    """

    text: str
    operands: tuple[str, ...]
    output: str
    ellipsis: str
    spec: Spec | None = None

    @property
    def indices(self) -> tuple[str, ...]:
        """The letters that index each operand, those within affine subscripts too.

        Examples
        --------
        >>> read("c[2h+r],kcr->kh", [2, 3]).indices
        ('chr', 'kcr')
        """
        if self.spec is None:
            return self.operands
        return tuple("".join(tensor.letters) for tensor in self.spec.operands)

    @property
    def is_view(self) -> bool:
        """Whether the output has the elements of a single operand, and sums nothing.

        Examples
        --------
        >>> read("ii->i", [2]).is_view, read("ij->i", [2]).is_view
        (True, False)
        """
        alone = self.spec is None and len(self.operands) == 1
        return alone and set(self.operands[0]) == set(self.output)

    def name(self, letter: str) -> str:
        """Return what to call a letter in a message.

        Examples
        --------
        >>> found = read("...ij,jk", [3, 2])
        >>> found.name("i"), found.name("α")
        ("'i'", 'axis -1 of the ellipsis')
        """
        if letter in self.ellipsis:
            return f"axis {self.ellipsis.index(letter) - len(self.ellipsis)} of the ellipsis"
        if self.spec is not None:
            for letters, tensor in zip(self.operands, self.spec.operands, strict=True):
                if letter in letters:
                    return repr(str(tensor.subscripts[letters.index(letter)]))
        return repr(letter)

    def operand(self, number: int) -> str:
        """Return what to call an operand in a message.

        Examples
        --------
        >>> read("ij, j...->i...", [2, 2]).operand(1)
        "operand 1 ('j...')"
        """
        term = self.text.partition("->")[0].split(",")[number]
        return f"operand {number} ({term.replace(' ', '')!r})"

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Return the extent of each letter; an axis of extent 1 is broadcast against others.

        Raises
        ------
        SizeError
            If two axes of a letter disagree. Within one operand, 1 is no exception.

        Examples
        --------
        >>> read("ij,jk", [2, 2]).sizes([(2, 3), (1, 4)])
        {'i': 2, 'j': 3, 'k': 4}
        >>> read("ij,jk", [2, 2]).sizes([(2, 3), (5, 4)])
        Traceback (most recent call last):
            ...
        tilesolve.contractions.errors.SizeError: the extents of 'j' in 'ij,jk' disagree: \
3 on axis 1 of operand 0 ('ij'), 5 on axis 0 of operand 1 ('jk')
        """
        if self.spec is not None:
            return infer(self.spec, shapes)
        sizes: dict[str, int] = {}
        source: dict[str, tuple[int, int, int]] = {}
        for number, (letters, shape) in enumerate(zip(self.operands, shapes, strict=True)):
            for axis, (letter, extent) in enumerate(zip(letters, shape, strict=True)):
                here, first = (number, axis, extent), letters.index(letter)
                if extent != shape[first]:
                    raise self._disagree(letter, (number, first, shape[first]), here)
                if sizes.get(letter, 1) == 1:
                    sizes[letter], source[letter] = extent, here
                elif extent not in (1, sizes[letter]):
                    raise self._disagree(letter, source[letter], here)
        return sizes

    def _disagree(self, letter: str, *found: tuple[int, int, int]) -> SizeError:
        """Say which axes of a letter, as operand, axis and extent, disagree."""
        places = ", ".join(
            f"{extent} on axis {axis} of {self.operand(number)}" for number, axis, extent in found
        )
        return SizeError(f"the extents of {self.name(letter)} in {self.text!r} disagree: {places}")

    def __str__(self) -> str:
        if self.spec is not None:
            return self.spec.einsum()
        return ",".join(self.operands) + f"->{self.output}"


def read(text: str | bytes, orders: Sequence[int]) -> Subscripts:
    """Read numpy's einsum notation for operands of given numbers of axes.

    Parameters
    ----------
    text
        Such as ``"ij,jk"``, ``"...ij,...jk->...ik"``, ``"c[2h+r],kcr->kh"``. Spaces between symbols
        do not count. Beside numpy's 52 letters, any symbol past ASCII may be used. Bytes are ASCII.
    orders
        How many axes each operand has.

    Raises
    ------
    SpecError
        If the text is none of numpy's, or does not fit the operands.

    Examples
    --------
    >>> str(read("ba,cb", [2, 2])), str(read("i...->...", [3]))
    ('ba,cb->ac', 'iαβ->αβ')
    >>> read("ij,jk->iz", [2, 2])
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SpecError: the output of 'ij,jk->iz' has 'z', which no operand has
    """
    if isinstance(text, bytes):
        if not text.isascii():
            raise SpecError(f"subscripts as bytes are in ASCII, unlike {text!r}")
        text = text.decode("ascii")
    if not isinstance(text, str):
        raise SpecError(f"subscripts are a string such as 'ij,jk->ik', not {text!r}")
    if "[" in text or "]" in text:
        return _read_affine(text, orders)
    inputs, arrow, output = text.partition("->")
    terms = [_clean(term) for term in inputs.split(",")]
    if len(terms) != len(orders):
        raise SpecError(
            f"{text!r} has subscripts for {len(terms)} operands, but {len(orders)} are given"
        )
    wanted = _clean(output)
    for number, term in enumerate(terms):
        _check(text, term, f"operand {number}")
    _check(text, wanted, "the output")

    found = Subscripts(text, tuple(terms), wanted, "")
    hidden = [_hidden(found, number, order) for number, order in enumerate(orders)]
    longest = max(hidden, default=0)
    ellipsis = "".join(islice(fresh("", taken=text), longest))
    operands = tuple(
        term.replace(_DOTS, ellipsis[longest - axes :])
        for term, axes in zip(terms, hidden, strict=True)
    )
    if not arrow:
        counts = Counter("".join(operands))
        once = sorted(x for x, times in counts.items() if times == 1 and x not in ellipsis)
        return Subscripts(text, operands, ellipsis + "".join(once), ellipsis)
    _check_output(text, wanted, operands)
    if longest and _DOTS not in wanted:
        raise SpecError(
            f"the output of {text!r} has no '...' for the {longest} axes that the ellipsis "
            "stands for; it cannot be summed over"
        )
    return Subscripts(text, operands, wanted.replace(_DOTS, ellipsis), ellipsis)


def _read_affine(text: str, orders: Sequence[int]) -> Subscripts:
    """Read subscripts some of which are in brackets, as a spec has them."""
    spec = Spec.parse(text)
    if spec.form != "einsum":
        raise SpecError(f"{text!r} has dashes between its tensors; einsum takes '{spec.einsum()}'")
    if len(spec.operands) != len(orders):
        raise SpecError(
            f"{text!r} has subscripts for {len(spec.operands)} operands, "
            f"but {len(orders)} are given"
        )
    axes = fresh("", taken=text)
    operands = tuple(
        "".join(one.letters[0] if one.plain else next(axes) for one in tensor.subscripts)
        for tensor in spec.operands
    )
    found = Subscripts(text, operands, "".join(spec.output.letters), "", spec)
    for number, order in enumerate(orders):
        _hidden(found, number, order)
    return found


def from_lists(arguments: Sequence[object]) -> tuple[str, list[object]]:
    """Return the text and the operands of einsum's list format.

    Parameters
    ----------
    arguments
        Operands, each followed by its list of integers from 0 to 51, of which ``...`` may be
        one; a last list is the output's.

    Examples
    --------
    >>> from_lists(["A", [0, 1], "B", [1, ..., 2], [0, 2]])
    ('AB,B...C->AC', ['A', 'B'])
    """
    pairs, rest = divmod(len(arguments), 2)
    operands = [arguments[2 * number] for number in range(pairs)]
    terms = [_term(arguments[2 * number + 1], f"operand {number}") for number in range(pairs)]
    text = ",".join(terms)
    return text + ("->" + _term(arguments[-1], "the output") if rest else ""), operands


def _term(labels: object, where: str) -> str:
    """Return a list of integers as text."""
    if isinstance(labels, str | bytes) or not np.iterable(labels):
        raise LabelsError(
            f"the subscripts of {where} must be a list of integers, not {labels!r}; "
            "or give a string such as 'ij,jk->ik' before the operands"
        )
    found = []
    for label in labels:
        if isinstance(label, EllipsisType):
            found.append("...")
            continue
        try:
            number = operator.index(label)
        except TypeError:
            raise LabelsError(
                f"a subscript of {where} is {label!r}, neither an integer nor an ellipsis"
            ) from None
        if not 0 <= number < _LABELS:
            raise SpecError(f"a subscript of {where} is {number}; they run from 0 to {_LABELS - 1}")
        found.append(chr(ord("A") + number if number < 26 else ord("a") + number - 26))
    return "".join(found)


def _clean(term: str) -> str:
    """Return a term without spaces, its ellipsis as one symbol."""
    return term.replace("...", _DOTS).replace(" ", "")


def _check(text: str, term: str, where: str) -> None:
    """Raise `SpecError` unless a term has letters and at most one ellipsis."""
    for symbol in term.replace(_DOTS, "", 1):
        if symbol in (".", _DOTS):
            raise SpecError(f"{where} of {text!r} has a '.' that is not part of one '...'")
        if symbol in "->":
            raise SpecError(f"{where} of {text!r} has {symbol!r}; one '->' may precede the output")
        if symbol == ",":
            raise SpecError(f"{where} of {text!r} has a ','; there is one output")
        if symbol.isascii() and not symbol.isalpha():
            raise SpecError(f"{where} of {text!r} has {symbol!r}, which is not a letter")


def _check_output(text: str, wanted: str, operands: Sequence[str]) -> None:
    known = set("".join(operands))
    for letter, times in Counter(wanted.replace(_DOTS, "")).items():
        if times > 1:
            raise SpecError(f"the output of {text!r} has {letter!r} {times} times")
        if letter not in known:
            raise SpecError(f"the output of {text!r} has {letter!r}, which no operand has")


def _hidden(found: Subscripts, number: int, order: int) -> int:
    """Return how many axes of an operand its ellipsis stands for."""
    term = found.operands[number]
    named = len(term.replace(_DOTS, ""))
    if order < named:
        raise SpecError(
            f"{found.operand(number)} of {found.text!r} has {named} subscripts, "
            f"but its array has {order} axes"
        )
    if _DOTS not in term and order > named:
        raise SpecError(
            f"{found.operand(number)} of {found.text!r} has {named} subscripts and no '...', "
            f"but its array has {order} axes"
        )
    return order - named
