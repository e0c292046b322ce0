"""Models that run here: whole networks as programs of layers, pipelines and views."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DtypeError, ModelError, SizeError
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.networks.build import Builder, Program
from tilesolve.networks.chains import CONVOLUTIONS, OtherConvolution, join_chains
from tilesolve.networks.files import check_inputs, read_model
from tilesolve.networks.graph import read_network
from tilesolve.networks.patterns import join_patterns
from tilesolve.networks.places import Place, new_arena
from tilesolve.networks.works import EvaluatorWork, Held, LayerWork, Step
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.checks import check_threads
from tilesolve.system.html_report import write_html_report
from tilesolve.system.units import format_volume

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """A program with its arena: what one call after another runs."""

    lock: Lock
    inputs: dict[str, Array]
    steps: list[Step]
    outputs: dict[str, Array | None]

    @classmethod
    def of(cls, program: Program) -> _Bound:
        """Return a program in memory of its own."""
        begins, size = program.blocks.arrange()
        arena = new_arena(size)

        def locate(place: Place) -> Array:
            return place.array(arena, begins[place.block])

        return cls(
            Lock(),
            {name: locate(place) for name, place in program.inputs.items()},
            [work.bind(locate) for work in program.works],
            {
                name: locate(end) if isinstance(end, Place) else end
                for name, end in program.outputs.items()
            },
        )

    def run(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs: arrays that later calls do not write to."""
        with self.lock:
            held: Held = {}
            for name, array in self.inputs.items():
                np.copyto(array, given[name])
            for step in self.steps:
                step(held)
            return {
                name: np.array(held[name] if found is None else found, order="C")
                for name, found in self.outputs.items()
            }


class Model:
    """A model that runs here; `load` makes one.

    ``model({name: array})`` gives the outputs by name; a model of one input takes its array, too.
    ``print(model)`` says how many of its convolutions are layers, which are not, and why; and what
    else runs.

    Parameters
    ----------
    program
        What runs.
    inputs
        The shape and the dtype of each input.
    others
        The convolutions that are no layers.
    """

    __slots__ = ("_bound", "inputs", "layers", "others", "program")

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        others: tuple[OtherConvolution, ...] = (),
    ) -> None:
        self.program = program
        self.inputs = inputs
        self.others = others
        self.layers: tuple[ConvLayer, ...] = tuple(
            work.layer for work in program.works if isinstance(work, LayerWork)
        )
        self._bound = _Bound.of(program)

    def __call__(self, inputs: Mapping[str, npt.ArrayLike] | npt.ArrayLike) -> dict[str, Array]:
        """Run the model.

        Parameters
        ----------
        inputs
            An array for each input, by name; or the array of the only input.

        Returns
        -------
        dict
            An array for each output.

        Raises
        ------
        ModelError
            If an input is missing or unknown, or an operator fails.
        SizeError, DtypeError
            If an input has another shape or dtype.
        """
        return self._bound.run(self._read_inputs(inputs))

    @property
    def bytes(self) -> int:
        """Bytes of the arena in which all arrays of a call lie."""
        return self.program.blocks.arrange()[1]

    @property
    def least_bytes(self) -> int:
        """The most bytes of arrays that are needed at once: no arena is smaller."""
        return self.program.blocks.least_bytes

    def _read_inputs(self, given: Mapping[str, npt.ArrayLike] | npt.ArrayLike) -> dict[str, Array]:
        """Return the array of each input, if its shape and its dtype are the model's."""
        if not isinstance(given, Mapping):
            if len(self.inputs) != 1:
                raise ModelError(
                    f"the model has {len(self.inputs)} inputs: give an array for each by its name, "
                    f"{{{', '.join(f'{name!r}: ...' for name in self.inputs)}}}"
                )
            given = dict.fromkeys(self.inputs, given)
        if set(given) != set(self.inputs):
            wanted, got = (", ".join(sorted(map(str, names))) for names in (self.inputs, given))
            raise ModelError(f"the model's inputs are {wanted or 'none'}, got {got or 'none'}")
        arrays = {name: read_array(one, f"input {name!r}") for name, one in given.items()}
        for name, (shape, dtype) in self.inputs.items():
            if arrays[name].shape != shape:
                raise SizeError(
                    f"input {name!r} has the shape {arrays[name].shape}, the model has {shape}"
                )
            if arrays[name].dtype != dtype:
                raise DtypeError(f"input {name!r} is {arrays[name].dtype}, the model has {dtype}")
        return arrays

    def __repr__(self) -> str:
        return f"<Model of {', '.join(self.inputs) or 'no input'}: {self._count()}>"

    def __str__(self) -> str:
        works = [
            str(work)
            for work in self.program.works
            if not (
                isinstance(work, EvaluatorWork)
                and work.is_ours
                and work.nodes[0].kind in CONVOLUTIONS
            )
        ]
        memory = (
            f"arrays take {format_volume(self.bytes)}, at least {format_volume(self.least_bytes)}"
        )
        return "\n".join([self._count(), *works, *map(str, self.others), memory])

    def _repr_html_(self) -> str:
        return write_html_report(str(self))

    def _count(self) -> str:
        works = [work for work in self.program.works if isinstance(work, LayerWork)]
        products = sum(work.is_product for work in works)
        layers = len(works) - products
        count = layers + len(self.others)
        told = f"{layers} of {count} convolutions are layers" if count else "no convolutions"
        if products:
            told += f", and {products} product{'s' * (products > 1)}"
        return told


def load(source: str | PathLike[str] | bytes | ModelProto, *, threads: int | None = None) -> Model:
    """Make a model that runs here: its layers are planned and packed once.

    A convolution or a product with constant weights is a layer. What scales or shifts its channels
    becomes part of its weights, a sum with an array of the same shape its residual, and Relu, Clip,
    LeakyRelu, Sigmoid, Tanh, SiLU or GELU its activation, where nothing else reads the results in
    between. Nodes that depend on constants alone are computed once. Other operators are pipelines,
    and those that no pipeline has are ONNX's own reference: a warning names them.

    ``print(model)`` says what runs, and which convolutions are no layers, and why.

    Parameters
    ----------
    source
        A file, the content of one, or the model itself.
    threads
        Of the layers, as in `plan`.

    Raises
    ------
    ModelError
        If the model cannot be read, is damaged, has dynamic shapes, or operators that nobody knows.
    """
    shared = None if threads is None else check_threads(threads)
    model = read_model(source)
    check_inputs(model.graph)
    network = read_network(model)
    inputs = {name: (network.shapes[name], network.dtypes[name]) for name in network.inputs}
    join_patterns(network)
    _, others = join_chains(network)
    program = Builder(network, shared).build()
    left = [work for work in program.works if isinstance(work, EvaluatorWork)]
    left = [work for work in left if not work.is_ours]
    if left:
        kinds = sorted({work.nodes[0].kind for work in left})
        warnings.warn(
            f"{len(left)} of {len(program.works)} works run in ONNX's reference, which is slow: "
            f"{', '.join(kinds)}; print(model) says why",
            stacklevel=2,
        )
    return Model(program, inputs, tuple(others))
