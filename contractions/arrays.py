"""Arrays as users give them: numpy's, what numpy makes arrays of, and other libraries' tensors.

A tensor is an object that exports its memory through DLPack (``__dlpack__``), as in torch and JAX.
It is read, and written to, where it lies.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import DtypeError, TensorError
from tilesolve.contractions.half_precision import array_dtype

HOST_DEVICES = (1, 3, 11)
"""Kinds of devices whose memory CPUs address, as DLPack numbers them: CPUs, and pinned memory."""

_PENDING = {
    "is_conj": ("conjugation", "resolve_conj"),
    "is_neg": ("negation", "resolve_neg"),
}
"""What torch notes on a view instead of doing it, and what does it."""


def read_array(value: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Return what was given as an array, by its name in messages.

    Raises
    ------
    DtypeError
        If it is no array, or has a mask, which nothing here computes with.
    TensorError
        If it is a tensor whose memory cannot be read.
    """
    if type(value) is np.ndarray:
        return value
    if is_tensor(value):
        return view_tensor(value, name)
    if np.ma.getmask(value) is not np.ma.nomask:
        raise DtypeError(f"{name} is a masked array, whose mask would be lost: give its filled()")
    try:
        return np.asarray(value)
    except Exception as error:  # of whatever kind the object raises
        raise DtypeError(f"{name} is no array: {error}") from error


def is_tensor(value: object) -> bool:
    """Return whether something exports its memory through DLPack, and is no array of numpy."""
    return hasattr(type(value), "__dlpack__") and not isinstance(value, np.ndarray)


def view_output(out: object, name: str) -> npt.NDArray[Any]:
    """Return an array or a tensor that a result is written to as an array of the same memory.

    It may be read-only.

    Raises
    ------
    DtypeError
        If it is something else.
    TensorError
        If it is a tensor whose memory cannot be used.
    """
    if isinstance(out, np.ndarray):
        return out
    if is_tensor(out):
        return view_tensor(out, name)
    raise DtypeError(
        f"{name} must be a numpy array, or a tensor that shares its memory, "
        f"got {type(out).__name__}"
    )


def view_tensor(tensor: Any, name: str) -> npt.NDArray[Any]:  # noqa: ANN401 - of any library
    """Return an array of a tensor's memory, without a copy.

    A tensor of an older exporter, which cannot tell whether it is read-only, counts as read-only.

    Raises
    ------
    TensorError
        If gradients or another operation depend on it, or its memory is not the CPU's.
    """
    if getattr(tensor, "requires_grad", False) is True:
        raise TensorError(
            f"{name} requires a gradient, which would not pass through here: "
            "give tensor.detach(), which shares its memory"
        )
    for test, (what, cure) in _PENDING.items():
        if hasattr(tensor, test) and getattr(tensor, test)():
            raise TensorError(
                f"{name} is a view whose {what} is pending: give tensor.{cure}(), a copy"
            )
    try:
        kind, number = tensor.__dlpack_device__()
        if kind in HOST_DEVICES:
            return _from_dlpack(tensor)
    except Exception as error:  # of whatever kind the library raises
        raise TensorError(
            f"{name} is a {type(tensor).__name__} whose memory cannot be read: {error}"
        ) from error
    place = getattr(tensor, "device", f"{int(kind)}:{number}")
    raise TensorError(f"{name} is on the device {place}: give a copy in the CPU's memory")


def _from_dlpack(tensor: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - of any library
    """Return an array of a tensor's memory; torch's bfloat16 comes as integers of as many bytes."""
    if str(getattr(tensor, "dtype", None)) != "torch.bfloat16":
        return np.from_dlpack(tensor)
    bits = tensor.view(import_module("torch").int16)
    return np.from_dlpack(bits).view(array_dtype("bfloat16"))
