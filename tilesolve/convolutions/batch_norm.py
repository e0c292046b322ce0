"""Batch normalisation as a factor and a term for each channel."""

from __future__ import annotations

from numbers import Real

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DtypeError, SizeError
from tilesolve.packing.memory_overlap import Array

BatchNorm = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, float]
"""Gamma, beta, mean and variance of each channel, and what is added to the variance."""


def fold_batchnorm(
    gamma: npt.ArrayLike,
    beta: npt.ArrayLike,
    mean: npt.ArrayLike,
    var: npt.ArrayLike,
    eps: float = 1e-5,
) -> tuple[Array, Array]:
    """Return the scale and the shift that a batch normalisation multiplies by and adds.

    Parameters
    ----------
    gamma, beta
        Its weight and its bias for each channel.
    mean, var
        Its running mean and variance for each channel.
    eps
        Added to the variance.

    Returns
    -------
    scale, shift
        In gamma's dtype; what ``plan(..., epilogue="*k +k")`` takes as operands.

    Raises
    ------
    SizeError
        If the four have different shapes, or a variance with `eps` is not positive.
    DtypeError
        If something is no array of real numbers.

    Examples
    --------
    >>> scale, shift = fold_batchnorm([2.0], [1.0], [3.0], [4.0], eps=0.0)
    >>> scale.tolist(), shift.tolist()
    ([1.0], [-2.0])
    """
    named = {"gamma": gamma, "beta": beta, "mean": mean, "var": var}
    arrays = {
        name: read_reals(one, f"{name} of a batch normalisation") for name, one in named.items()
    }
    if not isinstance(eps, Real):
        raise DtypeError(f"eps of a batch normalisation must be a number, got {eps!r}")
    for name, one in arrays.items():
        if one.shape != arrays["gamma"].shape:
            raise SizeError(
                f"{name} of a batch normalisation has the shape {one.shape}, "
                f"gamma has {arrays['gamma'].shape}"
            )
    spread = arrays["var"].astype(np.float64) + float(eps)
    if not (spread > 0).all():
        raise SizeError(f"var + eps of a batch normalisation must be positive, got {spread.min()}")
    scale = arrays["gamma"] / np.sqrt(spread)
    shift = arrays["beta"] - arrays["mean"] * scale
    dtype = np.result_type(arrays["gamma"].dtype, np.float32)
    return scale.astype(dtype), shift.astype(dtype)


def read_reals(value: npt.ArrayLike, name: str) -> Array:
    """Return an array of real numbers, by its name in messages.

    Examples
    --------
    >>> read_reals([1j], "gamma")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.DtypeError: gamma must be real numbers, got complex128
    """
    array = read_array(value, name)
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{name} must be real numbers, got {array.dtype}")
    return array
