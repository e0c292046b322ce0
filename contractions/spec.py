"""What a contraction computes: subscripts, tensors and the spec that names them.

Two notations give the same `Spec`: the TCCG form, output first (``"abcd-aebf-dfce"``), and
the einsum form (``"aebf,dfce->abcd"``, or ``"ij,jk"`` with numpy's rule for the output). A
subscript in brackets is affine: ``"[2h+r]"`` walks an image with stride 2, ``"[h+3r]"`` is a
dilated filter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Literal, Self

from tilesolve.contractions.argument_kinds import check_kind, check_kinds
from tilesolve.contractions.errors import SpecError

Form = Literal["tccg", "einsum"]
"""A written form: TCCG (output first, dashes) or einsum (commas, then an arrow)."""

_TOKEN = re.compile(r"[0-9]+|-\s*>|\.\.\.|.", re.DOTALL)
_NAMES = "CAB" + ascii_uppercase[3:]
_DIGITS = 18  # of the longest coefficient, so that it always fits an int64


@dataclass(frozen=True, slots=True)
class Subscript:
    """The position along one axis of a tensor: a sum of letters with positive coefficients.

    Parameters
    ----------
    terms
        Pairs of a coefficient and a letter. A letter may stand in one term only: ``[h+h]`` is
        refused rather than read as ``[2h]``, because it is more often a slip.

    Examples
    --------
    >>> row = Subscript(((2, "h"), (1, "r")))
    >>> str(row), row.plain, row.extent({"h": 4, "r": 3})
    ('[2h+r]', False, 9)
    """

    terms: tuple[tuple[int, str], ...]
    letters: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The letters of the terms, in the order written."""
    plain: bool = field(init=False, repr=False, compare=False)
    """Whether it is a letter by itself, not an affine sum."""

    def __post_init__(self) -> None:
        if not self.terms:
            raise SpecError("a subscript needs a letter")
        object.__setattr__(self, "letters", tuple(letter for _, letter in self.terms))
        object.__setattr__(self, "plain", len(self.terms) == 1 and self.terms[0][0] == 1)
        for coefficient, letter in self.terms:
            if not isinstance(letter, str) or len(letter) != 1 or not letter.isalpha():
                raise SpecError(f"an index is one letter, not {letter!r}")
            if type(coefficient) is not int or coefficient < 1:
                raise SpecError(
                    f"the coefficient of {letter!r} must be a positive integer, not {coefficient!r}"
                )
        for letter, count in Counter(self.letters).items():
            if count > 1:
                raise SpecError(f"the letter {letter!r} stands twice in the subscript {self}")

    def extent(self, extents: Mapping[str, int]) -> int:
        """Return how many positions it spans: ``1 + Σ c·(n-1)``, or 0 if any ``n`` is 0."""
        if any(extents[letter] == 0 for _, letter in self.terms):
            return 0
        return 1 + sum(c * (extents[letter] - 1) for c, letter in self.terms)

    def __str__(self) -> str:
        if self.plain:
            return self.terms[0][1]
        return (
            "[" + "+".join(letter if c == 1 else f"{c}{letter}" for c, letter in self.terms) + "]"
        )


@dataclass(frozen=True, slots=True)
class Tensor:
    """The subscripts of one tensor, outermost axis first.

    Examples
    --------
    >>> image = Spec.parse("khw-c[h+r][w+s]-kcrs").operands[0]
    >>> str(image), image.letters
    ('c[h+r][w+s]', ('c', 'h', 'r', 'w', 's'))
    >>> image.shape({"c": 64, "h": 56, "w": 56, "r": 3, "s": 3})
    (64, 58, 58)
    """

    subscripts: tuple[Subscript, ...]
    letters: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The distinct letters, in order of appearance."""

    def __post_init__(self) -> None:
        letters = (letter for subscript in self.subscripts for letter in subscript.letters)
        object.__setattr__(self, "letters", _distinct(letters))

    def shape(self, extents: Mapping[str, int]) -> tuple[int, ...]:
        """Return the extent of each axis, given those of the letters."""
        return tuple(subscript.extent(extents) for subscript in self.subscripts)

    def strides(self, pitches: Sequence[int]) -> dict[str, int]:
        """Return how far neighbours along each letter are apart, given those along each axis.

        Examples
        --------
        >>> Spec.parse("kh-c[2h+r]-kcr").operands[0].strides((800, 8))
        {'c': 800, 'h': 16, 'r': 8}
        """
        found: dict[str, int] = {}
        for subscript, pitch in zip(self.subscripts, pitches, strict=True):
            for factor, letter in subscript.terms:
                found[letter] = found.get(letter, 0) + factor * pitch
        return found

    def __str__(self) -> str:
        return "".join(map(str, self.subscripts))


@dataclass(frozen=True, slots=True)
class Spec:
    """An output tensor, the operands it is computed from, and the form it was written in.

    A letter that the output lacks is summed over. The output must be plain, without repeated
    letters; an operand may repeat a letter, which takes a diagonal.

    Parameters
    ----------
    output, operands
        The tensors.
    form
        What ``str()`` writes. Specs that differ only in it are equal.

    Examples
    --------
    >>> spec = Spec.parse("abcd-aebf-dfce")
    >>> spec.einsum()
    'aebf,dfce->abcd'
    >>> spec == Spec.parse("aebf, dfce -> abcd")
    True
    >>> str(Spec.parse("ij,jk"))
    'ij,jk->ik'
    """

    output: Tensor
    operands: tuple[Tensor, ...]
    form: Form = field(default="tccg", compare=False)
    letters: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The distinct letters: the output's first, then the operands' as they appear."""

    def __post_init__(self) -> None:
        check_kind(self.output, Tensor, "output", "a Tensor", SpecError)
        check_kinds(self.operands, Tensor, "operands", "tensors", SpecError)
        letters = (letter for tensor in self.tensors for letter in tensor.letters)
        object.__setattr__(self, "letters", _distinct(letters))
        if not isinstance(self.form, str) or self.form not in ("tccg", "einsum"):
            raise SpecError(f"the form is 'tccg' or 'einsum', not {self.form!r}")
        if not self.operands:
            raise SpecError(f"spec {str(self)!r} has an output but no operands")
        known = {letter for operand in self.operands for letter in operand.letters}
        for axis, subscript in enumerate(self.output.subscripts):
            where = f"axis {axis} of the output {str(self.output)!r} of {str(self)!r}"
            if not subscript.plain:
                raise SpecError(f"{where} is {subscript}; only operands may be affine")
            letter = subscript.letters[0]
            if subscript in self.output.subscripts[:axis]:
                raise SpecError(f"{where} repeats the letter {letter!r}")
            if letter not in known:
                operands = ", ".join(
                    f"{name} = {str(tensor)!r}"
                    for name, tensor in zip(self.names[1:], self.operands, strict=True)
                )
                raise SpecError(f"{where} is {letter!r}, which no operand has ({operands})")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the TCCG form, or the einsum form with or without its output.

        Spaces may stand anywhere between symbols. Without an output, numpy's rule applies: the
        letters that occur once in all operands, sorted; letters in brackets count too.

        Examples
        --------
        >>> Spec.parse("nkhw-nc[2h+r][2w+s]-kcrs").letters
        ('n', 'k', 'h', 'w', 'c', 'r', 's')
        >>> Spec.parse("ab-ac!-cb")
        Traceback (most recent call last):
            ...
        tilesolve.contractions.errors.SpecError: unexpected '!' at character 6 of 'ab-ac!-cb'
        """
        if not isinstance(text, str):
            raise SpecError(f"a spec is a string such as 'ij,jk->ik', not {text!r}")
        return cls(*_Reader(text).read())

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The output, then the operands."""
        return (self.output, *self.operands)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each tensor: C for the output, then A, B, D, E, … for the operands."""
        return tuple(
            _NAMES[i % len(_NAMES)] + (str(i // len(_NAMES)) if i >= len(_NAMES) else "")
            for i in range(len(self.tensors))
        )

    def tccg(self) -> str:
        """Return the TCCG form: the output first, dashes between tensors."""
        return "-".join(map(str, self.tensors))

    def einsum(self) -> str:
        """Return the einsum form with an explicit output."""
        return ",".join(map(str, self.operands)) + f"->{self.output}"

    def __str__(self) -> str:
        return self.tccg() if self.form == "tccg" else self.einsum()


class _Reader:
    """Turns the text of one spec into tensors, and keeps it to point at what is wrong."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            ("".join(match[0].split()), match.start())
            for match in _TOKEN.finditer(text)
            if not match[0].isspace()
        ]

    def read(self) -> tuple[Tensor, tuple[Tensor, ...], Form]:
        """Return the output, the operands and the form they were written in."""
        if not self.tokens:
            raise SpecError(f"the spec {self.text!r} is empty")
        tensors, separators = self._split()
        symbols = [symbol for symbol, _ in separators]
        tccg = symbols[:1] == ["-"]
        for symbol, position in separators:
            if (symbol == "-") != tccg:
                raise self._error(
                    f"{symbol!r} after {symbols[0]!r} mixes the TCCG and the einsum form", position
                )
        if tccg:
            return tensors[0], tuple(tensors[1:]), "tccg"
        if "->" in symbols[:-1]:
            symbol, position = separators[symbols.index("->") + 1]
            raise self._error(f"{symbol!r} after the output", position)
        if "->" in symbols:
            return tensors[-1], tuple(tensors[:-1]), "einsum"
        counts = Counter(x for tensor in tensors for sub in tensor.subscripts for x in sub.letters)
        once = sorted(letter for letter, count in counts.items() if count == 1)
        output = Tensor(tuple(Subscript(((1, letter),)) for letter in once))
        return output, tuple(tensors), "einsum"

    def _split(self) -> tuple[list[Tensor], list[tuple[str, int]]]:
        """Return the tensors, and the separators between them with their positions."""
        tensors: list[Tensor] = []
        separators: list[tuple[str, int]] = []
        subscripts: list[Subscript] = []
        index = 0
        while index < len(self.tokens):
            token, position = self.tokens[index]
            index += 1
            if token == "[":
                subscript, index = self._affine(index)
                subscripts.append(subscript)
            elif token.isalpha():
                subscripts.append(Subscript(((1, token),)))
            elif token in ("-", ",", "->"):
                separators.append((token, position))
                tensors.append(Tensor(tuple(subscripts)))
                subscripts = []
            elif token in ("...", "…"):
                raise self._error("an ellipsis is not part of a spec; name every index", position)
            elif _is_number(token):
                raise self._error(f"{token} outside brackets; write '[{token}h]'", position)
            else:
                raise self._error(f"unexpected {token!r}", position)
        tensors.append(Tensor(tuple(subscripts)))
        return tensors, separators

    def _affine(self, index: int) -> tuple[Subscript, int]:
        """Read from after a ``[`` to its ``]``; return the subscript and the next token."""
        opening = self.tokens[index - 1][1]
        terms: list[tuple[int, str]] = []
        token = "+"
        while token != "]":
            if token != "+":
                raise self._bracket_error(index - 1, "'+' or ']'")
            coefficient = 1
            if _is_number(self._at(index)):
                coefficient = self._coefficient(index)
                index += 1
            if not self._at(index).isalpha():
                raise self._bracket_error(index, "a letter")
            terms.append((coefficient, self._at(index)))
            token = self._at(index + 1)
            index += 2
        try:
            return Subscript(tuple(terms)), index
        except SpecError as error:
            raise self._error(f"{error},", opening) from None

    def _coefficient(self, index: int) -> int:
        """Return the number at a token."""
        token, position = self.tokens[index]
        if len(token) > _DIGITS:
            raise self._error(f"a coefficient of more than {_DIGITS} digits", position)
        return int(token)

    def _at(self, index: int) -> str:
        """Return a token, or an empty one past the end."""
        return self.tokens[index][0] if index < len(self.tokens) else ""

    def _bracket_error(self, index: int, expected: str) -> SpecError:
        """Say what is wrong with a token in brackets, where something else was expected."""
        if index >= len(self.tokens):
            return self._error(f"expected {expected} but the text ends", len(self.text))
        token, position = self.tokens[index]
        if token in ("-", "->"):
            return self._error("'-' in brackets, where coefficients must be positive,", position)
        return self._error(f"expected {expected}, found {token!r}", position)

    def _error(self, what: str, position: int) -> SpecError:
        return SpecError(f"{what} at character {position + 1} of {self.text!r}")


def _is_number(token: str) -> bool:
    return token.isascii() and token.isdecimal()


def _distinct(letters: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(letters))
