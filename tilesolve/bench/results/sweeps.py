"""The results of sweeps, as values: of contractions, of layers and of nests."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, ClassVar

from tilesolve.bench.case import Case
from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.contenders import OURS, OWN, split_name
from tilesolve.bench.layers import LayerCase
from tilesolve.bench.nests import NestCase, PipelineCase, StatementCase
from tilesolve.bench.networks import NetworkCase
from tilesolve.bench.results.fields import Data, Share, read_fields, write_value
from tilesolve.bench.results.record import Outcome, Record
from tilesolve.contractions.errors import BenchmarkError


@dataclass(frozen=True, slots=True)
class Entry:
    """The result of one contender on one case.

    Parameters
    ----------
    seconds
        Of each round; empty if the contender failed.
    reason
        Why it failed; empty otherwise.
    preparation
        Seconds before the first run: for a plan, those of planning.
    memory
        Bytes that a run took beside the tensors; None if unknown.

    Examples
    --------
    >>> found = Entry((2.0, 1.0, 1.5))
    >>> found.median, round(found.spread, 2)
    (1.5, 0.33)
    """

    seconds: tuple[float, ...]
    reason: str = ""
    preparation: float | None = None
    memory: int | None = None

    def check(self) -> None:
        """Refuse an entry that has neither times nor a reason, or both."""
        if bool(self.seconds) == bool(self.reason.strip()):
            raise BenchmarkError(f"'reason' must say why there are no seconds, got {self.reason!r}")

    @property
    def median(self) -> float:
        """The median round; NaN after a failure."""
        return statistics.median(self.seconds) if self.seconds else nan

    @property
    def spread(self) -> float:
        """The range of the middle half of the rounds, as a share of the median."""
        if len(self.seconds) < 2:
            return 0.0 if self.seconds else nan
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median


@dataclass(frozen=True, slots=True)
class Figures:
    """What is predicted of a plan, and how long its packing takes; a record names what it keeps.

    Parameters
    ----------
    roofline, predicted
        Least seconds that the machine allows, and those of the plan.
    bottleneck
        The level, or the arithmetic, that bounds the prediction.
    packed
        Bytes that each call packs; weights are packed before.
    packing, predicted_packing
        Packing's share of a call, as it was measured and as the price has it.
    how
        Class and route of a nest.
    cold, predicted_cold
        Seconds with caches written over, where rounds are not such; measured and predicted.
    outs
        Times with `out` at several offsets over that without.
    again
        Seconds in which a new process makes a network ready whose plans were kept; None for others.
    """

    roofline: float = nan
    predicted: float = nan
    bottleneck: str = ""
    packed: Share = nan
    packing: Share = nan
    predicted_packing: Share = nan
    how: str = ""
    cold: float = nan
    predicted_cold: float = nan
    outs: tuple[float, ...] = ()
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Result(Outcome):
    """One case, what the model says of it, and the result of each contender.

    Parameters
    ----------
    entries
        By contender; the names of those of layers are a library and a layout.
    figures
        Of plans, by contender.
    peak
        Median of the arithmetic peaks that were measured beside the runs of plans, in flop/s: the
        roofline of a contraction has it. None where that has the machine's.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> matmul = ContractionCase("matmul", Problem.of("ik-ij-jk", 100))
    >>> entries = {"tilesolve": Entry((2.0,)), "numpy": Entry((3.0,)), "slow": Entry((9.0,))}
    >>> found = Result(matmul, entries, {"tilesolve": Figures(1.0, 1.5, "compute")})
    >>> found.reached("tilesolve"), found.fastest(), found.ratio(), found.ratio("slow")
    (0.5, 'numpy', 1.5, 4.5)
    >>> found.speed("tilesolve")
    1000000.0
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    figures: Mapping[str, Figures] = field(default_factory=dict)
    peak: float | None = None

    def seconds(self, contender: str) -> float:
        """Return a contender's median seconds; NaN if there are none."""
        entry = self.entries.get(contender)
        return entry.median if entry else nan

    def speed(self, contender: str) -> float:
        """Return a contender's flop/s; NaN if there are none."""
        return self.case.flops / self.seconds(contender)

    def reached(self, contender: str) -> float:
        """Return a contender's share of the roofline; NaN if there is none."""
        return self.plan.roofline / self.seconds(contender)

    def fastest(self, library: str = "", layout: str = "") -> str:
        """Return the fastest contender of a library; empty if there is none.

        Any of the peers counts where no library is named, any layout where none is.
        """
        found = {}
        for name, entry in self.entries.items():
            own, lies = split_name(name)
            wanted = own == library if library else own not in OWN
            if entry.seconds and wanted and layout in ("", lies):
                found[name] = entry.median
        return min(found, key=found.__getitem__, default="")

    @property
    def mine(self) -> str:
        """The faster of ours, where there are layouts; empty if ours has no result."""
        return self.fastest(OURS)

    @property
    def ours(self) -> float:
        """Seconds of the faster of ours; NaN if there are none."""
        return self.seconds(self.mine)

    @property
    def plan(self) -> Figures:
        """What is predicted of the faster of ours, or of a plan that did not run."""
        return self.figures.get(self.mine or OURS, Figures())

    def ratio(self, peer: str = "", layout: str = "", mine: str = OURS) -> float:
        """Return how many times faster ours is than another one; NaN if one is missing.

        `peer` is a library, the best of the peers if empty. `layout` is that of both, the
        better of each if empty. `mine` is compared in the place of ours.
        """
        other = self.seconds(self.fastest(peer, layout))
        return other / self.seconds(self.fastest(mine, layout))

    def list_cells(self, name: str) -> dict[str, object]:
        """Return what CSV files have of a contender, by column."""
        entry = self.entries.get(name, Entry((), self.skipped))
        times = entry.seconds
        figures = self.figures.get(name, Figures())
        roofline = self.figures.get(name, self.figures.get(OURS, Figures())).roofline
        return {
            "contender": name,
            "median_s": entry.median if times else "",
            "least_s": min(times) if times else "",
            "most_s": max(times) if times else "",
            "rounds": len(times),
            "gflops": self.speed(name) / 1e9 if times and self.case.flops else "",
            "roofline_s": _fill(roofline),
            "share_of_roofline": _fill(roofline / entry.median),
            "predicted_s": _fill(figures.predicted),
            "cold_s": _fill(figures.cold),
            "predicted_cold_s": _fill(figures.predicted_cold),
            "again_s": _fill(figures.again),
            "with_out": " ".join(f"{ratio:.3f}" for ratio in figures.outs),
            "packed_bytes": _fill(figures.packed),
            "packing_share": _fill(figures.packing),
            "predicted_packing_share": _fill(figures.predicted_packing),
            "preparation_s": _fill(entry.preparation),
            "memory_bytes": _fill(entry.memory),
            "reason": entry.reason,
        }


def _fill(value: float | None) -> object:
    """Return a cell of a CSV file: empty where nothing is known."""
    return "" if value is None or isnan(value) else value


class SweepRecord(Record[Result]):
    """All cases of a sweep so far."""

    OUTCOME = Result
    FIGURES: ClassVar[tuple[str, ...]]

    @classmethod
    def keep(cls, found: Result) -> dict[str, Any]:
        """Return the JSON fields of a case, beside those of what is computed."""
        peak = {"peak": found.peak} if cls.CASE.PACED else {}
        return peak | {
            "entries": write_value(found.entries),
            "figures": {
                who: {name: getattr(figures, name) for name in cls.FIGURES}
                for who, figures in found.figures.items()
            },
        }

    @classmethod
    def restore(cls, case: Case[Any], data: Data) -> Result:
        """Return the result of a case, from such JSON fields."""
        figures = {who: cls.read_figures(one) for who, one in dict(data["figures"]).items()}
        return read_fields(Result, data, "entries", "peak", case=case, figures=figures)

    @classmethod
    def read_figures(cls, data: Data) -> Figures:
        """Return what is kept of a plan."""
        return read_fields(Figures, data, *cls.FIGURES)

    @classmethod
    def list_lines(cls, found: Result) -> Iterator[tuple[object, ...]]:
        """Yield a line for each contender, or one that says why there is none."""
        return cls.case_rows(found)

    @classmethod
    def case_rows(cls, case: Result) -> Iterator[tuple[object, ...]]:
        """Yield a line for each contender, or one that says why there is none."""
        for name in case.entries or ("",):
            cells = case.list_cells(name)
            if isinstance(case.case, LayerCase):
                networks = ", ".join(model for model, _ in case.case.uses)
                cells |= {"networks": networks, "times": case.case.times}
            yield tuple(cells[column] for column in cls.COLUMNS)

    def peak(self, dtype: str) -> float | None:
        """Return the median peak beside the runs of a dtype; None if there is none."""
        found = [one.peak for one in self.cases if one.case.dtype == dtype and one.peak]
        return statistics.median(found) if found else None


_TIMES = ("median_s", "least_s", "most_s", "rounds")


class Sweep(SweepRecord):
    """All contractions of a sweep so far."""

    HOLDS = "a sweep"
    CASE = ContractionCase
    FIGURES = ("roofline", "predicted", "bottleneck")
    COLUMNS = (
        *("contender", *_TIMES, "gflops", "roofline_s", "share_of_roofline", "predicted_s"),
        *("preparation_s", "memory_bytes", "reason"),
    )

    @classmethod
    def keep(cls, found: Result) -> dict[str, Any]:
        """Return the JSON fields of a case: those of its plan beside the others."""
        entries = {"entries": write_value(found.entries)}
        if OURS not in found.figures:
            return entries
        plan = {name: getattr(found.plan, name) for name in cls.FIGURES}
        return plan | {"peak": found.peak} | entries

    @classmethod
    def restore(cls, case: Case[Any], data: Data) -> Result:
        """Return the result of a case; files before there was a peak are read, too."""
        planned = {*cls.FIGURES} & {*data}
        figures = {OURS: cls.read_figures(data)} if planned else {}
        return read_fields(Result, data, "entries", "peak", case=case, figures=figures)


class LayerSweep(SweepRecord):
    """All layers of a sweep so far."""

    HOLDS = "a sweep of layers"
    CASE = LayerCase
    FIGURES = (
        *("roofline", "predicted", "bottleneck"),
        *("packed", "packing", "predicted_packing"),
    )
    COLUMNS = (
        *("networks", "times", "contender", *_TIMES, "gflops", "roofline_s", "predicted_s"),
        *("packed_bytes", "packing_share", "predicted_packing_share"),
        *("preparation_s", "memory_bytes", "reason"),
    )


class NestSweep(SweepRecord):
    """All nests of a sweep so far."""

    HOLDS = "a sweep of nests"
    CASE = NestCase
    FIGURES: ClassVar[tuple[str, ...]] = ("predicted", "how")
    COLUMNS: ClassVar[tuple[str, ...]] = ("contender", *_TIMES, "predicted_s", "reason")


class StatementSweep(NestSweep):
    """All drawn statements of a sweep so far."""

    HOLDS = "a sweep of drawn statements"
    CASE = StatementCase
    FIGURES = (*NestSweep.FIGURES, "cold", "predicted_cold", "outs")
    COLUMNS = (
        *("contender", *_TIMES, "predicted_s", "cold_s", "predicted_cold_s", "with_out", "reason"),
    )


class PipelineSweep(NestSweep):
    """All pipelines of a sweep so far."""

    HOLDS = "a sweep of pipelines"
    CASE = PipelineCase


class NetworkSweep(SweepRecord):
    """All whole networks of a sweep so far."""

    HOLDS = "a sweep of networks"
    CASE = NetworkCase
    FIGURES: ClassVar[tuple[str, ...]] = ("predicted", "how", "cold", "again")
    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("contender", *_TIMES, "predicted_s", "cold_s"),
        *("preparation_s", "again_s", "memory_bytes", "reason"),
    )
