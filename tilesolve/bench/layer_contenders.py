"""Who takes part in a sweep of layers: each library once for every layout that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilesolve.bench.contenders import OURS, Contender, list_peers
from tilesolve.contractions.convolution import Layout
from tilesolve.contractions.errors import BenchmarkError

IM2COL = "im2col"
"""The peer that copies windows and multiplies, as the papers' baseline does."""

LAYER_PEERS = ("torch", "torch-eager", "onnxruntime", "openvino", IM2COL)
"""The peers that sweeps of layers know."""

LAYOUTS: tuple[Layout, ...] = ("NHWC", "NCHW")
"""The layouts that layers are measured in."""

_MAKERS = "tilesolve.bench.run.conv_peers"


@dataclass(frozen=True, slots=True)
class LayerContender:
    """A library with arrays in one layout.

    Parameters
    ----------
    contender
        The library; its name ends with the layout.
    layout
        Of its images and results.
    """

    contender: Contender
    layout: Layout

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.contender.name


def split_name(name: str) -> tuple[str, str]:
    """Return the library and the layout of a contender's name.

    Examples
    --------
    >>> split_name("torch-eager NHWC")
    ('torch-eager', 'NHWC')
    """
    library, _, layout = name.rpartition(" ")
    return library, layout


def parse_layer_contenders(text: str, threads: int = 1) -> tuple[LayerContender, ...]:
    """Return tilesolve and the peers that a list of names asks for, in all their layouts.

    Parameters
    ----------
    text
        Names of `LAYER_PEERS` with commas between them, or ``none``.
    threads
        That each will use.

    Examples
    --------
    >>> [found.name for found in parse_layer_contenders("torch,onnxruntime")]
    ['tilesolve NHWC', 'tilesolve NCHW', 'torch NHWC', 'torch NCHW', 'onnxruntime NCHW']
    """
    wanted = [part.strip() for part in text.split(",")]
    for name in wanted:
        if name not in (*LAYER_PEERS, "none", ""):
            raise BenchmarkError(
                f"no peer {name!r} computes layers; {', '.join(LAYER_PEERS)} do, or none"
            )
    libraries = [OURS, *(name for name in dict.fromkeys(wanted) if name in LAYER_PEERS)]
    return tuple(found for name in libraries for found in _make(name, threads))


def _make(library: str, threads: int) -> Iterator[LayerContender]:
    """Yield a library in its layouts; ONNX Runtime has channels first alone."""
    package = library
    needs: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    maker = library.replace("-", "_")
    if library == OURS:
        environment = (("TILESOLVE_CACHE", "off"),)  # planning is what preparation takes
    elif library == IM2COL:
        package = "numpy"
        environment = list_peers(threads)["numpy-best"].environment
    elif library == "torch-eager":
        package = "torch"
    elif library == "onnxruntime":
        needs = ("onnx",)
    for layout in LAYOUTS if library != "onnxruntime" else ("NCHW",):
        name = f"{library} {layout}"
        yield LayerContender(
            Contender(name, f"{_MAKERS}:{maker}", package, environment, needs), layout
        )
