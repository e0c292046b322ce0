"""What a sweep of layers measures: the convolutions of published networks, or of an ONNX file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.convolution_arguments import write_numbers, write_unusual
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.layer_suites import SuiteLayer, layer_suite, layer_suites
from tilesolve.contractions.problem import dtype_name


@dataclass(frozen=True, slots=True)
class UsedLayer:
    """A layer that is measured once, and the networks that have it.

    Parameters
    ----------
    convolution
        The layer, with channels first.
    uses
        Networks, each with how many such layers it has.
    """

    convolution: Convolution
    uses: tuple[tuple[str, int], ...]

    @property
    def times(self) -> int:
        """How many such layers all networks have."""
        return sum(times for _, times in self.uses)


def has_layers(name: str) -> bool:
    """Return whether a suite has layers: by its name, or as an ONNX file.

    Examples
    --------
    >>> has_layers("sconv"), has_layers("mine.onnx"), has_layers("tccg")
    (True, True, False)
    """
    return name in layer_suites() or name.endswith(".onnx")


def list_layers(name: str) -> tuple[SuiteLayer, ...]:
    """Return the layers of a suite, or of an ONNX file.

    Raises
    ------
    SuiteError
        If there is no such suite.
    ModelError
        If the file is no model, or one whose layers are not known.
    """
    if not name.endswith(".onnx"):
        return layer_suite(name)
    from tilesolve.convolutions.onnx import layers

    counted = Counter(layers(name))
    return tuple(SuiteLayer(Path(name).stem, times, one) for one, times in counted.items())


def name_layer(layer: Convolution) -> str:
    """Return a layer's name in tables, which no other layer has.

    Examples
    --------
    >>> name_layer(Convolution.of((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3))
    '3-64 7x7 224x224 stride 2 padding 3'
    >>> name_layer(Convolution.of((1, 32, 8, 8), (32, 1, 3, 3), groups=32))
    '32-32 3x3 8x8 32 groups'
    """
    sides = [one if one == other else f"{one}+{other}" for one, other in layer.padding]
    parts = (
        f"{layer.channels}-{layer.filters}",
        write_numbers(layer.window),
        write_numbers(layer.size),
        f"batch {layer.batch}" if layer.batch != 1 else "",
        write_unusual("stride", layer.stride, 1),
        write_unusual("padding", sides, 0),
        write_unusual("dilation", layer.dilation, 1),
        f"{layer.groups} groups" if layer.groups != 1 else "",
    )
    return " ".join(filter(None, parts))


def find_layers(
    name: str, *, chosen: Sequence[str] = (), dtype: str | None = None
) -> dict[str, UsedLayer]:
    """Return the different layers of a sweep by name.

    Parameters
    ----------
    name
        A suite of layers, or the path of an ONNX file.
    chosen
        Names of layers or of networks, or patterns such as ``* 1x1 *``; all if there are none.
    dtype
        Instead of float32.

    Raises
    ------
    SuiteError, ModelError
        If there is no such suite or model.
    BenchmarkError
        If no layer or network has a chosen name, or a dtype has no order, as ReLU needs.

    Examples
    --------
    >>> found = find_layers("sconv", chosen=["ResNet-18"])
    >>> len(find_layers("sconv")), len(found), sum(one.times for one in found.values())
    (136, 11, 20)
    """
    kind = "float32" if dtype is None else dtype_name(dtype)
    if kind.startswith("complex"):
        raise BenchmarkError(f"layers end with ReLU, which {kind} has not")
    rows = list_layers(name)
    for pattern in chosen:
        if not any(_is_chosen(row, [pattern]) for row in rows):
            models = ", ".join(dict.fromkeys(row.model for row in rows))
            raise BenchmarkError(
                f"{name!r} has no layer {pattern!r}, nor a network of that name; it has {models}"
            )
    wanted = [row for row in rows if not chosen or _is_chosen(row, chosen)]
    return {
        key: replace(one, convolution=replace(one.convolution, dtype=kind))
        for key, one in _join(wanted).items()
    }


def _is_chosen(row: SuiteLayer, patterns: Iterable[str]) -> bool:
    names = (name_layer(row.convolution), row.model)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _join(rows: Iterable[SuiteLayer]) -> dict[str, UsedLayer]:
    """Return layers by name, those of several networks once."""
    counts: dict[Convolution, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row.convolution, Counter())[row.model] += row.times
    return {name_layer(one): UsedLayer(one, tuple(uses.items())) for one, uses in counts.items()}
