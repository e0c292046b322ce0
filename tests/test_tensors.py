"""Tensors of other libraries: read where they lie, written to where they lie, or refused."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tensors import Failing, Older, Tensor

import tilesolve
from tilesolve import conv, conv_layer, einsum, expression, plan, tensordot, transpose
from tilesolve.contractions.errors import (
    DtypeError,
    PlanError,
    SizeError,
    TensorError,
    TilesolveError,
)

MACHINE = "i7-6700k"
RNG = np.random.default_rng(3)
X, W = RNG.random((1, 3, 6, 6)), RNG.random((4, 3, 3, 3))
A, B, D = RNG.random((5, 6)), RNG.random((6, 7)), RNG.random((7, 3))
LAYER = {"padding": 1, "machine": MACHINE}


def batch(a, b, out=None):
    return plan("ij,jk->ik", (A, B), MACHINE).batch([a, a], [b, b], out)


CALLS = {
    "plan": (lambda a, b, out=None: plan("ij,jk->ik", (A, B), MACHINE)(a, b, out), (A, B)),
    "batch": (batch, (A, B)),
    "whole batch": (
        lambda a, b, out=None: plan("ij,jk->ik", (A, B), MACHINE).batch(a, b, out),
        (np.stack([A, A]), np.stack([B, B])),
    ),
    "einsum": (lambda a, b, out=None: einsum("ij,jk->ik", a, b, out=out), (A, B)),
    "einsum of one": (lambda a, out=None: einsum("ij->j", a, out=out), (A,)),
    "einsum of three": (lambda *x, out=None: einsum("ij,jk,kl->il", *x, out=out), (A, B, D)),
    "expression": (
        lambda a, b, out=None: expression("ij,jk->ik", A.shape, B.shape)(a, b, out=out),
        (A, B),
    ),
    "transpose": (lambda a, out=None: transpose(a, out=out), (A,)),
    "conv": (lambda x, w, out=None: conv(x, w, padding=1, out=out), (X, W)),
    "layer": (lambda x, w, out=None: conv_layer(X.shape, w, **LAYER)(x, out), (X, W)),
}
"""Functions of arrays and an `out`, and arrays for them."""


def call(name, wrap, out=None):
    """Call a function with operands that were wrapped."""
    function, arrays = CALLS[name]
    return function(*map(wrap, arrays), out=out)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", [Tensor, Older])
def test_tensors_are_operands(name, kind):
    """They give what arrays give, and are not copied: read-only memory may be read."""
    np.testing.assert_array_equal(call(name, kind), call(name, np.asarray))


@pytest.mark.parametrize("name", CALLS)
def test_results_are_written_into_a_tensor(name):
    """Into its own memory, whatever its strides are; and that very object is returned."""
    right = np.asarray(call(name, np.asarray))
    for layout in (np.empty(right.shape), np.empty((*right.shape, 2))[..., 0]):
        layout[...] = np.nan
        out = Tensor(layout)
        for wrap in (Tensor, np.asarray):
            assert call(name, wrap, out) is out
            np.testing.assert_array_equal(layout, right)
            layout[...] = np.nan


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        (Tensor, {"requires_grad": True}, r"requires a gradient.*detach\(\)"),
        (Tensor, {"is_conj": lambda: True}, r"conjugation is pending.*resolve_conj\(\)"),
        (Tensor, {"is_neg": lambda: True}, r"negation is pending.*resolve_neg\(\)"),
        (Tensor, {"device": (2, 0)}, "is on the device 2:0"),
        (Failing, {}, "cannot be read: the storage is gone"),
    ],
)
def test_tensors_that_cannot_be_used_are_refused(name, kind, flags, message):
    """As operands and as `out`; nothing has been written then."""
    with pytest.raises(TensorError, match=message):
        call(name, lambda array: kind(array, **flags))
    room = np.full(np.shape(call(name, np.asarray)), 7.0)
    with pytest.raises(TensorError, match=f"(?s)^out.*{message}"):
        call(name, np.asarray, kind(room, **flags))
    assert np.all(room == 7)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", [Tensor, Older])
def test_read_only_tensors_are_no_out(name, kind):
    """Nor are those of which nobody can tell."""
    room = np.full(np.shape(call(name, np.asarray)), 7.0)
    room.flags.writeable = kind is Older
    with pytest.raises(PlanError if kind is Older else TilesolveError, match=r"out.*read-only"):
        call(name, np.asarray, kind(room))
    assert np.all(room == 7)


@pytest.mark.parametrize("name", CALLS)
def test_tensors_are_checked_as_arrays_are(name):
    """Their shapes, dtypes and the memory that they share."""
    shape = np.shape(call(name, np.asarray))
    with pytest.raises(SizeError):
        call(name, np.asarray, Tensor(np.empty((*shape[:-1], shape[-1] + 1))))
    with pytest.raises(DtypeError):
        call(name, np.asarray, Tensor(np.empty(shape, "int32")))


class Half(Tensor):
    """Torch's tensor of bfloat16, which its DLPack names and NumPy does not know."""

    def __init__(self, array):
        super().__init__(array)
        self.dtype = "torch.bfloat16"

    def view(self, dtype):
        return Tensor(self.array.view(dtype))

    def __dlpack__(self, **options):
        raise BufferError("Unsupported dtype in DLTensor.")


def test_bfloat16_of_torch_is_taken_where_it_lies(monkeypatch):
    """As operands and as `out`, by way of integers; without ml_dtypes the error names it."""
    half = pytest.importorskip("ml_dtypes").bfloat16
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16="int16"))
    a, b, out = A.astype(half), B.astype(half), np.zeros((5, 7), half)
    found = plan("ij,jk->ik", (a, b), MACHINE)
    given = Half(out)
    assert found(Half(a), Half(b), given) is given
    np.testing.assert_array_equal(out.view("int16"), found(a, b).view("int16"))
    np.testing.assert_array_equal(einsum("ij->ji", Half(a)).view("int16"), a.T.view("int16"))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TensorError, match="package ml_dtypes, which is not installed"):
        found(Half(a), b)


def test_an_out_that_shares_memory_is_found():
    """Through whatever object it is named."""
    square = RNG.random((5, 5))
    with pytest.raises(PlanError, match="shares memory"):
        plan("ij,jk->ik", 5, MACHINE)(square, np.eye(5), Tensor(square))
    with pytest.raises(PlanError, match="shares memory"):
        transpose(Tensor(square), out=Tensor(square))
    right = square @ square
    einsum("ij,jk->ik", Tensor(square), square, out=Tensor(square))
    np.testing.assert_allclose(square, right)


def test_tensors_stand_wherever_arrays_do():
    """As prepared operands, those of epilogues, biases, residuals, and what sizes are read from."""
    shift = RNG.random(7)
    found = plan("ij,jk->ik", (Tensor(A), Tensor(B)), MACHINE, epilogue="+k", constant="B")
    weights = found.prepare(Tensor(B))
    np.testing.assert_allclose(found(Tensor(A), weights, operands=[Tensor(shift)]), A @ B + shift)
    np.testing.assert_allclose(tensordot(Tensor(A), Tensor(B), 1), A @ B)
    bias, norm = RNG.random(4), (np.ones(4), np.zeros(4), np.zeros(4), np.ones(4))
    parts = (*map(Tensor, norm), 1e-5)
    layer = conv_layer(X.shape, W, Tensor(bias), batch_norm=parts, residual=True, **LAYER)
    same = conv_layer(X.shape, W, bias, batch_norm=(*norm, 1e-5), residual=True, **LAYER)
    added = RNG.random(layer.out_shape)
    np.testing.assert_array_equal(layer(X, residual=Tensor(added)), same(X, residual=added))
    assert tilesolve.Problem.from_arrays("ij,jk->ik", Tensor(A), Tensor(B)).sizes["k"] == 7
    assert expression("ij,jk->ik", Tensor(A), Tensor(B))(A, B).shape == (5, 7)


@pytest.mark.parametrize("name", CALLS)
def test_tensors_of_torch(name):
    """Torch's own tensors, where it is installed."""
    torch = pytest.importorskip("torch")
    right = np.asarray(call(name, np.asarray))
    out = torch.full(right.shape, float("nan"), dtype=torch.float64)
    for _ in range(2):
        assert call(name, torch.from_numpy, out) is out
        np.testing.assert_allclose(out.numpy(), right)
        np.testing.assert_allclose(call(name, torch.from_numpy), right)
    with pytest.raises(TensorError, match=r"detach\(\)"):
        call(name, lambda array: torch.from_numpy(array).requires_grad_())
    with pytest.raises(TensorError, match="meta"):
        call(name, torch.from_numpy, torch.empty(right.shape, device="meta"))
    with pytest.raises(TilesolveError, match=r"resolve_conj\(\)"):
        call(name, lambda array: torch.from_numpy(array + 0j).conj())
    with pytest.raises(TilesolveError, match=r"resolve_neg\(\)"):
        call(name, lambda array: torch.from_numpy(array + 0j).conj().imag)
