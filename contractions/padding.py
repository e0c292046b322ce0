"""Padding: zeros around an operand that no array holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilesolve.contractions.errors import SizeError

if TYPE_CHECKING:
    from tilesolve.contractions.spec import Spec


@dataclass(frozen=True, slots=True, order=True)
class Padding:
    """Zeros at both ends of one axis of an operand.

    `tensor` is the tensor's position among those of the spec: 1 is the first operand. So many
    zeros stand `before` and `after` the elements of the array.

    Examples
    --------
    >>> print(Padding(1, 2, 1, 1))
    tensor 1 axis 2: 1 zero before, 1 after
    """

    tensor: int
    axis: int
    before: int
    after: int

    def __str__(self) -> str:
        zeros = "zero" if self.before == 1 else "zeros"
        return (
            f"tensor {self.tensor} axis {self.axis}: {self.before} {zeros} before, "
            f"{self.after} after"
        )

    def within(self, reach: int) -> Padding:
        """Return the part of the zeros that leaves an axis of so many places one element.

        Examples
        --------
        >>> Padding(1, 2, 3, 3).within(5)
        Padding(tensor=1, axis=2, before=3, after=1)
        """
        before = min(self.before, max(0, reach - 1))
        return replace(self, before=before, after=min(self.after, max(0, reach - 1 - before)))


def check_padding(
    spec: Spec, sizes: Mapping[str, int], padding: Iterable[Padding]
) -> tuple[Padding, ...]:
    """Return padding in the order of tensors and axes, without what adds nothing.

    Raises
    ------
    SizeError
        If there is no such operand or axis, an axis is named twice, a number is negative, or an
        operand would have less than nothing between its zeros.
    """
    found: dict[tuple[int, int], Padding] = {}
    for one in padding:
        if not 1 <= one.tensor <= len(spec.operands):
            raise SizeError(
                f"padding of tensor {one.tensor}: {str(spec)!r} has {len(spec.operands)} "
                "operands, counted from 1"
            )
        name, tensor = spec.names[one.tensor], spec.tensors[one.tensor]
        if not 0 <= one.axis < len(tensor.subscripts):
            raise SizeError(
                f"padding of axis {one.axis} of operand {name}: it has "
                f"{len(tensor.subscripts)} axes, counted from 0"
            )
        if one.before < 0 or one.after < 0:
            raise SizeError(
                f"padding of axis {one.axis} of operand {name} must not be negative, got "
                f"{one.before} before and {one.after} after"
            )
        if (one.tensor, one.axis) in found:
            raise SizeError(f"two paddings of axis {one.axis} of operand {name}")
        reach = tensor.subscripts[one.axis].extent(sizes)
        if one.before + one.after > reach:
            raise SizeError(
                f"padding of axis {one.axis} of operand {name}: {one.before} before and "
                f"{one.after} after are more than its {reach} places"
            )
        found[one.tensor, one.axis] = one
    return tuple(found[at] for at in sorted(found) if found[at].before or found[at].after)
