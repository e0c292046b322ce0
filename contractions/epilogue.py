"""Epilogues: what is done to each element of an output once it is computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from tilesolve.contractions.elementwise import Elementwise
from tilesolve.contractions.errors import DtypeError, SpecError
from tilesolve.contractions.problem import Problem

FUNCTIONS = ("relu", "relu6", "clip", "leaky", "sigmoid", "tanh", "silu", "gelu", "gelu-tanh")
"""Functions of one number; `clip` takes a least and a largest value, `leaky` a slope."""

OWN = "elementwise"
"""The name of operations that are functions of one's own."""

_COUNTS = {"clip": 2, "leaky": 1}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf"
_CALL = re.compile(rf"([a-z][a-z0-9-]*)(?:\(({_NUMBER})(?:,({_NUMBER}))?\))?")


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of an epilogue.

    Parameters
    ----------
    name
        ``"*"`` or ``"+"`` for an operand, or one of `FUNCTIONS`.
    letters
        Of the operand: those of the output that it has an axis for.
    numbers
        Arguments of the function.
    function
        One's own function; ``name`` is then `OWN`.

    Examples
    --------
    >>> print(Operation("clip", numbers=(0.0, 6.0)))
    clip(0,6)
    """

    name: str
    letters: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    function: Elementwise | None = None

    @property
    def takes_operand(self) -> bool:
        """Whether it has an operand."""
        return self.name in ("*", "+")

    @property
    def bounds(self) -> tuple[float, ...]:
        """The least number that it leaves, and the largest one, if it does nothing else.

        Examples
        --------
        >>> [Operation(name).bounds for name in ("relu", "relu6", "gelu")]
        [(0.0,), (0.0, 6.0), ()]
        """
        if self.name == "clip":
            return self.numbers
        return {"relu": (0.0,), "relu6": (0.0, 6.0)}.get(self.name, ())

    def __str__(self) -> str:
        if self.takes_operand:
            return self.name + "".join(self.letters)
        if self.function is not None:
            return f"{OWN}({self.function.name})"
        return self.name + (f"({','.join(f'{n:g}' for n in self.numbers)})" if self.numbers else "")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A chain of operations, applied in order to each element.

    Parameters
    ----------
    operations
        The first one first.

    Examples
    --------
    >>> chain = Epilogue.parse("*k +k relu6")
    >>> print(chain), [letters for letters in chain.operands]
    *k +k relu6
    (None, [('k',), ('k',)])
    """

    operations: tuple[Operation, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a chain: operations with spaces between them.

        ``*k`` multiplies by an operand with the axes that the letters name, ``+nk`` adds one; all
        else is one of `FUNCTIONS`. A single ``+`` or ``*`` takes one number for all elements, as an
        array without axes.

        Raises
        ------
        SpecError
            If an operation is not known, or lacks its numbers.
        """
        return cls(tuple(map(_read, text.split())))

    @classmethod
    def of(cls, given: EpilogueArgument) -> Epilogue:
        """Return the chain that an argument names: text, a chain, several of these, or none.

        Raises
        ------
        SpecError
            If it is something else, or an operation is not known.

        Examples
        --------
        >>> print(Epilogue.of(("+n", elementwise(lambda x: x * x), "relu")))
        +n elementwise(<lambda>) relu
        """
        if given is None:
            return Epilogue(())
        if isinstance(given, Epilogue):
            return given
        if isinstance(given, str):
            return cls.parse(given)
        if isinstance(given, list | tuple):
            return Epilogue(tuple(one for part in given for one in Epilogue.of(part).operations))
        hint = "; tilesolve.elementwise makes one of a function" if callable(given) else ""
        raise SpecError(f"epilogue {given!r} is no chain of operations{hint}")

    @property
    def operands(self) -> list[tuple[str, ...]]:
        """The letters of each operand, in the order in which calls take them."""
        return [one.letters for one in self.operations if one.takes_operand]

    def rename(self, letters: Mapping[str, str]) -> Epilogue:
        """Return the chain with other letters.

        Examples
        --------
        >>> print(Epilogue.parse("+n gelu").rename({"n": "b"}))
        +b gelu
        """
        return Epilogue(
            tuple(
                replace(one, letters=tuple(letters[i] for i in one.letters))
                for one in self.operations
            )
        )

    def check(self, problem: Problem) -> None:
        """Raise an error unless the chain can follow a problem.

        Raises
        ------
        SpecError
            If an operand has a letter twice, or one that the output has not.
        DtypeError
            If a function of real numbers would get complex ones.
        """
        output = problem.spec.output.letters
        for one in self.operations:
            for letter in one.letters:
                if letter not in output:
                    raise SpecError(
                        f"epilogue {str(one)!r}: {letter!r} is no letter of the output "
                        f"{''.join(output)!r}"
                    )
            if len(set(one.letters)) < len(one.letters):
                raise SpecError(f"epilogue {str(one)!r}: a letter stands twice")
            if problem.dtype.startswith("complex") and not one.takes_operand:
                raise DtypeError(f"epilogue {str(one)!r} is of real numbers, not {problem.dtype}")

    def shapes(self, problem: Problem) -> list[tuple[int, ...]]:
        """Return the shape of each operand.

        Examples
        --------
        >>> Epilogue.parse("+n relu").shapes(Problem.of("mn-mk-kn", "m=2 n=3 k=4"))
        [(3,)]
        """
        return [tuple(problem.sizes[i] for i in letters) for letters in self.operands]

    def __str__(self) -> str:
        return " ".join(map(str, self.operations))


EpilogueArgument = Epilogue | str | Sequence[Epilogue | str] | None
"""What functions take as a chain, see `Epilogue.of`."""


def elementwise(function: Callable[[Any], Any]) -> Epilogue:
    """Return a function of one number as an epilogue, alone or as a part of a chain.

    It goes over each tile as the functions that have a name do: as the same code where it consists
    of operators, comparisons and functions that statements have, see `tilesolve.nest`. Others are
    compiled by numba for the dtype of a plan. Two functions are the same to caches if their code
    and all that it refers to is.

    Parameters
    ----------
    function
        Such as ``lambda x: x * x``. It may use numbers, tuples, functions and modules. In a plan
        of float32 its argument is one; constants that are to be such need ``numpy.float32``.

    Raises
    ------
    PlanError
        If it is no Python function of one number, raises errors, or uses what may change, such as a
        list or an array. A plan raises it if numba cannot compile the function.

    Examples
    --------
    >>> import numpy as np, tilesolve
    >>> square = tilesolve.elementwise(lambda x: x * x)
    >>> layer = tilesolve.plan("mn-mk-kn", "m=2 n=2 k=2", epilogue=("+n", square))
    >>> layer(np.eye(2), np.ones((2, 2)), operands=[np.array([1.0, 2.0])]).tolist()
    [[4.0, 9.0], [4.0, 9.0]]
    """
    return Epilogue((Operation(OWN, function=Elementwise(function)),))


def _read(token: str) -> Operation:
    if token[0] in "*+":
        if not all(letter.isalpha() for letter in token[1:]):
            raise SpecError(f"epilogue {token!r}: letters must follow {token[0]!r}")
        return Operation(token[0], tuple(token[1:]))
    if token.startswith(f"{OWN}("):
        raise SpecError(f"epilogue {token!r}: text has no functions, tilesolve.elementwise does")
    found = _CALL.fullmatch(token)
    if found is None or found[1] not in FUNCTIONS:
        raise SpecError(
            f"epilogue {token!r} is not known; known are *letters, +letters, {', '.join(FUNCTIONS)}"
        )
    numbers = tuple(float(n) for n in found.groups()[1:] if n is not None)
    wanted = _COUNTS.get(found[1], 0)
    if len(numbers) != wanted:
        raise SpecError(
            f"epilogue {token!r}: {found[1]} takes {wanted} numbers, got {len(numbers)}"
        )
    return Operation(found[1], numbers=numbers)
