"""Extents of the letters, worked out from the shapes of the operands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.spec import Spec, Subscript

OUTPUT = "C"
"""The name of the output, see `Spec.names`."""


@dataclass(frozen=True, slots=True)
class OperandAxis:
    """One axis of a tensor as it was given: its subscript, and the extent of the array.

    Examples
    --------
    >>> print(OperandAxis("A", 1, Spec.parse("h-c[h+r]-r").operands[0].subscripts[1], 9))
    axis 1 of operand A
    """

    operand: str
    position: int
    subscript: Subscript
    extent: int

    def __str__(self) -> str:
        whose = "the output" if self.operand == OUTPUT else f"operand {self.operand}"
        return f"axis {self.position} of {whose}"


def pair_axes(
    spec: Spec, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...] | None = None
) -> tuple[OperandAxis, ...]:
    """Pair every axis of the operands with its subscript, and of the output, if its shape is given.

    Raises `SizeError` where the number of operands, or of an operand's dimensions, is not
    the spec's.

    Examples
    --------
    >>> [str(axis.subscript) for axis in pair_axes(Spec.parse("ij,jk"), [(2, 3), (3, 4)])]
    ['i', 'j', 'j', 'k']
    """
    if len(shapes) != len(spec.operands):
        raise SizeError(
            f"spec {str(spec)!r} has {len(spec.operands)} operands, "
            f"but {len(shapes)} arrays are given"
        )
    found = []
    given = list(zip(spec.names[1:], spec.operands, shapes, strict=True))
    if output is not None:
        given.append((OUTPUT, spec.output, output))
    for name, tensor, shape in given:
        if len(shape) != len(tensor.subscripts):
            whose = "the output" if name == OUTPUT else f"operand {name}"
            raise SizeError(
                f"{whose} of {str(spec)!r} is {str(tensor)!r}, {len(tensor.subscripts)} "
                f"dimensions, but its array has {len(shape)}: shape {shape}"
            )
        for position, (subscript, extent) in enumerate(zip(tensor.subscripts, shape, strict=True)):
            found.append(OperandAxis(name, position, subscript, extent))
    return tuple(found)


def infer(
    spec: Spec, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...] | None = None
) -> dict[str, int]:
    """Return the extent of every letter, such that each operand has the shape given.

    So has the output, if its shape is given.

    Plain subscripts say theirs directly. An affine one in which a single letter is unknown is
    solved for it, again and again until nothing new comes out; systems in which every
    subscript has two unknowns are refused, not solved.

    Examples
    --------
    >>> infer(Spec.parse("kh-c[2h+r]-kcr"), [(8, 113), (16, 8, 3)])
    {'c': 8, 'k': 16, 'r': 3, 'h': 56}
    """
    given = pair_axes(spec, shapes, output)
    sizes: dict[str, int] = {}
    source: dict[str, OperandAxis] = {}
    for axis in given:
        if not axis.subscript.plain:
            continue
        letter = axis.subscript.letters[0]
        if sizes.setdefault(letter, axis.extent) != axis.extent:
            raise SizeError(
                f"the extents of {letter!r} in {str(spec)!r} disagree: "
                f"{sizes[letter]} on {source[letter]}, {axis.extent} on {axis}"
            )
        source.setdefault(letter, axis)
    before = -1
    while len(sizes) > before:
        before = len(sizes)
        for axis in given:
            unknown = [letter for letter in axis.subscript.letters if letter not in sizes]
            if len(unknown) == 1:
                sizes |= _solve(spec, axis, unknown[0], sizes)
    unsolved = [axis for axis in given if any(x not in sizes for x in axis.subscript.letters)]
    if unsolved:
        lines = "; ".join(
            f"{axis} is {axis.subscript} with extent {axis.extent}" for axis in unsolved
        )
        letters = ", ".join(repr(letter) for letter in spec.letters if letter not in sizes)
        raise SizeError(
            f"the shapes do not determine {letters} in {str(spec)!r}: {lines}; "
            "give the sizes to Problem.of"
        )
    for axis in given:
        require(spec, axis, sizes)
    return sizes


def require(spec: Spec, axis: OperandAxis, sizes: Mapping[str, int], zeros: int = 0) -> None:
    """Raise `SizeError` unless the axis has the extent that the sizes demand, but for zeros.

    Examples
    --------
    >>> spec = Spec.parse("ij,jk")
    >>> require(spec, pair_axes(spec, [(2, 3), (3, 4)])[1], {"i": 2, "j": 4, "k": 4})
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: axis 1 of operand A of 'ij,jk->ik' has extent 3, \
but 'j' with j=4 needs 4
    """
    needed = axis.subscript.extent(sizes) - zeros
    if axis.extent != needed:
        padded = f" and {zeros} zeros of padding" if zeros else ""
        raise SizeError(
            f"{axis} of {str(spec)!r} has extent {axis.extent}, "
            f"but {str(axis.subscript)!r} with {_given(axis, sizes)}{padded} needs {needed}"
        )


def _solve(spec: Spec, axis: OperandAxis, unknown: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the one letter that the axis still lacks, or nothing if it can have any extent."""
    known = [(c, letter) for c, letter in axis.subscript.terms if letter != unknown]
    some_zero = any(sizes[letter] == 0 for _, letter in known)
    if axis.extent == 0:
        return {} if some_zero else {unknown: 0}
    what = f"{axis} of {str(spec)!r} has extent {axis.extent}, but {str(axis.subscript)!r} with "
    what += _given(axis, sizes)
    if some_zero:
        raise SizeError(f"{what} needs 0")
    step = next(c for c, letter in axis.subscript.terms if letter == unknown)
    least = 1 + sum(c * (sizes[letter] - 1) for c, letter in known)
    if axis.extent < least:
        raise SizeError(f"{what} needs at least {least}, whatever {unknown!r} is")
    count, rest = divmod(axis.extent - least, step)
    if rest:
        raise SizeError(
            f"{what} needs {least} plus a multiple of {step}: "
            f"{axis.extent - rest} or {axis.extent - rest + step} would do"
        )
    return {unknown: count + 1}


def _given(axis: OperandAxis, sizes: Mapping[str, int]) -> str:
    """Return the sizes of an axis's letters as text, those that are known."""
    known = [f"{letter}={sizes[letter]}" for letter in axis.subscript.letters if letter in sizes]
    return ", ".join(known) or "any sizes"


def read_extents(text: str) -> dict[str, int]:
    """Read ``"a=72, b=72"``."""
    sizes: dict[str, int] = {}
    for item in re.split(r"[,\s]+", re.sub(r"\s*=\s*", "=", text.strip())):
        if not item:
            continue
        letter, equals, digits = item.partition("=")
        if not equals or not letter or not re.fullmatch(r"[+-]?[0-9]{1,20}", digits):
            raise SizeError(f"expected sizes such as 'a=72, b=72', found {item!r} in {text!r}")
        if letter in sizes:
            raise SizeError(f"two sizes for {letter!r} in {text!r}: {sizes[letter]} and {digits}")
        sizes[letter] = int(digits)
    return sizes
