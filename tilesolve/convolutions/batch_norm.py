"""Batch normalisation as a factor and a term for each channel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import SizeError
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
        What is added to the variance.

    Returns
    -------
    scale, shift
        In gamma's dtype; what ``plan(..., epilogue="*k +k")`` takes as operands.

    Raises
    ------
    SizeError
        If the four have different shapes, or a variance with `eps` is not positive.

    Examples
    --------
    >>> scale, shift = fold_batchnorm([2.0], [1.0], [3.0], [4.0], eps=0.0)
    >>> scale.tolist(), shift.tolist()
    ([1.0], [-2.0])
    """
    named = {"gamma": gamma, "beta": beta, "mean": mean, "var": var}
    arrays = {name: np.asarray(one) for name, one in named.items()}
    for name, one in arrays.items():
        if one.shape != arrays["gamma"].shape:
            raise SizeError(
                f"{name} of a batch normalisation has the shape {one.shape}, "
                f"gamma has {arrays['gamma'].shape}"
            )
    spread = arrays["var"].astype(np.float64) + eps
    if not (spread > 0).all():
        raise SizeError(f"var + eps of a batch normalisation must be positive, got {spread.min()}")
    scale = arrays["gamma"] / np.sqrt(spread)
    shift = arrays["beta"] - arrays["mean"] * scale
    dtype = np.result_type(arrays["gamma"].dtype, np.float32)
    return scale.astype(dtype), shift.astype(dtype)
