"""Layers, batches, models and tiles on Dask arrays: the same results as in one process."""

import os
import re
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import Client

import tilesolve
from tilesolve.contractions.errors import (
    DtypeError,
    MachineError,
    MemoryLimitError,
    PlanError,
    SizeError,
)
from tilesolve.distributed import map_batch, map_tiles
from tilesolve.distributed.mapping import own_plan

PAGE = Path(__file__).parent.parent.parent / "docs" / "distributed.md"


@tilesolve.pipeline
def blur(image):
    """Sums of windows of 3x3."""
    rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
    return rows[:-2] + rows[1:-1] + rows[2:]


def test_a_batch_of_a_plan(client):
    """Is what `Plan.batch` computes, whatever the chunks; a worker of another CPU makes its own."""
    rng = np.random.default_rng(2)
    x, y = rng.random((11, 20, 30)), rng.random((11, 30, 25))
    plan = tilesolve.plan("mn-mk-kn", "m=20 n=25 k=30")
    found = map_batch(plan, da.from_array(x, 4), y)
    other, *_ = client.scheduler_info()["workers"]
    client.run(lambda: os.environ.update(TILESOLVE_MACHINE="e5-2680v4"), workers=[other])
    np.testing.assert_allclose(found.compute(), x @ y, rtol=1e-12)
    machines = client.run(lambda: own_plan(plan).machine.name)
    client.run(lambda: os.environ.pop("TILESOLVE_MACHINE"), workers=[other])
    assert machines.pop(other) == "e5-2680v4"
    assert set(machines.values()) == {plan.machine.name}


def test_a_layer_over_images(client):
    """A layer of two images runs over eight; a function may take more arrays."""
    rng = np.random.default_rng(3)
    images = rng.random((8, 3, 9, 9), np.float32)
    layer = tilesolve.conv_layer((2, 3, 9, 9), rng.random((4, 3, 3, 3), np.float32), padding=1)
    found = map_batch(layer, da.from_array(images, (3, 3, 5, 9)))
    wanted = np.concatenate([layer(images[at : at + 2]) for at in range(0, 8, 2)])
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found.compute(), wanted)
    filters = np.zeros((4, 3, 3, 3), np.float32)
    adding = tilesolve.conv_layer((4, 3, 9, 9), filters, padding=1, residual=True)
    np.testing.assert_array_equal(map_batch(adding, images, found).compute(), wanted)
    norms = map_batch(lambda x, y: np.einsum("nchw,n->n", x, y), images, np.arange(8.0))
    np.testing.assert_allclose(norms.compute(), images.sum((1, 2, 3)) * np.arange(8), rtol=1e-5)


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_network_over_images(batch, client, tmp_path):
    """An ONNX file over images, with a batch of its own or any, is what it is in one process."""
    pytest.importorskip("onnx", reason="the extra onnx is missing")
    import onnx
    from onnx import helper
    from onnx_networks import make_model

    rng = np.random.default_rng(5)
    arrays = {
        "w": rng.random((4, 3, 3, 3), np.float32) - 0.5,
        "v": rng.random((5, 4, 1, 1), np.float32) - 0.5,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["y"], strides=[2, 2]),
    ]
    file = tmp_path / "network.onnx"
    onnx.save(make_model(nodes, {"x": [batch, 3, 12, 10]}, arrays, {"y": 4}), file)
    images = rng.random((8, 3, 12, 10), np.float32)
    found = map_batch(file, da.from_array(images, (3, 3, 12, 10)))
    assert found.shape == (8, 5, 6, 5)
    model = tilesolve.onnx.load(file)
    wanted = np.concatenate([model(images[at : at + 2])["y"] for at in range(0, 8, 2)])
    np.testing.assert_allclose(found.compute(), wanted, rtol=1e-5, atol=1e-6)
    if batch == 2:
        with pytest.raises(SizeError, match="images=2 does not divide the batch of 7"):
            map_batch(file, images[:7])


@pytest.mark.parametrize("shape", [(40, 50), (7, 90)])
def test_a_pipeline_over_tiles(shape, client):
    """Windows reach into the halo; results are smaller by it, or as large as the image."""
    image = np.random.default_rng(4).random(shape)
    found = map_tiles(blur, da.from_array(image, 16), {0: 1, 1: 1}, memory_limit=200_000)
    assert found.npartitions > 1
    np.testing.assert_allclose(found.compute(), blur(image), rtol=1e-14)

    def same(image):
        return np.pad(image[1:-1, 1:-1] + image[:-2, :-2], 1)

    inner = map_tiles(same, image, {0: 1, 1: 1}).compute()[1:-1, 1:-1]
    np.testing.assert_array_equal(inner, same(image)[1:-1, 1:-1])
    channels = np.random.default_rng(4).random((3, 40))
    found = map_tiles(lambda x: x[:, 2:] - x[:, :-2], channels, {0: 0, 1: 1})
    np.testing.assert_array_equal(found.compute(), channels[:, 2:] - channels[:, :-2])


IMAGES = np.ones((8, 3, 9, 9))
X = da.ones((40, 50), chunks=20)
UNKNOWN = X[X[:, 0] > 0]
HALO, FEW = {0: 1, 1: 1}, {"memory_limit": 100}
REFUSED = [
    (
        SizeError,
        "images=3 does not divide the batch of 8",
        map_batch,
        "layer",
        IMAGES,
        {"images": 3},
    ),
    (SizeError, "images=0 does not divide", map_batch, "layer", IMAGES, {"images": 0}),
    (SizeError, r"\bx\b.*4", map_batch, "layer", IMAGES, {"images": 4}),
    (PlanError, "takes 1 arrays, got 2", map_batch, "layer", IMAGES, IMAGES, {}),
    (SizeError, r"operand 1 \(7, 3", map_batch, np.add, IMAGES, IMAGES[1:], {}),
    (SizeError, r"operand 0 \(\)", map_batch, np.negative, np.ones(()), {}),
    (SizeError, "got none", map_batch, np.negative, {}),
    (SizeError, "operand 0 has chunks of unknown size", map_batch, np.negative, UNKNOWN, {}),
    (SizeError, "operand 0 has chunks of unknown size", map_tiles, blur, UNKNOWN, HALO, {}),
    (DtypeError, "operand 0 has dtype object", map_batch, np.negative, X.astype(object), {}),
    (DtypeError, "operand 0 has dtype object", map_tiles, blur, X.astype(object), HALO, {}),
    (MemoryLimitError, r"\(1, 50\) and \(1, 50\)", map_batch, np.negative, X, FEW),
    (MemoryLimitError, r"\(5, 5\) and \(3, 3\)", map_tiles, blur, X, HALO, FEW),
    (MemoryLimitError, "memory_limit must be", map_tiles, blur, X, HALO, {"memory_limit": "1 GB"}),
    (PlanError, r"a batch of 1 has a result of shape \(50,\)", map_batch, lambda x: x[0], X, {}),
    (PlanError, "work must be a plan, a layer, a file", map_batch, 7, X, {}),
    (PlanError, "as large, or smaller by the halo", map_tiles, lambda x: x[3:], X, {0: 1}, {}),
    (SizeError, r"halo of 20 on each side of axis 0 .*\(40, 50\)", map_tiles, blur, X, {0: 20}, {}),
    (SizeError, "halo of -1 on each side of axis 1", map_tiles, blur, X, {1: -1}, {}),
    (SizeError, "axis 2 does not fit", map_tiles, blur, X, {2: 1}, {}),
    (MachineError, "client must be one of", map_tiles, blur, X, HALO, {"client": "tcp://here"}),
    (MachineError, "the client is closed", map_tiles, blur, X, HALO, {"client": "closed"}),
]


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_mapped_is_refused_at_once(case, client):
    """Each error names the operand, the axis or the halo, and the sizes."""
    error, told, call, work, *given, options = case
    if isinstance(work, str):
        work = tilesolve.conv_layer((2, 3, 9, 9), np.ones((4, 3, 3, 3)))
    if options.get("client") == "closed":
        options = {"client": Client(client.scheduler.address, set_as_default=False)}
        options["client"].close()
    with pytest.raises(error, match=told):
        call(work, *given, **options)


def test_arrays_of_xarray(client):
    """The example of the docs computes what it says, chunk by chunk."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    (text,) = re.findall(r"^```\n(import xarray.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    rng = np.random.default_rng(6)
    one, other = rng.random((40, 90)), rng.random((90, 30))
    found = {
        "__name__": "example",
        "first": xarray.DataArray(da.from_array(one, 25), dims=("x", "time")),
        "second": xarray.DataArray(da.from_array(other, 40), dims=("time", "y")),
    }
    exec(text, found)
    assert isinstance(found["product"].data, da.Array)
    assert found["product"].dims == ("x", "y")
    np.testing.assert_allclose(found["product"].values, one @ other, rtol=1e-12)
    np.testing.assert_allclose(found["smooth"].values, blur(one), rtol=1e-12)
