"""Rows that fill half of their last vector, beside columns in place: that half is left out."""

from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import from_layout, slow_convolution
from running_cases import make_shallow_machine

import tilesolve
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.machine.level import Peak
from tilesolve.machine.microkernel import uses_half_vectors

MACHINE = make_shallow_machine(512, 32)
MACHINE = MACHINE.replace(peaks=tuple(Peak("float32", bits, 1e11) for bits in (256, 512)))


def test_the_family_of_mixed_kernels_has_halves():
    """As many as there are whole ones, with names of their own."""
    family = Family.of("float32", 512, 32)
    mixed = replace(family, mixed=True).shapes
    assert sum(one.halved for one in mixed) == sum(not one.halved for one in mixed)
    assert len({one.name for one in mixed}) == len(mixed)


@pytest.mark.parametrize("filters", [7, 8, 9, 23, 24, 25, 40])
def test_layers_of_half_vectors(filters):
    """With bias, residual and bounds; nothing else is written."""
    assert uses_half_vectors(MACHINE, "float32")
    rng = np.random.default_rng(filters)
    x = rng.standard_normal((1, 6, 7, 5)).astype(np.float32)
    w = rng.standard_normal((filters, 5, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(filters).astype(np.float32)
    layer = tilesolve.conv_layer(
        *(x.shape, w, bias),
        **{"padding": 1, "layout": "NHWC", "residual": True, "epilogue": "relu6"},
        machine=MACHINE,
        threads=1,
    )
    room = np.full((*layer.out_shape[:-1], filters + 3), 7, np.float32)
    added = rng.standard_normal(layer.out_shape).astype(np.float32)
    rest = {"stride": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    sums = np.moveaxis(slow_convolution(from_layout(x, "NHWC"), w, **rest), 1, -1)
    found = layer(x, room[..., 1:-2], added)
    np.testing.assert_allclose(found, np.clip(sums + bias + added, 0, 6), rtol=1e-4, atol=1e-4)
    assert (room[..., 0] == 7).all()
    assert (room[..., -2:] == 7).all()
