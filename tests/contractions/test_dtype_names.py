"""Dtypes as users name them."""

import sys

import numpy as np
import pytest

from tilesolve import Problem, expression, plan
from tilesolve.contractions.errors import DtypeError
from tilesolve.contractions.problem import DTYPES, dtype_name

NAMES = {
    "torch.float32": "float32",
    "torch.float": "float32",  # numpy's float is float64
    "torch.double": "float64",
    "torch.cfloat": "complex64",
    "torch.cdouble": "complex128",
    "jax.numpy.float32": "float32",
    "jnp.complex64": "complex64",
    "tf.float64": "float64",
    "tensorflow.complex128": "complex128",
    "numpy.float32": "float32",
    "float": "float64",
    "float32": "float32",
    "complex64": "complex64",
    "f4": "float32",
    "=f4": "float32",
    "c16": "complex128",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_other_libraries_are_understood(name):
    """They mean what their library means by them, for problems, plans and expressions."""
    assert dtype_name(name) == NAMES[name]
    assert Problem.of("ij-ik-kj", 4, name).dtype == NAMES[name]
    assert plan("ij-ik-kj", 4, "i7-6700k", dtype=name).problem.dtype == NAMES[name]
    assert expression("ij,jk", (4, 4), (4, 4), dtype=name).dtype == np.dtype(NAMES[name])


def foreign(module, **attributes):
    """A dtype of a library that is not there: one that prints as its own do."""
    return type("DType", (), {"__module__": module, **attributes})()


def test_dtypes_of_other_libraries_are_known_by_how_they_print():
    """Neither torch nor TensorFlow is imported for it."""
    before = set(sys.modules)
    assert dtype_name(foreign("torch", __str__=lambda self: "torch.float")) == "float32"
    flow = foreign("tensorflow.python.framework.dtypes", name="complex64")
    assert dtype_name(flow) == "complex64"
    assert dtype_name(foreign("jax", dtype=np.dtype("f8"))) == "float64"
    assert not {"torch", "tensorflow"} & (set(sys.modules) - before)


def test_dtypes_of_torch():
    """Torch's own objects, where it is installed."""
    torch = pytest.importorskip("torch")
    for name in ("float", "double", "cfloat", "cdouble", "float32", "complex128"):
        assert dtype_name(getattr(torch, name)) == NAMES.get(f"torch.{name}", name)
    with pytest.raises(DtypeError, match="tilesolve computes in float32"):
        dtype_name(torch.int8)


@pytest.mark.parametrize(
    "name",
    [
        *("torch.bool", "torch.int32", "torch.complex32", "torch.", "torch", "cupy.float32"),
        *(">f4", ">c16", "i4", "O", "U3", "object", "nonsense", "", "f4,f4", "torch.f999"),
        *(None, 4, 4.0, b"f4x", [], {}, object(), [("a", "f4")]),
        foreign("torch", __str__=lambda self: "torch.quint8"),
        foreign("jax", dtype="nothing"),
    ],
)
def test_other_dtypes_are_refused_with_the_list(name):
    """Nothing is rounded or swapped silently."""
    with pytest.raises(DtypeError, match=f"tilesolve computes in {', '.join(DTYPES)}"):
        dtype_name(name)
