"""Run every kind of machine code once, in a process where memory lies as an argument says."""

import sys

import numpy as np
from address_space import leave_distant_holes

import tilesolve

random = np.random.default_rng(5)


def compare(found, expected, error=1e-12):
    """Raise an error unless a result is right."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= error * np.abs(expected).max()


def run_contractions():
    """Microkernels, packing, halves, complex numbers, and what is compiled to run them."""
    A, B = random.random((40, 30)), random.random((30, 70))
    for dtype, error in (("float64", 1e-12), ("float16", 1e-2)):
        plan = tilesolve.plan("mn-mk-kn", "m=40 n=70 k=30", dtype=dtype, threads=1)
        compare(plan(A.astype(dtype), B.astype(dtype)).astype(float), A @ B, error)
    compare(tilesolve.einsum("mk,kn->nm", A * 1j, B + 2j), (A * 1j @ (B + 2j)).T)


def run_layers():
    """Windows of images, channel by channel, and an elementwise function of what comes."""
    for dtype, error in (("f4", 1e-5), ("f2", 1e-3)):  # by statements, and as a contraction
        image, weights = np.ones((1, 8, 9, 9), dtype), np.ones((8, 1, 3, 3), dtype)
        layer = tilesolve.conv_layer(image.shape, weights, groups=8, epilogue="silu")
        expected = np.full((1, 8, 7, 7), 9 / (1 + np.exp(-9.0)))
        compare(layer(image).astype(float), expected, error)


def run_nests():
    """Loop programs, and transposes of matrices."""
    A, B = random.random((50, 20)), random.random((20, 30))
    compare(tilesolve.nest("C[i,j] += A[i,k] * B[k,j]", "i=50 j=30 k=20")(A, B), A @ B)
    for factor in range(5):
        text = f"out[i,j] = {factor} + exp(A[i,j]) * log(A[i,j] + 1)"
        compare(tilesolve.nest(text, {"A": A.shape})(A), factor + np.exp(A) * np.log1p(A))
    compare(tilesolve.transpose(A).copy(), A.T)


if __name__ == "__main__":
    kept = []
    if sys.argv[1] == "holes":
        leave_distant_holes(100)
    elif sys.argv[1] == "arrays":
        kept += [np.empty(2**26) for _ in range(8)]  # 4 GB
    else:
        __import__(sys.argv[1])
    run_contractions()
    run_layers()
    run_nests()
