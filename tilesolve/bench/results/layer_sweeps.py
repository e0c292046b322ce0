"""The results of a sweep of layers, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import inf, nan
from typing import Any

from tilesolve.bench.contenders import OURS
from tilesolve.bench.layer_contenders import split_name
from tilesolve.bench.results.fields import Data, read_positive, read_text, read_value
from tilesolve.bench.results.record import Record
from tilesolve.bench.results.sweeps import Entry, read_entry, read_optional
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem


@dataclass(frozen=True, slots=True)
class Figures:
    """What is predicted of a layer's plan, and how long its packing takes.

    Parameters
    ----------
    roofline, predicted
        Least seconds that the machine allows, and those of the plan.
    bottleneck
        What bounds the prediction.
    packed
        Bytes that each call packs; weights are packed before.
    packing, predicted_packing
        Packing's share of a call, as it was measured and as the price has it.
    """

    roofline: float
    predicted: float
    bottleneck: str
    packed: float
    packing: float
    predicted_packing: float


@dataclass(frozen=True, slots=True)
class LayerCase:
    """One layer, the networks that have it, and the result of each contender.

    Parameters
    ----------
    name, layer
        What was computed; with channels first here.
    uses
        Networks, each with how many such layers it has.
    entries
        By contender, whose names are a library and a layout.
    figures
        Of plans, by contender.
    skipped
        Why nobody computed it; empty otherwise.
    peak
        Median of the arithmetic peaks that were measured beside the runs of plans; None if none.

    Examples
    --------
    >>> layer = Convolution.of((1, 8, 10, 10), (8, 8, 1, 1))
    >>> entries = {"tilesolve NHWC": Entry((1.0,)), "tilesolve NCHW": Entry((2.0,)),
    ...            "torch NHWC": Entry((3.0,)), "im2col NCHW": Entry((1.5,))}
    >>> found = LayerCase("mine", layer, (("net", 2),), entries)
    >>> found.ratio(), found.ratio(layout="NCHW"), found.ratio(peer="torch"), found.best_peer
    (1.5, 0.75, 3.0, 'im2col NCHW')
    """

    name: str
    layer: Convolution
    uses: tuple[tuple[str, int], ...]
    entries: Mapping[str, Entry] = field(default_factory=dict)
    figures: Mapping[str, Figures] = field(default_factory=dict)
    skipped: str = ""
    peak: float | None = None

    @property
    def problem(self) -> Problem:
        """The layer as a problem, without bias and ReLU."""
        return self.layer.problem

    @property
    def times(self) -> int:
        """How many such layers all networks have."""
        return sum(times for _, times in self.uses)

    def seconds(self, contender: str) -> float:
        """Return a contender's median seconds; NaN if there are none."""
        entry = self.entries.get(contender)
        return entry.median if entry else nan

    def speed(self, contender: str) -> float:
        """Return a contender's flop/s; NaN if there are none."""
        return self.layer.flops / self.seconds(contender)

    def fastest(self, *, ours: bool, library: str = "", layout: str = "") -> str:
        """Return the fastest of ours, or of all others; empty if there is none.

        Parameters
        ----------
        ours
            Whose.
        library, layout
            Only of this one; of any if empty.
        """
        found = {}
        for name, entry in self.entries.items():
            own, lies = split_name(name)
            right = (own == OURS) == ours and library in ("", own) and layout in ("", lies)
            if entry.seconds and right:
                found[name] = entry.median
        return min(found, key=found.__getitem__, default="")

    @property
    def best_peer(self) -> str:
        """The fastest of the others; empty if there is none."""
        return self.fastest(ours=False)

    @property
    def ours(self) -> float:
        """Seconds in the better of our layouts; NaN if there are none."""
        return self.seconds(self.fastest(ours=True))

    def ratio(self, *, peer: str = "", layout: str = "") -> float:
        """Return how many times faster ours is than the best of others; NaN if one is missing.

        Parameters
        ----------
        peer
            Only this library; all others if empty.
        layout
            Of both; the better of each if empty.
        """
        mine = self.fastest(ours=True, layout=layout)
        other = self.fastest(ours=False, library=peer, layout=layout)
        return self.seconds(other) / self.seconds(mine)


@dataclass(frozen=True, slots=True)
class LayerSweep(Record[LayerCase]):
    """All layers of a sweep so far."""

    HOLDS = "a sweep of layers"
    COLUMNS = (
        *("networks", "times", "contender", "median_s", "least_s", "most_s", "rounds", "gflops"),
        *("roofline_s", "predicted_s", "packed_bytes", "packing_share", "predicted_packing_share"),
        *("preparation_s", "memory_bytes", "reason"),
    )

    @staticmethod
    def case_data(case: LayerCase) -> dict[str, Any]:
        """Return the JSON fields of a case that was not skipped, beside those of its problem."""
        return {
            "layer": _layer_data(case.layer),
            "uses": dict(case.uses),
            "peak": case.peak,
            "entries": {name: asdict(entry) for name, entry in case.entries.items()},
            "figures": {name: asdict(figures) for name, figures in case.figures.items()},
        }

    @staticmethod
    def skipped_data(case: LayerCase) -> dict[str, Any]:
        """Return the JSON fields of a case that was skipped."""
        return {
            "layer": _layer_data(case.layer),
            "uses": dict(case.uses),
            "skipped": case.skipped,
        }

    @staticmethod
    def case_of(name: str, problem: Problem, data: dict[str, Any]) -> LayerCase:
        """Return the case that such JSON fields describe."""
        layer = _read_layer(read_value(data, "layer"), problem.dtype)
        uses = tuple(read_value(data, "uses").items())
        if data.get("skipped"):
            return LayerCase(name, layer, uses, skipped=read_text(data, "skipped"))
        return LayerCase(
            name,
            layer,
            uses,
            {who: read_entry(entry) for who, entry in read_value(data, "entries").items()},
            {who: _read_figures(found) for who, found in read_value(data, "figures").items()},
            peak=read_optional(data, "peak"),
        )

    @staticmethod
    def case_rows(case: LayerCase) -> Iterator[tuple[object, ...]]:
        """Yield a line for each contender."""
        networks = ", ".join(model for model, _ in case.uses)
        for name, entry in (case.entries or {"": Entry((), case.skipped)}).items():
            rounds, figures = entry.seconds, case.figures.get(name)
            yield (
                networks,
                case.times,
                name,
                *((entry.median, min(rounds), max(rounds)) if rounds else ("", "", "")),
                len(rounds),
                case.speed(name) / 1e9 if rounds else "",
                *(_list_numbers(figures) if figures else [""] * 5),
                "" if entry.preparation is None else entry.preparation,
                "" if entry.memory is None else entry.memory,
                entry.reason,
            )


def _layer_data(layer: Convolution) -> dict[str, Any]:
    return {
        "x_shape": layer.x_shape,
        "w_shape": layer.w_shape,
        "stride": layer.stride,
        "padding": layer.padding,
        "dilation": layer.dilation,
        "groups": layer.groups,
    }


def _read_layer(data: Data, dtype: str) -> Convolution:
    padding = [tuple(ends) for ends in read_value(data, "padding")]
    return Convolution.of(
        *(read_value(data, what) for what in ("x_shape", "w_shape")),
        **{what: read_value(data, what) for what in ("stride", "dilation", "groups")},
        padding=padding,
        dtype=dtype,
    )


def _list_numbers(figures: Figures) -> tuple[float, ...]:
    return (
        *(figures.roofline, figures.predicted, figures.packed),
        *(figures.packing, figures.predicted_packing),
    )


def _read_figures(data: Data) -> Figures:
    return Figures(
        read_positive(data, "roofline"),
        read_positive(data, "predicted"),
        read_text(data, "bottleneck"),
        *(_read_count(data, what) for what in ("packed", "packing", "predicted_packing")),
    )


def _read_count(data: Data, what: str) -> float:
    """Return a number that may be zero."""
    found = read_value(data, what)
    if not (isinstance(found, int | float) and 0 <= found < inf):
        raise BenchmarkError(f"{what!r} must be a number that is not negative, got {found!r}")
    return found
