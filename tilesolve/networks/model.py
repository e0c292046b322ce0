"""Models that run here: whole networks as programs of layers, pipelines and views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants.nests import NETWORK_KEPT_PROGRAMS
from tilesolve.contractions.argument_kinds import check_kind, read_flag
from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DtypeError, ModelError, SizeError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.machine.model import Machine
from tilesolve.networks.build import Program
from tilesolve.networks.chains import OtherConvolution
from tilesolve.networks.files import (
    check_model,
    dimensions_of,
    dtypes_of,
    fix_shapes,
    format_shape,
    import_onnx,
)
from tilesolve.networks.pictures import draw_program
from tilesolve.networks.ready import Ready
from tilesolve.networks.report import write_report
from tilesolve.networks.sources import Parsed, parse_model
from tilesolve.networks.works import LayerWork, WinogradWork
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.checks import check_threads
from tilesolve.system.html_report import write_html_report
from tilesolve.system.units import format_volume

if TYPE_CHECKING:
    from onnx import ModelProto

    from tilesolve.networks.sources import Source


Dims = tuple[int | str, ...] | None
Shapes = tuple[tuple[int, ...], ...]


class Model:
    """A model that runs here; `load` makes one.

    ``model({name: array})`` gives the outputs by name; a model of one input takes its array, too.
    ``print(model)`` says how many of its convolutions are layers, which are not, and why; and what
    else runs. Of a model with dynamic shapes it says that for the last call.

    `inputs` has the shape and the dtype of each input; extents that are not known have names.

    Parameters
    ----------
    parsed
        The model. One that came from files is read again where it is planned for other shapes;
        any other stays in memory if its shapes are dynamic.
    machine, threads
        Of the plans.
    winograd
        As in `load`.
    """

    __slots__ = (
        *("_files", "_kept", "_machine", "_model", "_recent", "_threads", "_winograd"),
        "inputs",
    )

    def __init__(
        self,
        parsed: Parsed,
        machine: Machine | str | None,
        threads: int | None,
        *,
        winograd: bool = True,
    ) -> None:
        model = check_model(parsed)
        kinds = dtypes_of(model.graph)
        self.inputs: dict[str, tuple[Any, np.dtype[Any]]] = {
            name: (dims, kinds[name]) for name, dims in dimensions_of(model.graph).items()
        }
        self._machine, self._threads, self._winograd = machine, threads, winograd
        self._model: ModelProto | None = model
        self._files = parsed.files
        self._kept: dict[Shapes, Ready] = {}
        self._recent: Ready | None = None
        if all(_is_known(dims) for dims, _ in self.inputs.values()):
            self.prepare({name: dims for name, (dims, _) in self.inputs.items()})

    def prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Plan for inputs of some shapes, which calls of such inputs do otherwise.

        Raises
        ------
        SizeError
            If the model's inputs have other extents.
        ModelError
            If it cannot have such inputs.
        """
        key = tuple(tuple(shapes[name]) for name in self.inputs)
        found = self._kept.pop(key, None)
        if found is None:
            found = self._plan(shapes)
        self._kept[key] = self._recent = found
        while len(self._kept) > NETWORK_KEPT_PROGRAMS:
            del self._kept[next(iter(self._kept))]

    def _plan(self, shapes: Mapping[str, tuple[int, ...]]) -> Ready:
        """Plan for inputs of some shapes; what no other shapes need is dropped."""
        model = self._model
        if model is None:
            assert self._files is not None
            model = check_model(self._files.parse(import_onnx()))
        is_fixed = all(_is_known(dims) for dims, _ in self.inputs.values())
        if is_fixed or self._files is not None:
            self._model = None
        if not is_fixed:
            model = fix_shapes(model, shapes)
        return Ready.of(model, self._machine, self._threads, winograd=self._winograd)

    @property
    def program(self) -> Program:
        """What runs; of a model with dynamic shapes, what the last call ran."""
        if self._recent is None:
            raise ModelError("the model has dynamic shapes, and nothing has run yet")
        return self._recent.program

    @property
    def others(self) -> tuple[OtherConvolution, ...]:
        """The convolutions that are no layers."""
        return () if self._recent is None else self._recent.others

    @property
    def layers(self) -> tuple[ConvLayer, ...]:
        """The convolutions and products with constant weights, in their order."""
        return tuple(work.layer for work in self._layer_works())

    def _layer_works(self) -> list[LayerWork | WinogradWork]:
        works = () if self._recent is None else self._recent.program.works
        kinds = LayerWork | WinogradWork
        return [work for work in works if isinstance(work, kinds)]

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
        arrays = self._read_inputs(inputs)
        return self._ready(arrays).bound.run(arrays)

    def measure(
        self, inputs: Mapping[str, npt.ArrayLike] | npt.ArrayLike, rounds: int = 10
    ) -> list[float]:
        """Return the median seconds of each work of `program` while the whole model runs."""
        arrays = self._read_inputs(inputs)
        return self._ready(arrays).bound.measure(arrays, rounds)

    def measure_alone(
        self,
        inputs: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
        rounds: int = 10,
        before: Callable[[], object] = lambda: None,
    ) -> list[float]:
        """Return the median seconds of each work of `program`, each run again and again.

        `before` is called before each run, which the time does not include. Models of which a part
        runs in ONNX's reference on arrays of unknown shapes have no such times.
        """
        arrays = self._read_inputs(inputs)
        return self._ready(arrays).bound.measure_alone(arrays, rounds, before)

    def _ready(self, arrays: Mapping[str, Array]) -> Ready:
        """Return what runs for some inputs, which is planned if need be."""
        found = self._kept.get(tuple(arrays[name].shape for name in self.inputs))
        if found is None or found is not self._recent:
            self.prepare({name: one.shape for name, one in arrays.items()})
            found = self._recent
        assert found is not None
        return found

    def draw_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return random inputs of a model whose shapes are known: normal numbers, or zeros.

        Raises
        ------
        ModelError
            If shapes are dynamic.
        """
        rng = np.random.default_rng(seed)
        found = {}
        for name, (dims, dtype) in self.inputs.items():
            if not _is_known(dims):
                raise ModelError(f"input {name!r} has the dynamic shape {format_shape(dims or ())}")
            drawn = rng.standard_normal(dims) if dtype.kind == "f" else np.zeros(dims)
            found[name] = drawn.astype(dtype)
        return found

    @property
    def bytes(self) -> int:
        """Bytes of the arena in which all arrays of a call lie."""
        return self.program.blocks.arrange()[1]

    @property
    def least_bytes(self) -> int:
        """The most bytes of arrays that are needed at once: no arena is smaller."""
        return self.program.blocks.least_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of all layers of a program, as they are held: packed, mostly."""
        return sum(work.weight_bytes for work in self._layer_works())

    @property
    def least_weight_bytes(self) -> int:
        """Bytes of the elements of these weights."""
        layers = (one.convolution for one in self.layers)
        return sum(prod(one.w_shape) * array_dtype(one.dtype).itemsize for one in layers)

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
        named: dict[str, int] = {}
        for name, (dims, dtype) in self.inputs.items():
            shape = arrays[name].shape
            if not _fits(dims, shape, named):
                wanted = format_shape(dims or ())
                raise SizeError(f"input {name!r} has the shape {shape}, the model has {wanted}")
            if arrays[name].dtype != dtype:
                raise DtypeError(f"input {name!r} is {arrays[name].dtype}, the model has {dtype}")
        return arrays

    def __repr__(self) -> str:
        return f"<Model of {', '.join(self.inputs) or 'no input'}: {self.count}>"

    def __str__(self) -> str:
        if self._recent is None:
            dims = (f"{name} {format_shape(one or ())}" for name, (one, _) in self.inputs.items())
            return f"a model of {', '.join(dims)}, planned when it is first called"
        return self.report()

    def report(self, measured: Sequence[float] | None = None) -> str:
        """Return what runs as a table: predicted times and, if they are given, measured ones.

        Parameters
        ----------
        measured
            Seconds of each work, as `measure` returns them.
        """
        lines = [self.count, *write_report(self.program, measured)]
        if least := self.least_weight_bytes:
            held = format_volume(self.weight_bytes)
            lines.append(f"weights take {held}, at least {format_volume(least)}")
        return "\n".join([*lines, *map(str, self.others)])

    def plot(self, path: str | PathLike[str], measured: Sequence[float] | None = None) -> None:
        """Draw what runs: a box for each work, in the colour of its time, and what reads what.

        Parameters
        ----------
        path
            The picture; the ending of its name says the format.
        measured
            Seconds of each work, as `measure` returns them; if None, what is predicted.

        Raises
        ------
        PictureError, FileAccessError
            If it cannot be drawn, or not be written.
        """
        told = "predicted" if measured is None else "measured"
        draw_program(self.program, f"{self.count}; {told} times", path, measured)

    def _repr_html_(self) -> str:
        return write_html_report(str(self))

    @property
    def count(self) -> str:
        """How many convolutions are layers, as text."""
        works = [work for work in self._layer_works() if not work.is_further]
        products = sum(work.is_product for work in works)
        layers = len(works) - products
        count = layers + len(self.others)
        told = f"{layers} of {count} convolutions are layers" if count else "no convolutions"
        if products:
            told += f", and {products} product{'s' * (products > 1)}"
        return told


def _is_known(dims: Dims) -> bool:
    return dims is not None and all(isinstance(one, int) for one in dims)


def _fits(dims: Dims, shape: tuple[int, ...], named: dict[str, int]) -> bool:
    """Return whether a shape has the extents of an input; equal names are of equal extents."""
    if dims is None:
        return True
    if len(dims) != len(shape):
        return False
    return all(
        n == one if isinstance(one, int) else one == "?" or named.setdefault(one, n) == n
        for one, n in zip(dims, shape, strict=True)
    )


def load(
    source: Source,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    machine: Machine | str | None = None,
    threads: int | None = None,
    winograd: bool = True,
) -> Model:
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
    shapes
        Of the inputs, by name, for a model whose shapes are dynamic: it is planned for these at
        once, and for others when they come.
    machine, threads
        As in `plan`.
    winograd
        Whether layers of 3x3 may take fewer products where that is faster. They are rounded
        otherwise then: within 1e-5 of the largest number.

    Raises
    ------
    ModelError
        If the model cannot be read, is damaged, or has operators that nobody knows.
    SizeError
        If it has no inputs of such shapes.
    """
    shared = None if threads is None else check_threads(threads)
    machine = Machine.load(machine)  # once for all works
    if shapes is not None:
        shapes = _read_shapes(shapes)
    fewer = read_flag(winograd, "winograd", ModelError)
    found = Model(parse_model(import_onnx(), source), machine, shared, winograd=fewer)
    if shapes is not None:
        if set(shapes) != set(found.inputs):
            wanted, got = (", ".join(map(str, sorted(names))) for names in (found.inputs, shapes))
            raise ModelError(f"the model's inputs are {wanted or 'none'}, shapes are of {got}")
        named: dict[str, int] = {}
        for name, (dims, _) in found.inputs.items():
            if not _fits(dims, shapes[name], named):
                wanted = format_shape(dims or ())
                raise SizeError(f"shape {shapes[name]} is given for {name!r}, which has {wanted}")
        found.prepare(shapes)
    return found


def _read_shapes(given: object) -> dict[str, tuple[int, ...]]:
    """Return shapes by name, if they are such."""
    check_kind(given, Mapping, "shapes", "shapes by name", ModelError)
    assert isinstance(given, Mapping)
    found = {}
    for name, shape in given.items():
        what = f"shapes[{name!r}]"
        check_kind(shape, (tuple, list), what, "extents", SizeError)
        if not all(isinstance(one, int) and one > 0 for one in shape):
            raise SizeError(f"{what} has extents that are no positive numbers: {shape!r:.60}")
        found[str(name)] = tuple(shape)
    return found
