"""Contractions that GPUs compute: of all dtypes that CPUs take, and of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tilesolve.contractions.problem import OPERAND_DTYPES, Problem


@dataclass(frozen=True, slots=True, repr=False)
class DeviceProblem(Problem):
    """A problem whose operands may be int8: sums, and so the output, are int32 then.

    Examples
    --------
    >>> DeviceProblem.of("ij-ik-kj", 8, "int8").bytes
    (256, 64, 64)
    """

    TAKEN: ClassVar[tuple[str, ...]] = (*OPERAND_DTYPES, "int8")

    @property
    def bytes(self) -> tuple[int, ...]:
        """Bytes of each tensor, the output first."""
        output, *operands = (prod(shape) * self.itemsize for shape in self.shapes)
        widened = self.sum_itemsize // self.itemsize if self.dtype == "int8" else 1
        return (output * widened, *operands)
