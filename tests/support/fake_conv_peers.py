"""Peers of layers that misbehave."""

import numpy as np

from tilesolve.bench.run.conv_peers import im2col


def moody(layer, *given):
    """Computes one image, and fails where there are two."""
    if layer.batch > 1:
        raise RuntimeError("two images are too many")
    return im2col(layer, *given)


def wrong(layer, *_):
    """Finds zeros."""
    found = np.zeros((layer.batch, layer.filters, *layer.out_size), layer.dtype)
    return lambda: found
