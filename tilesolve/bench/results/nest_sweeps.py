"""The results of a sweep of nests, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite, nan
from typing import Any

from tilesolve.bench.contenders import OURS
from tilesolve.bench.nest_contenders import BASELINE, THESIS
from tilesolve.bench.results.fields import Data, read_positive, read_text, read_value
from tilesolve.bench.results.record import Kind, Record
from tilesolve.bench.results.sweeps import Entry, read_entry
from tilesolve.contractions.statements.nest_suites import NestCase

_OWN = (OURS, THESIS, BASELINE)


@dataclass(frozen=True, slots=True)
class NestFigures:
    """What a plan says of a nest.

    Parameters
    ----------
    predicted
        Its seconds.
    how
        Its class and its route.
    """

    predicted: float
    how: str


@dataclass(frozen=True, slots=True)
class NestResult:
    """One nest, and the result of each contender.

    Parameters
    ----------
    nest
        What was computed.
    entries
        By contender.
    figures
        Of plans, by contender.
    skipped
        Why nobody computed it; empty otherwise.
    """

    nest: NestCase
    entries: Mapping[str, Entry] = field(default_factory=dict)
    figures: Mapping[str, NestFigures] = field(default_factory=dict)
    skipped: str = ""

    @property
    def name(self) -> str:
        """The name of the nest."""
        return self.nest.name

    @property
    def problem(self) -> NestCase:
        """What was computed."""
        return self.nest

    @property
    def temporal(self) -> bool:
        """Whether the nest uses elements again: it sums."""
        return any(stage.summed for stage in self.nest.computation.stages)

    def seconds(self, contender: str) -> float:
        """Return a contender's median seconds; NaN if there are none."""
        entry = self.entries.get(contender)
        return entry.median if entry else nan

    def ratio(self, peer: str, ours: str = OURS) -> float:
        """Return how many times faster one of ours is than a peer; NaN if one is missing."""
        return self.seconds(peer) / self.seconds(ours)

    @property
    def best_peer(self) -> str:
        """The fastest of the libraries; empty if there is none."""
        there = {who: one.median for who, one in self.entries.items() if who not in _OWN}
        known = {who: seconds for who, seconds in there.items() if isfinite(seconds)}
        return min(known, key=known.__getitem__, default="")

    @property
    def volume(self) -> int:
        """Bytes of all arrays that are given or returned, each once."""
        made = self.nest.computation
        names = dict.fromkeys((*made.inputs, made.output.name))
        return sum(made.array(name).bytes for name in names)


class NestRecord(Record[Kind]):
    """All cases of a command that measures nests."""

    @staticmethod
    def problem_data(problem: NestCase) -> dict[str, Any]:
        """Return the JSON fields of a nest."""
        return {
            "statement": problem.text,
            "sizes": dict(problem.sizes),
            "dtype": problem.dtype,
            "where": problem.where,
            "params": dict(problem.params),
        }

    @classmethod
    def problem_cells(cls, problem: NestCase) -> tuple[str, ...]:
        """Return a nest as cells of a CSV file."""
        sizes = " ".join(f"{letter}={extent}" for letter, extent in problem.sizes)
        return problem.text, sizes, problem.dtype

    @staticmethod
    def read_problem(entry: Mapping[str, Any]) -> NestCase:
        """Return the nest that its JSON fields describe."""
        return NestCase(
            read_text(dict(entry), "name"),
            read_text(dict(entry), "statement"),
            tuple(entry["sizes"].items()),
            read_text(dict(entry), "dtype"),
            read_text(dict(entry), "where"),
            tuple(entry["params"].items()),
        )


class NestSweep(NestRecord[NestResult]):
    """All nests of a sweep so far."""

    HOLDS = "a sweep of nests"
    COLUMNS = ("contender", "median_s", "least_s", "most_s", "rounds", "predicted_s", "reason")

    @staticmethod
    def case_data(case: NestResult) -> dict[str, Any]:
        """Return the JSON fields of a case that was not skipped."""
        return {
            "entries": {name: asdict(entry) for name, entry in case.entries.items()},
            "figures": {name: asdict(figures) for name, figures in case.figures.items()},
        }

    @staticmethod
    def case_of(name: str, problem: NestCase, data: dict[str, Any]) -> NestResult:
        """Return the case that such JSON fields describe."""
        if data.get("skipped"):
            return NestResult(problem, skipped=read_text(data, "skipped"))
        return NestResult(
            problem,
            {who: read_entry(entry) for who, entry in read_value(data, "entries").items()},
            {who: _read_figures(found) for who, found in read_value(data, "figures").items()},
        )

    @staticmethod
    def case_rows(case: NestResult) -> Iterator[tuple[object, ...]]:
        """Yield a line for each contender."""
        for name, entry in (case.entries or {"": Entry((), case.skipped)}).items():
            rounds, figures = entry.seconds, case.figures.get(name)
            yield (
                name,
                *((entry.median, min(rounds), max(rounds)) if rounds else ("", "", "")),
                len(rounds),
                figures.predicted if figures else "",
                entry.reason,
            )


def _read_figures(data: Data) -> NestFigures:
    return NestFigures(read_positive(data, "predicted"), read_text(data, "how"))
