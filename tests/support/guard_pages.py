"""Random calls on arrays between pages that nobody may touch: a read beyond one ends the process.

``python tests/support/guard_pages.py SEED CALLS FILE DTYPE...`` makes calls and notes in the file
which one is under way. It ends with 0 if every result was right.
"""

import ctypes
import mmap
import sys
from pathlib import Path

import numpy as np

import tilesolve
from tilesolve.contractions.reference import reference

_libc = ctypes.CDLL(None, use_errno=True)
_READ = 1  # PROT_READ
TOLERANCES = {"f4": 1e-4, "f8": 1e-11, "c8": 1e-4, "c16": 1e-11}
PRODUCTS = ("ik-ij-jk", "ki-ji-kj", "abc-bda-dc", "ab-acb-c", "xyk-xk-yk", "n-nk-k", "ab-cad-dcb")
LAYERS = (
    ((1, 5, 9, 11), (6, 5, 3, 3), {"padding": 1}),
    ((2, 7, 8, 8), (9, 7, 1, 1), {"stride": 2}),
    ((1, 6, 9, 9), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((1, 4, 13, 7), (17, 4, 2, 3), {"dilation": 2}),
)


def allocate(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return bytes that end, or begin, where a page begins, or ends, that nobody may touch."""
    page = mmap.PAGESIZE
    pages = max(1, -(-size // page)) * page
    memory = mmap.mmap(-1, pages + 2 * page)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for at in (begin, begin + page + pages):
        if _libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    first = page + (0 if rng.random() < 0.25 else pages - size)
    return np.frombuffer(memory, np.uint8)[first : first + size]


def protect(array: np.ndarray) -> np.ndarray:
    """Return an array whose pages may only be read from now on."""
    low, high = np.lib.array_utils.byte_bounds(array)
    low -= low % mmap.PAGESIZE
    if high > low and _libc.mprotect(ctypes.c_void_p(low), ctypes.c_size_t(high - low), _READ):
        raise OSError(ctypes.get_errno(), "mprotect")
    return array


def lay(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an array of the same values in memory of its own: any order, steps and directions."""
    order = rng.permutation(values.ndim) if rng.random() < 0.5 else np.arange(values.ndim)
    steps = np.where(rng.random(values.ndim) < 0.15, 2, 1)
    whole = [
        max(0, (values.shape[axis] - 1) * step + 1) for axis, step in zip(order, steps, strict=True)
    ]
    room = allocate(int(np.prod(whole)) * values.itemsize, rng).view(values.dtype).reshape(whole)
    flips = np.where(rng.random(values.ndim) < 0.15, -1, 1)
    parts = tuple(
        slice(None, None, int(step * flip)) for step, flip in zip(steps, flips, strict=True)
    )
    found = room[(*parts, ...)].transpose(np.argsort(order))
    found[...] = values
    return found


def draw(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Return values of a dtype."""
    values = rng.standard_normal(shape)
    if dtype in ("c8", "c16"):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def give(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an operand that may only be read, and only where it is."""
    return protect(lay(values, rng))


def poison(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Return an output full of NaN."""
    return lay(np.full(shape, np.nan, dtype), rng)


class Calls:
    """What random calls are drawn from; plans and layers are made once."""

    def __init__(self, seed: int, plans: int, dtypes: list[str]) -> None:
        rng = np.random.default_rng(seed)
        self.dtypes = dtypes
        self.plans, self.layers = [], []
        for _ in range(plans):
            spec = PRODUCTS[rng.integers(len(PRODUCTS))]
            letters = sorted(set(spec) - {"-"})
            sizes = {letter: int(rng.integers(1, 36)) for letter in letters}
            dtype = str(rng.choice(dtypes))
            found = tilesolve.plan(spec, sizes, dtype=dtype, threads=int(rng.integers(1, 3)))
            self.plans.append((found, dtype))
        for number in rng.permutation(len(LAYERS))[:2]:
            shape, w_shape, rest = LAYERS[number]
            layout = ("NCHW", "NHWC")[rng.integers(2)]
            weights = draw(w_shape, "f4", rng)
            make = tilesolve.conv_layer
            own = shape if layout == "NCHW" else (shape[0], *shape[2:], shape[1])
            layer = make(own, weights, layout=layout, epilogue="relu", threads=1, **rest)
            wide = make(own, weights.astype("f8"), layout=layout, threads=1, **rest)
            self.layers.append((own, layer, wide))

    def make(self, rng: np.random.Generator) -> None:
        """Make one call, and raise an error unless its result is right."""
        kind = rng.choice(4, p=[0.5, 0.25, 0.1, 0.15])
        (self.einsum, self.product, self.layer, self.transpose)[kind](rng)

    def einsum(self, rng: np.random.Generator) -> None:
        """Contract one to three operands."""
        sizes = {
            letter: int(rng.integers(0 if rng.random() < 0.05 else 1, 12)) for letter in "abcde"
        }
        if rng.random() < 0.1:
            sizes["abcde"[rng.integers(5)]] = int(rng.integers(12, 70))
        terms = [
            "".join(rng.choice(list("abcde"), rng.integers(0, 4)))
            for _ in range(rng.integers(1, 4))
        ]
        known = sorted(set("".join(terms)))
        output = "".join(rng.permutation(known)[: rng.integers(0, len(known) + 1)])
        dtype, text = str(rng.choice(self.dtypes)), ",".join(terms) + "->" + output
        values = [draw(tuple(sizes[i] for i in term), dtype, rng) for term in terms]
        wide = [one.astype("c16" if dtype in ("c8", "c16") else "f8") for one in values]
        expected = np.asarray(np.einsum(text, *wide, optimize=len(wide) > 2))
        operands = [give(one, rng) for one in values]
        if rng.random() < 0.5:
            found = tilesolve.einsum(text, *operands, threads=int(rng.integers(1, 3)))
        else:
            found = poison(expected.shape, dtype, rng)
            tilesolve.einsum(text, *operands, out=found)
        compare(found, expected, dtype)

    def product(self, rng: np.random.Generator) -> None:
        """Run a plan."""
        found, dtype = self.plans[rng.integers(len(self.plans))]
        values = [draw(shape, dtype, rng) for shape in found.problem.shapes[1:]]
        expected = reference(found.problem, *values)
        out = poison(expected.shape, dtype, rng)
        found(*(give(one, rng) for one in values), out=out)
        compare(out, expected, dtype)

    def layer(self, rng: np.random.Generator) -> None:
        """Run a layer in float32, and in float64 on arrays of NumPy's own."""
        shape, layer, wide = self.layers[rng.integers(len(self.layers))]
        images = draw(shape, "f4", rng)
        out = poison(layer.out_shape, "f4", rng)
        layer(give(images, rng), out=out)
        compare(out, np.maximum(wide(images.astype("f8")), 0), "f4")

    def transpose(self, rng: np.random.Generator) -> None:
        """Move an array."""
        shape = tuple(int(n) for n in rng.integers(1, 14, rng.integers(1, 5)))
        dtype = str(rng.choice(self.dtypes))
        values, axes = draw(shape, dtype, rng), tuple(rng.permutation(len(shape)).tolist())
        expected = values.transpose(axes)
        out = poison(expected.shape, dtype, rng)
        tilesolve.transpose(give(values, rng), axes, out=out, threads=int(rng.integers(1, 3)))
        compare(out, expected, dtype)


def compare(found: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    """Raise an error unless a result is right."""
    scale = 1 + float(np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[dtype] * scale)


def main(seed: int, calls: int, file: str, dtypes: list[str]) -> None:
    """Make so many calls, each with a seed of its own."""
    drawn = Calls(seed, 4 + calls // 100, dtypes)
    with Path(file).open("w", encoding="utf-8") as notes:
        for number in range(calls):
            notes.seek(0)
            notes.write(f"{number}\n")
            notes.flush()
            drawn.make(np.random.default_rng([seed, number]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
