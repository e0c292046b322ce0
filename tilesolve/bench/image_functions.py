"""Functions of images, written from their descriptions: the suite of pipelines has them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
"""An array of NumPy's, or one that is traced."""

BLUR_WEIGHTS = np.array(
    [0.03125, 0.109375, 0.21875, 0.28125, 0.21875, 0.109375, 0.03125], "float32"
)
"""Of seven neighbours, the middle one most."""

RADIUS = 26
"""How far the greatest value of a neighbourhood may lie."""

LEVELS = 4
"""Of pyramids of images."""

PATCH, SEARCH = 7, 7
"""Sides of the squares that are compared, and of that in which they lie."""

LIKENESS = -1 / (0.12 * PATCH) ** 2
"""What the difference of squares is multiplied by."""

CELL, BINS = 8, 10
"""Pixels along a cell of a grid, and how many steps of values there are."""

TONES = 8
"""How many values details are looked for around."""

DETAILS = (np.arange(-256 * (TONES - 1), 256 * (TONES - 1) + 1) / 256).astype("float32")
DETAILS = (DETAILS * np.exp(-DETAILS * DETAILS / 2) / (TONES - 1)).astype("float32")
"""What is added to differences from a value."""

CURVE = (255 * (np.arange(1024) / 1023) ** (1 / 2.2)).astype("uint8")
"""The bytes of brightness, of ten bits."""


def blur(image: Array) -> Array:
    """Return the mean of three by three neighbours."""
    rows = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) / 3
    return (rows[:-2] + rows[1:-1] + rows[2:]) / 3


def _gray(image: Array) -> Array:
    return 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def unsharp(image: Array) -> Array:
    """Return an image (channel, y, x) whose edges are sharpened."""
    gray = _gray(image)
    padded = np.pad(gray, 3, "edge")
    height, width = gray.shape
    across = sum(BLUR_WEIGHTS[k] * padded[k : k + height] for k in range(7))
    smooth = sum(BLUR_WEIGHTS[k] * across[:, k : k + width] for k in range(7))
    ratio = (2 * gray - smooth) / gray
    return ratio * image


def _box(a: Array) -> Array:
    height, width = a.shape
    return sum(a[i : height - 2 + i, j : width - 2 + j] for i in range(3) for j in range(3))


def harris(image: Array) -> Array:
    """Return how much of a corner each pixel of an image (channel, y, x) is."""
    g = _gray(image)
    down = g[2:, :-2] + 2 * g[2:, 1:-1] + g[2:, 2:]
    iy = (down - g[:-2, :-2] - 2 * g[:-2, 1:-1] - g[:-2, 2:]) / 12
    right = g[:-2, 2:] + 2 * g[1:-1, 2:] + g[2:, 2:]
    ix = (right - g[:-2, :-2] - 2 * g[1:-1, :-2] - g[2:, :-2]) / 12
    xx, yy, xy = _box(ix * ix), _box(iy * iy), _box(ix * iy)
    trace = xx + yy
    return xx * yy - xy * xy - 0.04 * trace * trace


def maxfilter(image: Array) -> Array:
    """Return the greatest value in a disc around each pixel of an image (channel, y, x)."""
    height = image.shape[1]
    reach = 2 * RADIUS + 1
    padded = np.pad(image, ((0, 0), (RADIUS, RADIUS), (RADIUS, RADIUS)), "edge")
    spans, size = {1: padded}, 1
    while 2 * size <= reach:  # the greatest value of so many rows from each on
        span = spans[size]
        spans[2 * size] = np.maximum(span[:, :-size], span[:, size:])
        size *= 2
    width, found = image.shape[2], None
    for dx in range(-RADIUS, RADIUS + 1):
        half = int((RADIUS * RADIUS - dx * dx) ** 0.5)
        count = 2 * half + 1
        size = 1 << (count.bit_length() - 1)
        column = spans[size][:, :, RADIUS + dx : RADIUS + dx + width]
        first, last = RADIUS - half, RADIUS + half + 1 - size
        tall = np.maximum(column[:, first : first + height], column[:, last : last + height])
        found = tall if found is None else np.maximum(found, tall)
    return found


def _edges(image: Array, axis: int) -> Array:
    """Return an image with its border repeated once, along an axis."""
    return np.pad(
        image, [(1, 1) if x == axis % image.ndim else (0, 0) for x in range(image.ndim)], "edge"
    )


def _halve(image: Array) -> Array:
    """Return an image of half the size: means of four neighbours along both axes."""
    rows = _edges(image, -2)
    rows = (rows[..., :-2:2, :] + 2 * rows[..., 1:-1:2, :] + rows[..., 2::2, :]) / 4
    both = _edges(rows, -1)
    return (both[..., :-2:2] + 2 * both[..., 1:-1:2] + both[..., 2::2]) / 4


def _double(image: Array) -> Array:
    """Return an image of twice the size, by lines between pixels."""
    rows = _edges(np.repeat(image, 2, axis=-2), -2)
    rows = (rows[..., :-2, :] + 2 * rows[..., 1:-1, :] + rows[..., 2:, :]) / 4
    both = _edges(np.repeat(rows, 2, axis=-1), -1)
    return (both[..., :-2] + 2 * both[..., 1:-1] + both[..., 2:]) / 4


def interpolate(image: Array) -> Array:
    """Return an image whose pixels without weight, the last channel, are filled from around."""
    level = np.concatenate([image[:3] * image[3], image[3:]])
    levels = [level]
    for _ in range(LEVELS):
        levels.append(_halve(levels[-1]))
    found = levels[-1]
    for level in levels[-2::-1]:
        found = level + (1 - level[3]) * _double(found)
    return found[:3] / found[3]


def pyramid_blend(first: Array, second: Array, mask: Array) -> Array:
    """Return two images put together by a mask, at each scale of their details."""
    coarse: list[tuple[Array, ...]] = [(first, second, mask)]
    found = None
    for _ in range(LEVELS - 1):
        coarse.append(tuple(_halve(one) for one in coarse[-1]))
    for level, (one, other, weight) in reversed(list(enumerate(coarse))):
        if found is None:
            found = weight * one + (1 - weight) * other
            continue
        fine = one - _double(coarse[level + 1][0]), other - _double(coarse[level + 1][1])
        found = _double(found) + weight * fine[0] + (1 - weight) * fine[1]
    return found


def stencil_chain(image: Array, stages: int = 8) -> Array:
    """Return an image that is smoothed again and again, each time by five by five neighbours."""
    for _ in range(stages):
        height, width = image.shape[0] - 4, image.shape[1] - 4
        rows = sum((3 - abs(k - 2)) * image[k : k + height] for k in range(5))
        image = sum((3 - abs(k - 2)) * rows[:, k : k + width] for k in range(5)) // 81
    return image


def nlmeans(image: Array) -> Array:
    """Return an image (channel, y, x) without noise: means of pixels in alike surroundings."""
    height, width = image.shape[1:]
    reach, side = PATCH // 2 + SEARCH // 2, PATCH // 2
    padded = np.pad(image, ((0, 0), (reach, reach), (reach, reach)), "edge")
    inner = slice(SEARCH // 2, -(SEARCH // 2))
    here = padded[:, inner, inner]
    total, weights = 0, 0
    for dy in range(SEARCH):
        for dx in range(SEARCH):
            there = padded[:, dy : dy + height + 2 * side, dx : dx + width + 2 * side]
            apart = sum((here - there) ** 2)
            rows = sum(apart[k : k + height] for k in range(PATCH))
            weight = np.exp(LIKENESS * sum(rows[:, k : k + width] for k in range(PATCH)))
            total = total + weight * there[:, side : side + height, side : side + width]
            weights = weights + weight
    return np.clip(total / weights, 0, 1)


def bilateral_grid(image: Array) -> Array:
    """Return an image that is smoothed where pixels are alike: its grid of places and values."""
    height, width = image.shape
    cells, every = (height // CELL, width // CELL), np.arange(BINS + 1)
    blocks = image.reshape(cells[0], CELL, cells[1], CELL)
    bin_of = (blocks * BINS + 0.5).astype("int32")
    chosen = bin_of == every[:, None, None, None, None]
    sums = np.where(chosen, blocks, np.float32(0)).sum(axis=(2, 4))
    counts = np.where(chosen, np.float32(1), np.float32(0)).sum(axis=(2, 4))
    value, weight = _smooth_grid(sums), _smooth_grid(counts)
    scaled = image * BINS
    below = np.floor(scaled)
    y, x = np.arange(height)[:, None], np.arange(width)
    parts = (y % CELL / CELL).astype("float32"), (x % CELL / CELL).astype("float32")
    bins = below.astype("int32")
    found = [_mix_cells(one, bins, y // CELL, x // CELL, parts) for one in (value, weight)]
    part = scaled - below
    top, bottom = ((1 - part) * low + part * high for low, high in found)
    return top / bottom


def _smooth_grid(grid: Array) -> Array:
    """Return a grid (value, y, x), wider by a cell, whose cells are means along each axis."""
    wide = np.pad(grid, ((2, 3), (2, 3), (2, 3)))
    for _ in range(3):
        ends = wide[:-4] + wide[4:]
        wide = np.moveaxis(ends + 4 * (wide[1:-3] + wide[3:-1]) + 6 * wide[2:-2], 0, 2)
    return wide


def _mix_cells(
    grid: Array, bins: Array, y: Array, x: Array, parts: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Return values between the four cells around each pixel: those of its bin, and the next."""

    def mix(at: Array) -> Array:
        rows = [
            (1 - parts[1]) * grid[at, y + dy, x] + parts[1] * grid[at, y + dy, x + 1]
            for dy in (0, 1)
        ]
        return (1 - parts[0]) * rows[0] + parts[0] * rows[1]

    return mix(bins), mix(bins + 1)


def laplacian(photo: Array) -> Array:
    """Return a photo (channel, y, x) whose details are stronger, at each scale."""
    light = photo.astype("float32") / 65535
    gray = _gray(light)
    tones = np.arange(TONES, dtype="float32")[:, None, None] / (TONES - 1)
    steps = 256 * np.arange(TONES)[:, None, None]
    index = np.clip((gray * (256 * (TONES - 1))).astype("int32"), 0, 256 * (TONES - 1))
    detail = np.take(DETAILS, index - steps + 256 * (TONES - 1))
    sharp, coarse = [0.5 * (gray - tones) + tones + detail], [gray]
    for _ in range(LEVELS - 1):
        sharp.append(_halve(sharp[-1]))
        coarse.append(_halve(coarse[-1]))
    found = None
    for level in reversed(range(LEVELS)):
        above = sharp[level] if found is None else sharp[level] - _double(sharp[level + 1])
        tone = coarse[level] * (TONES - 1)
        low = np.clip(np.floor(tone), 0, TONES - 2)
        part, mixed = tone - low, above[0]
        for k in range(TONES - 1):  # take_along_axis, which is not traced
            mixed = np.where(low == k, (1 - part) * above[k] + part * above[k + 1], mixed)
        found = mixed if found is None else mixed + _double(found)
    bright = found * (light + 0.01) / (gray + 0.01)
    return np.clip(bright, 0, 1)


def camera(raw: Array) -> Array:
    """Return the image (channel, y, x) in bytes of what a sensor of coloured pixels saw."""
    raw = raw.astype("int16")
    across = np.maximum(raw[2:-2, :-4], raw[2:-2, 4:])
    bound = np.maximum(across, np.maximum(raw[:-4, 2:-2], raw[4:, 2:-2]))
    raw = np.clip(raw[2:-2, 2:-2], 0, bound)
    planes = [raw[y::2, x::2] for y in (0, 1) for x in (0, 1)]
    red, green, blue = (one.astype("int32") for one in _demosaic(*planes))
    colours = [
        (a * red + b * green + c * blue + d) // 256
        for a, b, c, d in (
            (508, -92, -29, -10430),
            (-95, 340, 178, -7970),
            (-40, -334, 1184, -5990),
        )
    ]
    return np.stack([np.take(CURVE, np.clip(one, 0, 1023)) for one in colours])


def _demosaic(green_r: Array, red: Array, blue: Array, green_b: Array) -> tuple[Array, ...]:
    """Return all three colours of each pixel but the outer ones, of planes that have one."""

    def at(plane: Array, y: int = 0, x: int = 0) -> Array:
        return plane[1 + y : plane.shape[0] - 1 + y, 1 + x : plane.shape[1] - 1 + x]

    def mean(one: Array, other: Array) -> Array:
        return (one + other + 1) // 2

    def nearer(pairs: tuple[tuple[Array, Array], ...], found: tuple[Array, Array]) -> Array:
        first, second = (abs(one - other) for one, other in pairs)
        return np.where(first < second, *found)

    def both(first: tuple[Array, Array], second: tuple[Array, Array]) -> Array:
        return nearer((first, second), (mean(*first), mean(*second)))

    def spread(green: Array, known: tuple[Array, Array], greens: tuple[Array, Array]) -> Array:
        return green - mean(*greens) + mean(*known)

    gr, gb = green_r, green_b
    at_r = both((at(gr, 0, 1), at(gr)), (at(gb, -1), at(gb)))
    at_b = both((at(gb, 0, -1), at(gb)), (at(gr, 1), at(gr)))
    gr, gb, red, blue = at(gr), at(gb), at(red), at(blue)

    def cross(green: Array, plane: Array, other: Array, turn: int) -> Array:
        pairs = ((0, 0), (turn, -turn)), ((0, -turn), (turn, 0))
        knowns, greens = (
            [tuple(at(one, *place) for place in pair) for pair in pairs] for one in (plane, other)
        )
        found = [spread(at(green), *pair) for pair in zip(knowns, greens, strict=True)]
        return nearer(tuple(knowns), tuple(found))

    red_gr = spread(at(gr), (at(red, 0, -1), at(red)), (at(at_r), at(at_r, 0, -1)))
    blue_gr = spread(at(gr), (at(blue), at(blue, -1)), (at(at_b), at(at_b, -1)))
    red_gb = spread(at(gb), (at(red), at(red, 1)), (at(at_r), at(at_r, 1)))
    blue_gb = spread(at(gb), (at(blue), at(blue, 0, 1)), (at(at_b), at(at_b, 0, 1)))
    red_b, blue_r = cross(at_b, red, at_r, 1), cross(at_r, blue, at_b, -1)
    return (
        _interleave(red_gr, at(red), red_b, red_gb),
        _interleave(at(gr), at(at_r), at(at_b), at(gb)),
        _interleave(blue_gr, blue_r, at(blue), blue_gb),
    )


def _interleave(*planes: Array) -> Array:
    """Return an array of twice the size, whose two by two neighbours are of four planes."""
    height, width = planes[0].shape
    found = np.zeros((2 * height, 2 * width), planes[0].dtype)
    for at, plane in enumerate(planes):
        found[at // 2 :: 2, at % 2 :: 2] = plane
    return found
