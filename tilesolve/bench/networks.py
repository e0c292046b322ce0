"""Whole networks as cases: those that are built here, or an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tilesolve.bench.case import (
    NUMPY_OFFSET_BYTES,
    Array,
    Case,
    Expected,
    choose_named,
    place_array,
)
from tilesolve.bench.network_models import NETWORKS as WRITERS
from tilesolve.bench.network_models import write_network
from tilesolve.bench.results.fields import read_text
from tilesolve.contractions.errors import ModelError

if TYPE_CHECKING:
    from onnx import ModelProto

NETWORKS = "networks"
"""The suite of whole networks."""

SIDE = 224
"""Pixels of a side of the images of networks that are built here."""

SMALL_SIDE = 64
"""The same of those that are checked first."""

NETWORK_SECONDS = 20.0
"""Estimated seconds to load a network in a process of its own, and to time it."""

NETWORK_SLACK = 2e-5
"""By which share of the largest number of a result others may differ."""


@dataclass(frozen=True, slots=True)
class WholeNetwork:
    """A network, by its name or by its file.

    Examples
    --------
    >>> WholeNetwork("resnet18", 224).is_file, WholeNetwork("mine.onnx").is_file
    (False, True)
    """

    source: str
    size: int = 0

    @property
    def is_file(self) -> bool:
        """Whether it is a file, of which the inputs have fixed shapes."""
        return self.source.endswith(".onnx")

    @property
    def model(self) -> ModelProto:
        """The model."""
        return _read(self)

    @property
    def ends(self) -> tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]:
        """The name, the shape and the dtype of its inputs, and last those of its first output."""
        return _find_ends(self)


@cache
def _read(network: WholeNetwork) -> ModelProto:
    from tilesolve.networks.files import read_model

    if not network.is_file:
        return read_model(write_network(network.source, network.size))
    return read_model(network.source)


@cache
def _find_ends(network: WholeNetwork) -> tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]:
    from tilesolve.networks.files import check_inputs, dimensions_of, dtypes_of, shapes_of

    graph = network.model.graph
    check_inputs(graph)
    shapes, kinds, result = shapes_of(graph), dtypes_of(graph), graph.output[0].name
    if result not in shapes:
        raise ModelError(f"the shape of {result!r} is not known before {network.source} runs")
    return tuple((name, shapes[name], kinds[name]) for name in (*dimensions_of(graph), result))


@dataclass(frozen=True, slots=True)
class NetworkCase(Case[WholeNetwork]):
    """A whole network that is measured, with what caches hold of earlier runs."""

    START_SECONDS = NETWORK_SECONDS
    PACED = False
    WARM = True

    @property
    def dtype(self) -> str:
        """That of the first result."""
        return self.work.ends[-1][2].name

    @property
    def bytes(self) -> int:
        """Bytes of the model, twice: peers hold it, too."""
        return 2 * int(self.work.model.ByteSize())

    @property
    def relative_slack(self) -> float:
        """By which share of themselves they may differ."""
        return 1.0  # sums of numbers of both signs: each element is compared instead

    def shrink(self) -> NetworkCase:
        """Return the network for small images."""
        if self.work.is_file:
            return self
        return replace(self, work=replace(self.work, size=SMALL_SIDE))

    def draw(self, offset: int = NUMPY_OFFSET_BYTES) -> list[Array]:
        """Return inputs, and an array for the result."""
        rng = np.random.default_rng(5)
        found = []
        for _, shape, dtype in self.work.ends:
            found.append(place_array(shape, dtype.name, offset))
            found[-1][...] = rng.standard_normal(shape) if dtype.kind == "f" else 0
        found[-1].fill(0)
        return found

    def expect(self, operands: Sequence[Array]) -> Expected:
        """Return what ONNX's evaluator gives, in which products are ours."""
        from onnx.reference import ReferenceEvaluator

        from tilesolve.networks.operators import operators

        names = [name for name, _, _ in self.work.ends[:-1]]
        evaluator = ReferenceEvaluator(self.work.model, new_ops=operators())
        right = np.asarray(evaluator.run(None, dict(zip(names, operands, strict=True)))[0])
        slack = NETWORK_SLACK * float(np.abs(right).max(initial=0.0))
        return Expected(right.shape, self.dtype, ..., right, slack)

    def to_data(self) -> dict[str, Any]:
        """Return the JSON fields of the network."""
        return {"source": self.work.source, "size": self.work.size}

    def list_cells(self) -> tuple[str, str, str]:
        """Return the network, the shapes of its inputs, and the dtype of its result."""
        shapes = " ".join("x".join(map(str, shape)) for _, shape, _ in self.work.ends[:-1])
        return self.work.source, shapes, self.dtype

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Return the network that such JSON fields describe."""
        source = read_text(entry, "source")
        return cls(read_text(entry, "name"), WholeNetwork(source, int(entry["size"])))


def find_networks(suite: str, *, chosen: Sequence[str] = ()) -> dict[str, NetworkCase]:
    """Return networks by name: those of the suite, or the one of a file.

    `chosen` has names, or patterns such as ``resnet*``; without any, all of them are meant.

    Raises
    ------
    BenchmarkError
        If no network has a chosen name.

    Examples
    --------
    >>> list(find_networks(NETWORKS, chosen=["resnet*"]))
    ['resnet18', 'resnet50']
    """
    if suite.endswith(".onnx"):
        known = {Path(suite).stem: WholeNetwork(suite)}
    else:
        known = {name: WholeNetwork(name, SIDE) for name in WRITERS}
    found = choose_named(known, chosen, suite=suite, what="network")
    return {name: NetworkCase(name, one) for name, one in found.items()}
