"""Activations: smooth functions of one real number that numpy has not, called as its own are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf, pi, sqrt
from typing import Any, ClassVar

import numpy as np

_CUBE = 0.044715


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each number, with the dtypes of numpy's `exp`.

    Parameters
    ----------
    function
        Of an array.

    Examples
    --------
    >>> float(ACTIVATIONS["sigmoid"](0.0))
    0.5
    """

    function: Callable[[Any], Any]
    nin: ClassVar[int] = 1

    def __call__(self, x: Any) -> Any:  # noqa: ANN401, D102
        return self.function(x)

    def resolve_dtypes(self, dtypes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the dtypes of its argument and its result."""
        return np.exp.resolve_dtypes(tuple(dtypes))


def _gelu(x: Any) -> Any:  # noqa: ANN401
    return x * (1 + np.vectorize(erf, otypes=[float])(x / sqrt(2))) / 2


ACTIVATIONS = {
    "sigmoid": Activation(lambda x: 1 / (1 + np.exp(-x))),
    "silu": Activation(lambda x: x / (1 + np.exp(-x))),
    "gelu": Activation(_gelu),
    "gelu_tanh": Activation(lambda x: x * (1 + np.tanh(sqrt(2 / pi) * (x + _CUBE * x**3))) / 2),
}
"""Functions by name."""
