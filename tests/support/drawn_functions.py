"""Functions of arrays that are drawn: NumPy computes them, and pipelines trace them."""

import numpy as np
from hypothesis import strategies as st

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "int16", "bool")


def _views(array):
    """Other views of an array, or copies of its elements in other places."""
    yield lambda a: a[::-1]
    yield lambda a: a[..., ::2] + a[..., ::2]
    yield lambda a: a[None].swapaxes(0, -1)[..., 0] if a.ndim == 1 else a.T
    yield lambda a: np.repeat(a, 2, axis=-1)
    yield lambda a: np.moveaxis(a, 0, -1)
    yield lambda a: a[-1] if a.ndim > 1 else a
    yield lambda a: np.expand_dims(a, 0)[0, ...]
    yield lambda a: np.roll(a, 2, axis=0)
    yield lambda a: np.flip(a)
    yield lambda a: np.concatenate([a, a[:1]], axis=0)
    yield lambda a: np.stack([a, a[::-1]], axis=-1)
    yield lambda a: np.take(a, [0, -1, 0], axis=0)
    yield lambda a: a[np.array([[0, -1], [-1, 0]])]
    yield lambda a: a[np.clip(a.astype("int64") % len(a), 0, len(a) - 1)] if a.ndim == 1 else a
    for mode in ("edge", "wrap", "symmetric", "constant"):
        yield lambda a, mode=mode: np.pad(a, [(1, 0), *[(0, 2)] * (a.ndim - 1)], mode=mode)
    yield lambda a: np.pad(a, 1, mode="reflect") if min(a.shape) > 1 else a
    yield lambda a: np.diff(a, axis=0) if len(a) > 1 else a
    yield lambda a: a.reshape(-1, 1, *a.shape[1:])
    yield lambda a: np.broadcast_to(a, (2, *a.shape)).sum(axis=0)
    yield lambda a: a.reshape(-1)
    yield lambda a: a.reshape(a.shape[-1], -1)
    yield lambda a: (a + a).ravel()[1:]
    yield lambda a: a.T.flatten()
    yield lambda a: np.roll(a, 2)
    yield lambda a: np.rot90(a) if a.ndim > 1 else a
    yield lambda a: np.tile(a, 2)
    yield lambda a: np.dstack([a, a]) if a.ndim == 2 else a
    yield lambda a: np.array_split(a, 2)[0]
    yield lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=-1).sum(axis=-1)


def _values(array):
    """Functions of elements."""
    yield lambda a: a + a
    yield lambda a: a * 3 if a.dtype != bool else a & True
    yield lambda a: np.where(a > 1, a, 2)
    yield lambda a: np.maximum(a, 1) - (a < 2)
    yield lambda a: np.clip(a, 1, 3)
    yield lambda a: a.astype("float32") / 2
    yield lambda a: a.astype("uint8") + 1
    yield lambda a: (a >= 1) & np.logical_not(a)
    yield lambda a: abs(a.astype("float64") - 2.5) ** 2
    yield lambda a: np.sqrt(abs(a.astype("float32")))
    yield lambda a: a - np.float64(0.5)
    yield lambda a: a.astype("int64") // 2 % 3
    yield lambda a: a + np.arange(a.shape[-1], dtype="int32")
    yield lambda a: np.square(a) if a.dtype != bool else a


def _sums(array):
    """Reductions."""
    yield lambda a: a.sum(axis=0, keepdims=True)
    yield lambda a: a.max(axis=-1)
    yield lambda a: a - a.min() if a.dtype != bool else a
    yield lambda a: a.mean(axis=0)
    yield lambda a: np.any(a, axis=0) | np.all(a, axis=0)
    yield lambda a: a * a.prod(axis=-1, keepdims=True)
    yield lambda a: np.var(a.astype("float64"), axis=-1, keepdims=True) + a
    yield lambda a: np.add.reduce(a, axis=0, dtype="float64")
    yield lambda a: a @ a.T if a.ndim <= 2 else np.matmul(a, a.swapaxes(-1, -2))
    yield lambda a: np.cumsum(a, axis=-1)
    yield lambda a: np.cumsum(a)
    yield lambda a: np.maximum.accumulate(a, axis=0)
    yield lambda a: np.argmax(a, axis=-1) + a.argmin()
    yield lambda a: np.ptp(a) if a.dtype != bool else a
    yield lambda a: np.count_nonzero(a, axis=0) + a
    yield lambda a: np.einsum("...i->...", a) if a.ndim < 1 else np.tensordot(a, a, a.ndim)
    yield lambda a: np.einsum("ij,ik->jk", a, a) if a.ndim == 2 else a


def _writes(array):
    """Writes to parts of arrays."""

    def interior(a):
        out = np.zeros_like(a)
        out[..., 1:-1] = a[..., 2:]
        return out

    def in_place(a):
        out = a.copy()
        out[1:] += a[:-1] if a.dtype != bool else True
        return out

    def interleaved(a):
        out = np.empty((2 * len(a), *a.shape[1:]), a.dtype)
        out[::2] = a
        out[1::2] = a[::-1]
        return out

    def backwards(a):
        out = np.ones(a.shape)
        out[::-2] = a[::-2] * 2
        view = out[..., 0]
        view[...] = 7
        return out

    def shifted(a):
        b = a + a
        b[1:] = b[:-1]
        return b * (b > 0)

    yield from (interior, in_place, interleaved, backwards, shifted)


OPERATIONS = [*_views(None), *_values(None), *_sums(None), *_writes(None)]


@st.composite
def drawn_functions(draw):
    """A function of one or two arrays, and arrays for it."""
    count = draw(st.integers(1, 2))
    shape = tuple(draw(st.lists(st.integers(2, 5), min_size=1, max_size=3)))
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=count, max_size=count))
    chosen = draw(st.lists(st.integers(0, len(OPERATIONS) - 1), min_size=1, max_size=4))
    seed = draw(st.integers(0, 1000))

    def function(*arrays):
        first = arrays[0]
        for number in chosen:
            made = OPERATIONS[number](first)
            if 0 < made.ndim <= 4 and made.size <= 2000:
                first = made
        return first + arrays[1][(0,) * arrays[1].ndim] if len(arrays) > 1 else first

    rng = np.random.default_rng(seed)
    arrays = [rng.integers(0, 5, shape).astype(dtype) for dtype in dtypes]
    return function, chosen, arrays
