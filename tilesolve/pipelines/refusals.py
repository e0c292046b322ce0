"""What arrays refuse while a function is traced: nothing there has values yet."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tilesolve.contractions.errors import TraceError

_M = TypeVar("_M", bound=Callable[..., Any])


def noted(method: _M) -> _M:
    """Have the graph keep what an array refuses, so that no function catches it and goes on."""

    @wraps(method)
    def noting(array: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(array, *given, **named)
        except TraceError as error:
            array.graph.refused = array.graph.refused or error
            raise

    return noting  # type: ignore[return-value]


class Refusing(NDArrayOperatorsMixin):
    """An array whose values are not known, and whose attributes stay."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __class__ = property(lambda _: np.ndarray)  # what isinstance asks for

    @noted
    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise TraceError(f"it sets the attribute {name!r} of an array")

    @noted
    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TraceError(
            "it makes a NumPy array of values that are not known yet, or writes them to one"
        )

    @noted
    def __bool__(self) -> bool:
        raise TraceError("it branches on a value of an array; where(test, yes, no) chooses")

    @noted
    def __index__(self, *_: object) -> NoReturn:
        raise TraceError("it takes a value of an array as a number of Python's")

    __int__ = __float__ = __complex__ = __round__ = __trunc__ = __index__


class Shaped(Refusing):
    """An array of which the shape and the dtype are known."""

    __slots__ = ()
    shape: tuple[int, ...]

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its elements."""

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError("it takes the length of a number")
        return self.shape[0]
