"""Convolutions by sliding windows over a padded copy, in float64: what layers are held to."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def slow_convolution(x, w, *, stride, padding, dilation, groups):
    """Convolve images in NCHW with filters in torch's order; numbers are per dimension."""
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    padded = np.pad(x, [(0, 0), (0, 0), *padding])
    reach = [d * (n - 1) + 1 for d, n in zip(dilation, w.shape[2:], strict=True)]
    axes = tuple(range(2, x.ndim))
    windows = sliding_window_view(padded, reach, axis=axes)
    steps = (slice(None, None, s) for s in stride)
    taps = (slice(None, None, d) for d in dilation)
    windows = windows[(slice(None), slice(None), *steps, *taps)]
    own, made = x.shape[1] // groups, w.shape[0] // groups
    count = len(axes)
    found = []
    for group in range(groups):
        part = windows[:, group * own : (group + 1) * own]
        filters = w[group * made : (group + 1) * made]
        summed = [1, *range(part.ndim - count, part.ndim)]
        product = np.tensordot(part, filters, (summed, [1, *range(2, filters.ndim)]))
        found.append(np.moveaxis(product, -1, 1))
    return np.concatenate(found, axis=1)


def to_layout(array, layout, block=1):
    """Bring an array from NCHW to a layout, in C order."""
    if layout == "NHWC":
        array = np.moveaxis(array, 1, -1)
    elif layout == "NCHWc":
        n, c, *pixels = array.shape
        array = np.moveaxis(array.reshape(n, c // block, block, *pixels), 2, -1)
    return np.ascontiguousarray(array)


def from_layout(array, layout):
    """Bring an array from a layout to NCHW."""
    if layout == "NHWC":
        return np.moveaxis(array, -1, 1)
    if layout == "NCHWc":
        array = np.moveaxis(array, -1, 2)
        n, outer, block, *pixels = array.shape
        return array.reshape(n, outer * block, *pixels)
    return array


def block_filters(w, blocks):
    """Bring filters from torch's order to that of blocks of channels and of filters."""
    k, c, *window = w.shape
    last, first = min(blocks[0], c), blocks[1]
    parts = w.reshape(k // first, first, c // last, last, *window)
    return np.ascontiguousarray(np.moveaxis(parts, (3, 1), (-2, -1)))
