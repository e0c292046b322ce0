"""Pipelines as NumPy functions, and the sizes of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.bench import array_functions as arrays
from tilesolve.bench import image_functions as images
from tilesolve.contractions.stand_ins import rebuild
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.nest_suites import NestCase as Nest
from tilesolve.nests.operations import count_operations
from tilesolve.pipelines.stages import make_computation
from tilesolve.pipelines.tracing import Trace, trace_function

FUNCTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        *(images.blur, images.unsharp, images.harris, images.maxfilter, images.interpolate),
        *(images.pyramid_blend, images.stencil_chain, images.nlmeans, images.camera),
        *(images.laplacian, images.bilateral_grid, arrays.vdsr, arrays.softmax),
        *(arrays.layer_norm, arrays.attention, arrays.total_variation, arrays.shallow_water),
    )
}
"""Pipelines by name."""


HIGHEST = {"raw": 1023, "photo": 65535}
"""The greatest numbers of arguments that have more than bytes."""


@dataclass(frozen=True, slots=True)
class Pipeline(Nest):
    """A function whose statements are traced.

    `text` is its name; `shapes` has its arguments in order, all of one dtype. Of several results
    the first one counts.

    Examples
    --------
    >>> print(CASES["blur"].shrink(32).computation.stages[0])
    rows[y1,x1] = (image[y1,x1] + image[y1,x1+1] + image[y1,x1+2]) / 3
    """

    @property
    def function(self) -> Callable[..., Any]:
        """What NumPy runs."""
        return FUNCTIONS[self.text]

    @property
    def computation(self) -> Computation:
        """What it computes."""
        return _trace(self)[0]

    @property
    def constants(self) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays of the function's own, by name."""
        return _trace(self)[1]

    def shrink(self, share: int) -> Pipeline:
        """Return the same of arrays whose axes are so many times shorter."""
        # What is longer than a multiple stays so much longer.
        shapes = tuple(
            (name, tuple(max(n // share // 16, 1) * 16 + n % 16 if n > 16 else n for n in shape))
            for name, shape in self.shapes
        )
        return Pipeline(self.name, self.text, self.sizes, self.dtype, shapes=shapes)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays that are drawn, by name: bytes, or shares of 256; always the same.

        Weights of layers are such that these neither grow nor shrink what passes.
        """
        rng = np.random.default_rng(0)
        scale = 1 if self.dtype.startswith("u") else 256
        found = {
            name: rng.integers(1, HIGHEST.get(name, 255) + 1, shape) / scale
            for name, shape in self.shapes
        }
        for name, array in found.items():
            if name.startswith("weights"):
                found[name] = rng.normal(0, (2 / np.prod(array.shape[-3:])) ** 0.5, array.shape)
        return {name: array.astype(self.dtype) for name, array in found.items()}

    def trace(self) -> Trace:
        """Return what its function does."""
        # Tracing looks at shapes and dtypes alone.
        zero = np.zeros((), self.dtype)
        arrays = [np.broadcast_to(zero, shape) for _, shape in self.shapes]
        return trace_function(self.function, signature(self.function).bind(*arrays))


def count_work(computation: Computation) -> float:
    """Return the operations of all stages, each as many as additions that take as long.

    Examples
    --------
    >>> count_work(CASES["blur"].computation) > 6 * 4800 * 6400
    True
    """
    dtypes = computation.dtypes
    return sum(
        computation.points(one) * count_operations(one.term, dtypes) for one in computation.stages
    )


def replace_numpy(function: FunctionType, other: ModuleType) -> Callable[..., Any]:
    """Return a function with another library's functions in the place of NumPy's."""
    made: dict[FunctionType, FunctionType] = {}

    def stand_in(value: Any) -> Any:  # noqa: ANN401 - whatever functions refer to
        if value is np:
            return other
        return rebuild(value, stand_in, made) if isinstance(value, FunctionType) else value

    return rebuild(function, stand_in, made)


@cache
def _trace(pipeline: Pipeline) -> tuple[Computation, Mapping[str, npt.NDArray[Any]]]:
    found = pipeline.trace()
    return make_computation(found.graph, [found.results[0].name]), found.graph.constants


def _define(name: str, *shapes: tuple[int, ...], dtype: str = "float32") -> Pipeline:
    named = tuple(zip(signature(FUNCTIONS[name]).parameters, shapes, strict=False))
    return Pipeline(name, name, (), dtype, shapes=named)


CASES = {
    one.name: one
    for one in (
        _define("blur", (4802, 6402)),
        _define("unsharp", (3, 1024, 1920)),
        _define("harris", (3, 1028, 1924)),
        _define("maxfilter", (3, 1024, 1920)),
        _define("interpolate", (4, 1536, 2560)),
        _define("pyramid_blend", (3, 1024, 1920), (3, 1024, 1920), (1024, 1920)),
        _define("stencil_chain", (1568, 2592), dtype="uint16"),
        _define("nlmeans", (3, 608, 1024)),
        _define("camera", (1948, 2572), dtype="uint16"),
        _define("laplacian", (3, 768, 1280), dtype="uint16"),
        _define("bilateral_grid", (1536, 2560)),
        _define("vdsr", (1, 256, 256), (64, 1, 3, 3), (16, 64, 64, 3, 3), (1, 64, 3, 3)),
        _define("softmax", (4096, 1024)),
        _define("layer_norm", (4096, 1024), (1024,), (1024,)),
        _define("attention", *3 * [(2048, 64)]),
        _define("total_variation", (1024, 1920)),
        _define("shallow_water", (1024, 1024), (1024, 1025), (1025, 1024), dtype="float64"),
    )
}
"""Pipelines with sizes, by name."""
