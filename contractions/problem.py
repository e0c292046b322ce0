"""A contraction with its sizes: a spec, an extent for each letter, and a dtype."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.argument_kinds import (
    check_iterable,
    check_kind,
    check_kinds,
    check_position,
)
from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.dtype_names import find_dtype, written_name
from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.half_precision import HALF_DTYPES, is_half, summed_dtype
from tilesolve.contractions.inference import OperandAxis, infer, pair_axes, read_extents, require
from tilesolve.contractions.padding import Padding, check_padding
from tilesolve.contractions.pairing import Pairing
from tilesolve.contractions.spec import Spec

if TYPE_CHECKING:
    from tilesolve.contractions.classes import IndexClass

DTYPES = ("float32", "float64", "complex64", "complex128")
"""What tilesolve computes in."""

OPERAND_DTYPES = (*DTYPES, *HALF_DTYPES)
"""What tensors may be of: the sums of halves are float32."""

PAIRED_DTYPES = ("float32", "float64")
"""What other pairs than products may be of."""

MAX_EXTENT = 2**63 - 1
"""The largest extent of a letter: what an array's index can count to."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A spec, the extent of each of its letters, and the dtype of all its tensors.

    `Problem.of` and `Problem.from_arrays` are the usual ways to make one. Extents of 0 and 1
    are valid.

    Parameters
    ----------
    spec
        What is computed.
    extents
        Pairs of a letter and its extent, in the order of ``spec.letters``.
    dtype
        One of ``OPERAND_DTYPES``.
    padding
        Zeros at the ends of operands' axes, which the arrays do not have.
    constant
        Positions of the tensors that stay the same from call to call: 1 is the first operand.
    vector
        The letter of the output that vectors lie along; None for its last one.
    aligned_output
        Whether the output begins with a line of the caches, as what plans return does. Otherwise it
        begins amid one, as numpy's large arrays do.
    pairing
        What is done with each pair of elements; None where they are multiplied and added up.

    Examples
    --------
    >>> problem = Problem.of("abcd-aebf-dfce", 72)
    >>> problem.flops
    278628139008
    >>> problem.shape(1), problem.bytes[1]
    ((72, 72, 72, 72), 214990848)
    >>> [index_class.name for index_class in problem.classes]
    ['M', 'N', 'K']
    """

    TAKEN: ClassVar[tuple[str, ...]] = OPERAND_DTYPES
    """What tensors may be of."""
    spec: Spec
    extents: tuple[tuple[str, int], ...]
    dtype: str = "float64"
    padding: tuple[Padding, ...] = ()
    constant: tuple[int, ...] = ()
    vector: str | None = None
    aligned_output: bool = False
    pairing: Pairing | None = None
    shapes: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """The shapes of all arrays, the output's first: without the zeros around them."""
    sizes: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """The extent of each letter; read-only."""
    itemsize: int = field(init=False, repr=False, compare=False)
    """Bytes of one element."""
    sum_itemsize: int = field(init=False, repr=False, compare=False)
    """Bytes of one element as it is packed and summed."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_kind(self.spec, Spec, "spec of a Problem", "a Spec", SpecError)
        check_kinds(self.extents, tuple, "extents", "pairs of a letter and a size", SizeError)
        letters = tuple(pair[0] for pair in self.extents if len(pair) == 2)
        if letters != self.spec.letters:
            raise SizeError(
                f"the extents of {str(self.spec)!r} are of {', '.join(letters)}; "
                f"they must be of {', '.join(self.spec.letters)}, in this order"
            )
        for letter, extent in self.extents:
            if type(extent) is not int or not 0 <= extent <= MAX_EXTENT:
                raise SizeError(
                    f"the size of {letter!r}{_home(self.spec, letter)} must be an integer "
                    f"from 0 to 2**63-1, got {extent!r}"
                )
        if not isinstance(self.dtype, str) or self.dtype not in self.TAKEN:
            known = ", ".join(self.TAKEN)
            raise DtypeError(f"the dtype must be one of {known}, got {self.dtype!r}")
        check_kinds(self.padding, Padding, "padding", "Padding", SizeError)
        check_kinds(self.constant, int, "constant", "numbers of tensors", SizeError)
        check_kind(self.vector, (str, NoneType), "vector", "a letter or None", SpecError)
        check_kind(self.aligned_output, bool, "aligned_output", "True or False", SpecError)
        check_kind(self.pairing, (Pairing, NoneType), "pairing", "a Pairing or None", SpecError)
        if self.pairing and (self.padding or len(self.spec.operands) != 2):
            raise SpecError(f"{self.pairing} is of two operands without padding")
        if self.pairing and self.dtype not in PAIRED_DTYPES:
            raise DtypeError(f"{self.pairing} is computed in {', '.join(PAIRED_DTYPES)}")
        padding = check_padding(self.spec, dict(self.extents), self.padding) if self.padding else ()
        object.__setattr__(self, "padding", padding)
        object.__setattr__(self, "constant", _check_constant(self.spec, self.constant))
        object.__setattr__(self, "sizes", MappingProxyType(dict(self.extents)))
        size = 2 if is_half(self.dtype) else np.dtype(self.dtype).itemsize
        object.__setattr__(self, "itemsize", size)
        object.__setattr__(self, "sum_itemsize", np.dtype(summed_dtype(self.dtype)).itemsize)
        object.__setattr__(self, "shapes", _find_shapes(self))
        object.__setattr__(self, "_hash", hash(self._given))

    @property
    def _given(self) -> tuple[object, ...]:
        """What it was made of."""
        given = self.spec, self.extents, self.dtype, self.padding, self.constant
        return *given, self.vector, self.aligned_output, self.pairing

    def __hash__(self) -> int:
        return self._hash  # what is kept for problems is looked up hundreds of times in a plan

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._given  # hashes differ from process to process

    @classmethod
    def of(
        cls,
        spec: Spec | str,
        sizes: Mapping[str, int] | str | int,
        dtype: npt.DTypeLike = "float64",
        padding: Iterable[Padding] = (),
        constant: Iterable[int] = (),
    ) -> Self:
        """Make a problem from a spec and sizes.

        Parameters
        ----------
        spec
            A `Spec`, or text that `Spec.parse` reads.
        sizes
            The extent of each letter: a mapping, text such as ``"a=72, b=72"`` (commas, spaces
            or both), or one integer for all letters.
        dtype
            Anything that numpy takes for one of ``OPERAND_DTYPES``, or another library's name of
            it, such as ``"torch.float32"``.
        padding
            Zeros at the ends of operands' axes.
        constant
            Positions of the tensors that stay the same from call to call.

        Examples
        --------
        >>> Problem.of("ab-acd-dbc", "a=2 b=3, c=4 d=5", np.float32).shapes
        ((2, 3), (2, 4, 5), (5, 3, 4))
        >>> Problem.of("ab-ac-cb", {"a": 2, "b": 3})
        Traceback (most recent call last):
            ...
        tilesolve.contractions.errors.SizeError: no size for 'c' of A, B in 'ab-ac-cb'; \
sizes are given for a, b
        """
        spec = spec if isinstance(spec, Spec) else Spec.parse(spec)
        if isinstance(sizes, str):
            sizes = read_extents(sizes)
        elif not isinstance(sizes, Mapping):
            sizes = dict.fromkeys(spec.letters, sizes)
        for letter in sizes:
            if letter not in spec.letters:
                raise SizeError(
                    f"a size is given for {letter!r}, which {str(spec)!r} does not have"
                )
        for letter in spec.letters:
            if letter not in sizes:
                raise SizeError(
                    f"no size for {letter!r}{_home(spec, letter)}; "
                    f"sizes are given for {', '.join(sizes) or 'nothing'}"
                )
        extents = tuple((letter, _integer(spec, letter, sizes[letter])) for letter in spec.letters)
        for name, given in (("padding", padding), ("constant", constant)):
            check_iterable(given, name, "a sequence", SizeError)
        return cls(spec, extents, dtype_name(dtype, cls.TAKEN), tuple(padding), tuple(constant))

    def part(self, sizes: Mapping[str, int]) -> Self:
        """Return the problem with smaller extents, with as much padding as leaves an element.

        Examples
        --------
        >>> whole = Problem.of("h-[h+r]-r", "h=8 r=5", padding=[Padding(1, 0, 2, 2)])
        >>> whole.part({"h": 1, "r": 3}).padding
        (Padding(tensor=1, axis=0, before=2, after=0),)
        """
        reaches = {
            (one.tensor, one.axis): self.spec.tensors[one.tensor].subscripts[one.axis]
            for one in self.padding
        }
        padding = (one.within(reaches[one.tensor, one.axis].extent(sizes)) for one in self.padding)
        found = type(self).of(self.spec, sizes, self.dtype, padding, self.constant)
        return replace(
            found,
            vector=self.vector,
            aligned_output=self.aligned_output,
            pairing=self.pairing,
        )

    def with_vector(self, letter: str | None) -> Self:
        """Return the problem with vectors along a letter of the output; None for its last one.

        Examples
        --------
        >>> Problem.of("mn-mk-kn", 8).with_vector("m").lane
        'm'
        """
        check_kind(letter, (str, NoneType), "letter", "a letter or None", SpecError)
        last = self.spec.output.letters[-1:]
        return replace(self, vector=None if (letter,) == last else letter)

    @property
    def lane(self) -> str | None:
        """The letter that vectors lie along; None if the output has none."""
        return self.vector or next(reversed(self.spec.output.letters), None)

    @classmethod
    def from_arrays(
        cls, spec: Spec | str, *arrays: npt.ArrayLike, dtype: npt.DTypeLike | None = None
    ) -> Self:
        """Make the problem that arrays pose as the operands of a spec.

        Extents come from the shapes; an affine subscript with one unknown letter is solved for
        it. The dtype is the arrays' common one, unless given.

        Examples
        --------
        >>> image, filters = np.zeros((8, 113)), np.zeros((16, 8, 3))
        >>> dict(Problem.from_arrays("kh-c[2h+r]-kcr", image, filters).sizes)
        {'k': 16, 'h': 56, 'c': 8, 'r': 3}
        """
        spec = spec if isinstance(spec, Spec) else Spec.parse(spec)
        given = _as_arrays(spec, arrays)
        sizes = infer(spec, [array.shape for array in given])
        if dtype is None:
            try:
                dtype = np.result_type(*(array.dtype for array in given))
            except TypeError as error:
                names = ", ".join(str(array.dtype) for array in given)
                raise DtypeError(f"the operands have no common dtype: {names}") from error
        return cls.of(spec, sizes, dtype)

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Return the shape of a tensor's array: 0 is the output, 1 the first operand."""
        check_position(tensor, len(self.spec.tensors), "tensor", SizeError)
        return self.shapes[tensor]

    def strides(self, tensor: int) -> dict[str, int]:
        """Return the bytes between neighbours along each letter of a tensor in C order.

        Examples
        --------
        >>> Problem.of("mn-mk-kn", 10).strides(1)
        {'m': 80, 'k': 8}
        """
        shape = self.shape(tensor)
        pitches = [self.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return self.spec.tensors[tensor].strides(pitches)

    @property
    def flops(self) -> int:
        """Floating-point operations: for each point, multiply all operands and add once.

        A real multiplication or addition is one, a complex multiplication six and a complex
        addition two: two operands make 2 per point, or 8 if complex. So it
        does for any other pairing, whose operations count as these two.
        """
        multiply, add = (6, 2) if self.dtype.startswith("complex") else (1, 1)
        per_point = (len(self.spec.operands) - 1) * multiply + add
        return per_point * prod(extent for _, extent in self.extents)

    @property
    def bytes(self) -> tuple[int, ...]:
        """Bytes of each tensor, the output first."""
        return tuple(prod(shape) * self.itemsize for shape in self.shapes)

    @property
    def intensity(self) -> float:
        """Flops per byte if each tensor is moved once; 0 if there is nothing to move."""
        total = sum(self.bytes)
        return self.flops / total if total else 0.0

    @property
    def classes(self) -> tuple[IndexClass, ...]:
        """The classes of the spec's indices."""
        from tilesolve.contractions.classes import find_classes

        return find_classes(self.spec)

    def check_operands(self, *arrays: npt.ArrayLike) -> tuple[npt.NDArray[np.generic], ...]:
        """Return the operands as arrays; raise `SizeError` if a shape is not the problem's."""
        given = _as_arrays(self.spec, arrays)
        for axis in pair_axes(self.spec, [array.shape for array in given]):
            self._require(axis)
        return given

    def check_operand(self, at: int, array: npt.ArrayLike) -> npt.NDArray[np.generic]:
        """Return one operand as an array, given its number from 0 on.

        Raises
        ------
        SizeError
            If its shape is not the problem's.
        """
        check_position(at, len(self.spec.operands), "at", SizeError)
        (given,) = _as_arrays(self.spec, (array,), at)
        shapes = list(self.shapes[1:])
        shapes[at] = given.shape
        for axis in pair_axes(self.spec, shapes):
            self._require(axis)
        return given

    def _require(self, axis: OperandAxis) -> None:
        """Raise `SizeError` unless an axis has the extent that it must have."""
        zeros = sum(
            one.before + one.after
            for one in self.padding
            if (self.spec.names[one.tensor], one.axis) == (axis.operand, axis.position)
        )
        require(self.spec, axis, self.sizes, zeros)

    def __repr__(self) -> str:
        along = f", vectors along {self.vector}" if self.vector else ""
        return f"<Problem {self}{along}>"

    def __str__(self) -> str:
        sizes = " ".join(f"{letter}={extent}" for letter, extent in self.extents)
        padding = "; ".join(map(str, self.padding))
        names = ", ".join(self.spec.names[at] for at in self.constant)
        constant = f"constant {names}" if names else ""
        aligned = f"aligned {self.spec.names[0]}" if self.aligned_output else ""
        pairing = str(self.pairing or "")
        parts = (str(self.spec), sizes, self.dtype, padding, constant, aligned, pairing)
        return " ".join(filter(None, parts))


def _find_shapes(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of all arrays of a problem."""
    zeros = {(one.tensor, one.axis): one.before + one.after for one in problem.padding}
    return tuple(
        tuple(
            extent - zeros.get((number, axis), 0)
            for axis, extent in enumerate(tensor.shape(problem.sizes))
        )
        for number, tensor in enumerate(problem.spec.tensors)
    )


def _check_constant(spec: Spec, constant: Iterable[int]) -> tuple[int, ...]:
    """Return positions of operands in order, each once."""
    for at in constant:
        if not 1 <= at <= len(spec.operands):
            raise SizeError(
                f"tensor {at} cannot be constant: {str(spec)!r} has {len(spec.operands)} "
                "operands, counted from 1"
            )
    return tuple(sorted(set(constant)))


def _home(spec: Spec, letter: str) -> str:
    """Return where a letter lives, as an error message says it."""
    tensors = zip(spec.names, spec.tensors, strict=True)
    names = ", ".join(name for name, tensor in tensors if letter in tensor.letters)
    return f" of {names} in {str(spec)!r}"


def _integer(spec: Spec, letter: str, value: object) -> int:
    """Return a size as an int; booleans and floats are refused, numpy's integers taken."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise SizeError(
            f"the size of {letter!r}{_home(spec, letter)} must be an integer, got {value!r}"
        ) from None


def dtype_name(dtype: npt.DTypeLike | None, taken: Sequence[str] = OPERAND_DTYPES) -> str:
    """Return the name of a supported dtype, however it is given."""
    supported = ", ".join(taken)
    name = written_name(dtype)
    if name is not None and name in taken:
        return name
    if dtype is None:
        raise DtypeError(f"no dtype is given; tilesolve computes in {supported}")
    try:
        found = find_dtype(dtype)
    except TypeError as error:
        raise DtypeError(f"{dtype!r} is not a dtype; tilesolve computes in {supported}") from error
    if found.name not in taken or not found.isnative:
        raise DtypeError(f"tilesolve computes in {supported}, not in {found.str} ({found.name})")
    return found.name


def _as_arrays(
    spec: Spec, arrays: tuple[npt.ArrayLike, ...], first: int = 0
) -> tuple[npt.NDArray[np.generic], ...]:
    """Return what was passed as arrays; the error names the operand that is not one.

    They are operands from a number on.
    """
    names = dict(enumerate(spec.names[1:]))
    return tuple(
        read_array(array, f"operand {names.get(at, at)} of {str(spec)!r}")
        for at, array in enumerate(arrays, first)
    )
