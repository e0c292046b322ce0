"""Layers of published networks, kept as TOML: each with how often its network has it.

A file has ``format = 1`` and a list ``models`` of tables with ``name`` and ``layers``. A layer is a
list of eight numbers: how often, channels, pixels of a side, filters, taps of a side, stride, zeros
on each side, groups.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import SuiteError

FORMAT = 1
"""Version of the TOML format."""

_SHIPPED = ("sconv", "mobilenet", "yolo9000", "resnet18")


@dataclass(frozen=True, slots=True)
class SuiteLayer:
    """A layer of a network.

    `times` is how many such layers the network `model` has. The convolution is for one image,
    with channels first.
    """

    model: str
    times: int
    convolution: Convolution

    @property
    def pointwise(self) -> bool:
        """Whether it is a product: one tap, a stride of one, one group."""
        layer = self.convolution
        return max(layer.window) == max(layer.stride) == layer.groups == 1


def list_layer_suites() -> tuple[str, ...]:
    """Return the names of the suites of layers.

    Examples
    --------
    >>> list_layer_suites()
    ('sconv', 'mobilenet', 'yolo9000', 'resnet18')
    """
    return _SHIPPED


def layer_suite(name: str) -> tuple[SuiteLayer, ...]:
    """Return the layers of a suite, in the file's order.

    Raises
    ------
    SuiteError
        If there is no such suite.

    Examples
    --------
    >>> layers = layer_suite("sconv")
    >>> sum(one.times for one in layers), sum(one.times for one in layers if one.pointwise)
    (393, 219)
    """
    if name not in _SHIPPED:
        raise SuiteError(f"there is no suite of layers {name!r}; there are {', '.join(_SHIPPED)}")
    file = resources.files(__package__) / "layers" / f"{name}.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    if data["format"] != FORMAT:
        raise SuiteError(f"{file}: format is {data['format']!r}, this version reads {FORMAT}")
    return tuple(
        SuiteLayer(model["name"], row[0], _layer(*row[1:]))
        for model in data["models"]
        for row in model["layers"]
    )


def _layer(
    channels: int, pixels: int, filters: int, taps: int, stride: int, zeros: int, groups: int
) -> Convolution:
    return Convolution.of(
        (1, channels, pixels, pixels),
        (filters, channels // groups, taps, taps),
        stride=stride,
        padding=zeros,
        groups=groups,
    )
