"""Weights of models: held once, and there again where another shape or a user needs them."""

import ctypes
import gc
import pickle
import tracemalloc
from os import sysconf
from pathlib import Path

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import ModelError

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import make_model  # noqa: E402

from tilesolve.networks.works import WinogradWork  # noqa: E402

SLACK = 1.15
"""Memory that a loaded model takes at most, of packed weights and arena."""


def network(channels, wide):
    """A 3x3 layer, one of single pixels and a product, of any batch size."""
    rng = np.random.default_rng(0)
    shapes = {
        **{"w1": (channels, channels, 3, 3), "w2": (wide, channels, 1, 1)},
        **{"w3": (channels, wide), "b": (channels,)},
    }
    arrays = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("GlobalAveragePool", ["c2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w3"], ["y"], transB=1),
    ]
    return make_model(nodes, {"x": ("N", channels, 6, 6)}, arrays, {"y": 2})


def resident_bytes():
    """Bytes of this process in memory, once what is free was given back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * sysconf("SC_PAGE_SIZE")


def test_weights_are_held_once(tmp_path):
    """What a loaded model takes is packed weights and its arena; layers have weights again."""
    path, made = tmp_path / "large.onnx", network(256, 4096)
    onnx.save(made, path)
    tracemalloc.start()
    loaded = tilesolve.onnx.load(path, shapes={"x": (1, 256, 6, 6)}, threads=1)
    gc.collect()
    traced, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    packed = loaded.weight_bytes
    wanted = SLACK * (packed + loaded.bytes)
    assert traced <= wanted
    fewer = any(isinstance(work, WinogradWork) for work in loaded.program.works)
    assert loaded.weight_bytes <= (1.4 if fewer else 1.1) * loaded.least_weight_bytes
    assert "weights take" in str(loaded)
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in made.graph.initializer}
    for name, layer in zip(("w1", "w2", "w3"), loaded.layers, strict=True):
        shape = layer.convolution.w_shape
        (given,) = (one for one in layer.__getstate__() if np.shape(one) == shape)
        np.testing.assert_allclose(given, arrays[name].reshape(shape), rtol=1e-5, atol=1e-7)
    copy = pickle.loads(pickle.dumps(loaded.layers[1]))
    image = np.random.default_rng(1).standard_normal((1, 6, 6, 256)).astype(np.float32)
    expected = image @ arrays["w2"][:, :, 0, 0].T
    for layer in (copy, loaded.layers[1]):
        np.testing.assert_allclose(layer(image), expected, rtol=1e-4, atol=1e-4)
    before = resident_bytes()
    loaded_again = tilesolve.onnx.load(path, shapes={"x": (1, 256, 6, 6)}, threads=1)
    assert resident_bytes() - before <= wanted
    before = resident_bytes()
    del loaded_again
    assert packed / SLACK <= before - resident_bytes() <= wanted


@pytest.mark.usefixtures("planned_at_once")
def test_models_are_planned_for_other_shapes(tmp_path):
    """From a path they are read again, with arrays in other files; others are kept."""
    made = network(3, 5)
    path, apart = tmp_path / "one.onnx", tmp_path / "two.onnx"
    onnx.save(made, path)
    onnx.save(made, apart, save_as_external_data=True, location="weights.bin", size_threshold=0)
    made = onnx.load(path)
    for source in (path, str(apart), path.read_bytes(), made):
        loaded = tilesolve.onnx.load(source, shapes={"x": (1, 3, 6, 6)})
        for batch in (2, 1, 3):
            x = np.random.default_rng(batch).standard_normal((batch, 3, 6, 6)).astype(np.float32)
            (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
            np.testing.assert_allclose(loaded(x)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("planned_at_once")
@pytest.mark.parametrize("name", ["two.onnx", "weights.bin"])
def test_files_that_changed(name, tmp_path):
    """What was planned runs; for other shapes the model has to be loaded again."""
    path = tmp_path / "two.onnx"
    onnx.save(network(3, 5), path, save_as_external_data=True, location="weights.bin",
              size_threshold=0)  # fmt: skip
    loaded = tilesolve.onnx.load(path, shapes={"x": (1, 3, 6, 6)})
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\0\0\0\0")
    loaded(np.zeros((1, 3, 6, 6), np.float32))
    with pytest.raises(ModelError, match=r"two\.onnx (was changed|is damaged)"):
        loaded(np.zeros((2, 3, 6, 6), np.float32))
    path.unlink()
    with pytest.raises(ModelError, match=r"two\.onnx cannot be read"):
        loaded(np.zeros((2, 3, 6, 6), np.float32))
