"""Dtypes as users name them: numpy's, those of other libraries, and text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_PACKAGES = ("jax.numpy", "jax", "jnp", "ml_dtypes", "np", "numpy", "tensorflow", "tf", "torch")
"""What a name may begin with, before a dot."""

_TORCH = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
"""Torch's other names of dtypes, some of which mean something else to numpy."""


def find_dtype(given: npt.DTypeLike) -> np.dtype[Any]:
    """Return numpy's dtype for a dtype, or the name of one, of numpy or of another library.

    No library is imported for it: dtypes of torch and TensorFlow are known by how they print.

    Raises
    ------
    TypeError
        If numpy has no such dtype.

    Examples
    --------
    >>> find_dtype("torch.float"), find_dtype("jax.numpy.complex64"), find_dtype("<f8")
    (dtype('float32'), dtype('complex64'), dtype('float64'))
    """
    name = written_name(given)
    try:
        return np.dtype(given if name is None else name)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        SyntaxError,
        ValueError,
    ) as e:
        raise TypeError(str(e)) from e


def written_name(given: object) -> str | None:
    """Return text, or what a dtype of another library prints, as numpy writes it; else None.

    Examples
    --------
    >>> written_name("torch.float"), written_name("f4"), written_name(float)
    ('float32', 'f4', None)
    """
    library = type(given).__module__.partition(".")[0]
    text = given if isinstance(given, str) else None
    if library == "torch":
        text = str(given)
    elif library == "tensorflow":
        text = f"tensorflow.{getattr(given, 'name', given)}"
    if text is None:
        return None
    package, dot, name = text.rpartition(".")
    if not dot or package not in _PACKAGES:
        return text
    return _TORCH.get(name, name) if package == "torch" else name
