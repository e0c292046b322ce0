"""Time bias and ReLU fused into what computes, against a pass of their own over the result.

`python examples/fused_epilogues.py` runs the convolutions of ResNet-18 and a product whose result
is larger than its operands, float32, one thread. The same plan without an epilogue is followed by
NumPy in place, or by one compiled pass that adds and compares at once; the faster of the two
counts. They take turns in one process, and caches are flushed before each run. Times are of the
thread, so that other programs hardly count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median
from typing import Any

import numpy as np
from numba import njit

import tilesolve
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.layer_suites import layer_suite

FLUSHED_BYTES = 1 << 27
PRODUCT = "m=2048 n=4096 k=32"
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Case:
    """Something to compute with and without an epilogue.

    Parameters
    ----------
    name
        What it is.
    fused, plain
        Compute all, and all but bias and ReLU.
    result
        What `plain` writes.
    bias
        What is added, with an axis for each of the result.
    """

    name: str
    fused: Callable[[], Any]
    plain: Callable[[], Any]
    result: Floats
    bias: Floats

    def ways(self) -> dict[str, Callable[[], Any]]:
        """Return all ways to compute it."""
        wide = np.broadcast_to(self.bias, self.result.shape)

        def with_numpy() -> None:
            self.plain()
            np.add(self.result, self.bias, out=self.result)
            np.maximum(self.result, 0, out=self.result)

        def with_pass() -> None:
            self.plain()
            add_and_rectify(self.result, wide)

        return {"fused": self.fused, "numpy": with_numpy, "pass": with_pass}


@njit(error_model="numpy")
def add_and_rectify(result: Floats, bias: Floats) -> None:
    """Add a bias and apply ReLU, in one pass over a result in C order."""
    zero = np.float32(0)
    for row in range(result.shape[0]):
        if bias.strides[1] == 0:  # one number for the row, which vectors need to know
            shift = bias[row, 0]
            for column in range(result.shape[1]):
                x = result[row, column] + shift
                result[row, column] = zero if x <= zero else x
        else:
            for column in range(result.shape[1]):
                x = result[row, column] + bias[row, column]
                result[row, column] = zero if x <= zero else x


def convolutions(most: int) -> Iterator[Case]:
    """Yield the layers of ResNet-18."""
    rng = np.random.default_rng(0)
    layers = dict.fromkeys(one.convolution for one in layer_suite("resnet18"))
    for layer in list(layers)[: most or None]:
        x, w = (rng.standard_normal(s, np.float32) for s in (layer.x_shape, layer.w_shape))
        bias = rng.standard_normal(layer.filters, np.float32)
        made = [
            tilesolve.conv_layer(
                x.shape, w, shift, stride=layer.stride, padding=layer.padding,
                groups=layer.groups, epilogue=epilogue, threads=1,
            )
            for shift, epilogue in ((bias, "relu"), (None, None))
        ]  # fmt: skip
        outs = [np.zeros(layer.out_shape, np.float32) for _ in made]
        runs = [partial(one, x, out) for one, out in zip(made, outs, strict=True)]
        result = outs[1].reshape(layer.filters, -1)
        yield Case(title(layer), runs[0], runs[1], result, bias[:, None])


def product() -> Case:
    """Return the product."""
    rng = np.random.default_rng(0)
    fused = tilesolve.plan("mn-mk-kn", PRODUCT, dtype="float32", threads=1, epilogue="+n relu")
    plain = tilesolve.plan("mn-mk-kn", PRODUCT, dtype="float32", threads=1)
    a, b = (rng.standard_normal(shape, np.float32) for shape in fused.problem.shapes[1:])
    first, second = (np.zeros(fused.problem.shape(0), np.float32) for _ in range(2))
    bias = rng.standard_normal(b.shape[1], np.float32)
    return Case(
        f"product {PRODUCT}",
        lambda: fused(a, b, first, operands=(bias,)),
        lambda: plain(a, b, second),
        second,
        bias[None],
    )


def title(layer: Convolution) -> str:
    """Return a layer in a few characters."""
    step = f" s{layer.stride[0]}" if layer.stride[0] > 1 else ""
    window = f"{layer.window[0]}x{layer.window[0]}"
    return f"{layer.channels}→{layer.filters} {window}{step} {layer.size[0]}²"


def time_case(case: Case, repeat: int) -> dict[str, float]:
    """Return the median seconds of each way, after a look whether all give the same."""
    ways, junk = case.ways(), np.zeros(FLUSHED_BYTES, np.uint8)
    expected = np.array(ways["fused"]()).reshape(case.result.shape)
    for name in ("numpy", "pass"):
        ways[name]()
        np.testing.assert_allclose(case.result, expected, rtol=1e-3, atol=1e-3)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, run in ways.items():
            junk += 1
            begin = time.thread_time()
            run()
            seconds[name].append(time.thread_time() - begin)
    return {name: median(times) for name, times in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the cases and print how much faster fused ones are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=0, help="at most so many convolutions")
    parser.add_argument("--repeat", type=int, default=21, help="runs of each")
    options = parser.parse_args(arguments)
    print(f"{'bias and ReLU, milliseconds':32}{'fused':>9}{'numpy':>9}{'pass':>9}{'ratio':>8}")
    ratios = []
    for case in (*convolutions(options.most), product()):
        seconds = time_case(case, options.repeat)
        ratios.append(min(seconds["numpy"], seconds["pass"]) / seconds["fused"])
        cells = "".join(f"{1e3 * one:9.3f}" for one in seconds.values())
        print(f"{case.name:32}{cells}{ratios[-1]:8.2f}", flush=True)
    print(
        f"convolutions: mean {geometric_mean(ratios[:-1]):.2f}, least {min(ratios[:-1]):.2f}; "
        f"product: {ratios[-1]:.2f}"
    )


if __name__ == "__main__":
    main()
