"""Operands that compute for themselves, by `__array_function__`: numpy hands calls on to them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilesolve.contractions.errors import DtypeError


def find_override(arguments: Iterable[object]) -> object:
    """Return the first argument that has an `__array_function__` of its own, or None."""
    for argument in arguments:
        own = getattr(type(argument), "__array_function__", None)
        if own is not None and own is not np.ndarray.__array_function__:
            return argument
    return None


def check_no_options(owner: object, **options: object) -> None:
    """Raise `DtypeError` for an option of ours that another library would have to heed."""
    for name, value in options.items():
        if value is not None:
            raise DtypeError(
                f"{name}={value!r} is for numpy arrays; {type(owner).__name__} computes for itself"
            )
