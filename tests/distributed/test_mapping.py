"""Layers, batches, models and tiles on Dask arrays: the same results as in one process."""

import dask.array as da
import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import MemoryLimitError, PlanError, SizeError
from tilesolve.distributed import map_batch, map_tiles


def test_a_batch_of_a_plan(client):
    """Is what `Plan.batch` computes, whatever the chunks."""
    rng = np.random.default_rng(2)
    x, y = rng.random((11, 20, 30)), rng.random((11, 30, 25))
    found = map_batch(tilesolve.plan("mn-mk-kn", "m=20 n=25 k=30"), da.from_array(x, 4), y)
    np.testing.assert_allclose(found.compute(), x @ y, rtol=1e-12)


def test_a_layer_over_images(client):
    """A layer of two images runs over eight; a function may take more arrays."""
    rng = np.random.default_rng(3)
    images = rng.random((8, 3, 9, 9), np.float32)
    layer = tilesolve.conv_layer((2, 3, 9, 9), rng.random((4, 3, 3, 3), np.float32), padding=1)
    found = map_batch(layer, da.from_array(images, (3, 3, 5, 9)), images=2)
    wanted = np.concatenate([layer(images[at : at + 2]) for at in range(0, 8, 2)])
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found.compute(), wanted)
    with pytest.raises(SizeError, match="images=3 does not divide the batch of 8"):
        map_batch(layer, images, images=3)
    with pytest.raises(SizeError, match="batches must be as long"):
        map_batch(np.add, images, images[1:])
    with pytest.raises(MemoryLimitError, match="blocks of"):
        map_batch(layer, images, images=2, memory_limit=1000)


@pytest.mark.parametrize("shape", [(40, 50), (7, 90)])
def test_a_pipeline_over_tiles(shape, client):
    """Windows reach into the halo; results are smaller by it, or as large as the image."""

    @tilesolve.pipeline
    def blur(image):
        rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
        return rows[:-2] + rows[1:-1] + rows[2:]

    image = np.random.default_rng(4).random(shape)
    found = map_tiles(blur, da.from_array(image, 16), {0: 1, 1: 1}, memory_limit=200_000)
    assert found.npartitions > 1
    np.testing.assert_allclose(found.compute(), blur(image), rtol=1e-14)

    def same(image):
        return np.pad(image[1:-1, 1:-1] + image[:-2, :-2], 1)

    inner = map_tiles(same, image, {0: 1, 1: 1}).compute()[1:-1, 1:-1]
    np.testing.assert_array_equal(inner, same(image)[1:-1, 1:-1])
    with pytest.raises(PlanError, match="as large, or smaller by the halo"):
        map_tiles(lambda image: image[3:], image, {0: 1})
