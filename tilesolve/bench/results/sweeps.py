"""The results of a sweep, as values."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import isnan, nan
from typing import Any

from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.fields import Data, read_positive, read_text, read_times, read_value
from tilesolve.bench.results.record import Record
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem


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


def read_entry(data: Data) -> Entry:
    """Return the entry that such JSON fields describe."""
    seconds, reason = read_times(data, "seconds"), read_text(data, "reason")
    if bool(seconds) == bool(reason.strip()):
        raise BenchmarkError(f"'reason' must say why there are no seconds, got {reason!r}")
    memory = data.get("memory")
    if not (memory is None or (type(memory) is int and memory >= 0)):
        raise BenchmarkError(f"'memory' must be a number of bytes, got {memory!r}")
    return Entry(seconds, reason, read_optional(data, "preparation"), memory)


def read_optional(data: Data, what: str) -> float | None:
    """Return a positive number, or None where there is none."""
    return None if data.get(what) is None else read_positive(data, what)


@dataclass(frozen=True, slots=True)
class Case:
    """One problem, what the model says of it, and the result of each contender.

    Parameters
    ----------
    name, problem
        What was computed.
    roofline, predicted
        Least seconds that the machine allows, and predicted seconds of the plan; NaN without a
        plan.
    bottleneck
        What bounds the prediction.
    entries
        By contender.
    skipped
        Why nobody computed it; empty otherwise.
    peak
        Median of the arithmetic peaks that were measured beside the plan's runs, in flop/s: the
        roofline has it. None where the roofline has the machine's.

    Examples
    --------
    >>> matmul = Problem.of("ik-ij-jk", 100)
    >>> found = Case("matmul", matmul, 1.0, 1.5, "compute",
    ...              {"tilesolve": Entry((2.0,)), "numpy": Entry((3.0,)), "slow": Entry((9.0,))})
    >>> found.reached("tilesolve"), found.best_peer, found.ratio
    (0.5, 'numpy', 1.5)
    >>> found.speed("tilesolve")
    1000000.0
    """

    name: str
    problem: Problem
    roofline: float = nan
    predicted: float = nan
    bottleneck: str = ""
    entries: Mapping[str, Entry] = field(default_factory=dict)
    skipped: str = ""
    peak: float | None = None

    @property
    def ours(self) -> float:
        """Median seconds of the plan; NaN if there are none."""
        return self.seconds(OURS)

    def seconds(self, contender: str) -> float:
        """Return a contender's median seconds; NaN if there are none."""
        entry = self.entries.get(contender)
        return entry.median if entry else nan

    def speed(self, contender: str) -> float:
        """Return a contender's flop/s; NaN if there are none."""
        return self.problem.flops / self.seconds(contender)

    def reached(self, contender: str) -> float:
        """Return a contender's share of the roofline; NaN if there is none."""
        return self.roofline / self.seconds(contender)

    @property
    def best_peer(self) -> str:
        """The fastest of the others; empty if there is none."""
        times = {n: e.median for n, e in self.entries.items() if e.seconds and n != OURS}
        return min(times, key=times.__getitem__, default="")

    @property
    def ratio(self) -> float:
        """How many times faster the plan is than the best peer; NaN if one of them is missing."""
        return self.seconds(self.best_peer) / self.ours


@dataclass(frozen=True, slots=True)
class Sweep(Record[Case]):
    """All cases of a sweep so far."""

    HOLDS = "a sweep"
    COLUMNS = (
        *("contender", "median_s", "least_s", "most_s", "rounds", "gflops", "roofline_s"),
        *("share_of_roofline", "predicted_s", "preparation_s", "memory_bytes", "reason"),
    )

    @staticmethod
    def case_data(case: Case) -> dict[str, Any]:
        """Return the JSON fields of a case that was not skipped, beside those of its problem."""
        entries = {name: asdict(entry) for name, entry in case.entries.items()}
        if isnan(case.predicted):
            return {"entries": entries}
        return {
            "roofline": case.roofline,
            "peak": case.peak,
            "predicted": case.predicted,
            "bottleneck": case.bottleneck,
            "entries": entries,
        }

    @staticmethod
    def case_of(name: str, problem: Problem, data: dict[str, Any]) -> Case:
        """Return the case that such JSON fields describe."""
        if data.get("skipped"):
            return Case(name, problem, skipped=read_text(data, "skipped"))
        entries = {who: read_entry(entry) for who, entry in read_value(data, "entries").items()}
        if not {"roofline", "predicted", "bottleneck"} & set(data):
            return Case(name, problem, entries=entries)
        return Case(
            name,
            problem,
            read_positive(data, "roofline"),
            read_positive(data, "predicted"),
            read_text(data, "bottleneck"),
            entries,
            peak=read_optional(data, "peak"),  # older files have the machine's
        )

    def peak(self, dtype: str) -> float | None:
        """Return the median peak beside the runs of a dtype; None if there is none."""
        found = [case.peak for case in self.cases if case.problem.dtype == dtype and case.peak]
        return statistics.median(found) if found else None

    @staticmethod
    def case_rows(case: Case) -> Iterator[tuple[object, ...]]:
        """Yield a line for each contender."""
        for name, entry in (case.entries or {"": Entry((), case.skipped)}).items():
            times = entry.seconds
            yield (
                name,
                *((entry.median, min(times), max(times)) if times else ("", "", "")),
                len(times),
                case.speed(name) / 1e9 if times else "",
                "" if isnan(case.roofline) else case.roofline,
                "" if isnan(case.reached(name)) else case.reached(name),
                case.predicted if name == OURS and not isnan(case.predicted) else "",
                "" if entry.preparation is None else entry.preparation,
                "" if entry.memory is None else entry.memory,
                entry.reason,
            )
