"""Parts of complex numbers: functions that numpy has, but not as those that tell their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np


@dataclass(frozen=True, slots=True)
class Part:
    """The real or the imaginary part of numbers.

    Parameters
    ----------
    function
        Of an array.

    Examples
    --------
    >>> float(PARTS["imag"](1 + 2j)), PARTS["real"].resolve_dtypes([np.dtype("complex64"), None])
    (2.0, (dtype('complex64'), dtype('float32')))
    """

    function: Callable[[Any], Any]
    nin: ClassVar[int] = 1

    def __call__(self, x: Any) -> Any:  # noqa: ANN401, D102
        return np.asarray(self.function(x))[()]

    def resolve_dtypes(self, dtypes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the dtypes of its argument and its result."""
        return dtypes[0], np.zeros(0, dtypes[0]).real.dtype


PARTS = {"real": Part(np.real), "imag": Part(np.imag)}
"""Functions by name."""
