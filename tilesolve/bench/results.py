"""What a sweep found, as values, and the file that keeps it."""

from __future__ import annotations

import csv
import io
import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import nan
from pathlib import Path
from typing import Any, Self

from tilesolve.bench.contenders import OURS
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.files import write_atomically

FORMAT = 1
"""Version of the JSON format; a file of another version is refused."""

COLUMNS = (
    *("case", "spec", "sizes", "dtype", "contender"),
    *("median_s", "least_s", "most_s", "rounds", "gflops"),
    *("roofline_s", "share_of_roofline", "predicted_s", "preparation_s", "memory_bytes", "reason"),
)
"""Columns of the CSV file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one contender did on one case.

    Parameters
    ----------
    seconds
        Of each round; empty where nothing counts.
    reason
        Why nothing counts; empty otherwise.
    preparation
        Seconds of making ready: of planning, for a plan.
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
        """The median round; NaN where nothing counts."""
        return statistics.median(self.seconds) if self.seconds else nan

    @property
    def spread(self) -> float:
        """How far the middle half of the rounds lies apart, as a share of the median."""
        if len(self.seconds) < 2:
            return 0.0 if self.seconds else nan
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median


@dataclass(frozen=True, slots=True)
class Case:
    """One problem, what the model says of it, and what each contender did.

    Parameters
    ----------
    name, problem
        What was computed.
    roofline, predicted
        Seconds that nothing beats, and seconds that the plan is predicted to take.
    bottleneck
        What the prediction is bound by.
    entries
        By contender.
    skipped
        Why nobody computed it; empty otherwise.

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
class Settings:
    """What has to be equal for cases to stand in one table.

    Parameters
    ----------
    suite, dtype, threads, batch, repeat
        As the command was given them; the dtype is None where the suite's counts.
    contenders
        Labels, by name.
    machine
        Name and a digest of what the plans were made for.

    Examples
    --------
    >>> Settings("tccg", None, 1, 1, 5, {"tilesolve": "tilesolve 0.1"}, "mine 123").batch
    1
    """

    suite: str
    dtype: str | None
    threads: int
    batch: int
    repeat: int
    contenders: Mapping[str, str]
    machine: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """All cases of a sweep so far.

    Parameters
    ----------
    settings
        What they have in common.
    provenance
        CPU, versions, date: what and its value.
    machine
        The machine's file.
    cases
        In the order in which they were measured.

    Examples
    --------
    >>> settings = Settings("mine", None, 1, 1, 5, {}, "mine 123")
    >>> sweep = Sweep(settings, {"CPU": "fast"}, "", ())
    >>> sweep = sweep.added(Case("matmul", Problem.of("ik-ij-jk", 8), 1.0, skipped="too large"))
    >>> Sweep.from_json(sweep.to_json()).cases[0].skipped
    'too large'
    """

    settings: Settings
    provenance: Mapping[str, str]
    machine: str
    cases: tuple[Case, ...]

    def added(self, case: Case) -> Self:
        """Return the sweep with a case more, or measured again."""
        kept = tuple(other for other in self.cases if other.name != case.name)
        return replace(self, cases=(*kept, case))

    def done(self, name: str, problem: Problem) -> bool:
        """Return whether a case has been measured."""
        return any(c.name == name and c.problem == problem and not c.skipped for c in self.cases)

    def to_json(self) -> str:
        """Return the sweep as JSON; `from_json` reads it back."""
        return json.dumps(
            {
                "format": FORMAT,
                "settings": asdict(self.settings),
                "provenance": dict(self.provenance),
                "machine": self.machine,
                "cases": [_case_data(case) for case in self.cases],
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str, *, origin: str = "results") -> Self:
        """Read a sweep.

        Raises
        ------
        BenchmarkError
            If the text is not one, or of another version.

        Examples
        --------
        >>> Sweep.from_json("[]", origin="old.json")
        Traceback (most recent call last):
        tilesolve.contractions.errors.BenchmarkError: old.json: these are no results of a sweep
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BenchmarkError(f"{origin}: not valid JSON: {error}") from None
        if not isinstance(data, dict):
            raise BenchmarkError(f"{origin}: these are no results of a sweep")
        if data.get("format") != FORMAT:
            raise BenchmarkError(
                f"{origin}: format is {data.get('format')!r}, this version reads {FORMAT}"
            )
        try:
            return cls(
                Settings(**data["settings"]),
                data["provenance"],
                data["machine"],
                tuple(_case(entry) for entry in data["cases"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BenchmarkError(
                f"{origin}: a damaged file of results: {type(error).__name__}: {error}"
            ) from None

    def to_csv(self) -> str:
        """Return a line for each case and contender.

        Examples
        --------
        >>> settings = Settings("mine", None, 1, 1, 5, {}, "mine 123")
        >>> matmul = Case("matmul", Problem.of("ik-ij-jk", 8), 1.0, 1.0, "L1",
        ...               {"numpy": Entry((2.0,))})
        >>> Sweep(settings, {}, "", (matmul,)).to_csv().splitlines()[1][:34]
        'matmul,ik-ij-jk,i=8 k=8 j=8,float6'
        """
        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow
        write(COLUMNS)
        for case in self.cases:
            sizes = " ".join(f"{i}={n}" for i, n in case.problem.sizes.items())
            head = (case.name, str(case.problem.spec), sizes, case.problem.dtype)
            for name, entry in (case.entries or {"": Entry((), case.skipped)}).items():
                times = entry.seconds
                write(
                    (
                        *head,
                        name,
                        *((entry.median, min(times), max(times)) if times else ("", "", "")),
                        len(times),
                        case.speed(name) / 1e9 if times else "",
                        case.roofline if case.entries else "",
                        case.reached(name) if times else "",
                        case.predicted if name == OURS else "",
                        "" if entry.preparation is None else entry.preparation,
                        "" if entry.memory is None else entry.memory,
                        entry.reason,
                    )
                )
        return text.getvalue()


def _case_data(case: Case) -> dict[str, Any]:
    problem = case.problem
    data: dict[str, Any] = {
        "name": case.name,
        "spec": str(problem.spec),
        "sizes": dict(problem.sizes),
        "dtype": problem.dtype,
    }
    if case.skipped:
        return data | {"skipped": case.skipped}
    return data | {
        "roofline": case.roofline,
        "predicted": case.predicted,
        "bottleneck": case.bottleneck,
        "entries": {name: asdict(entry) for name, entry in case.entries.items()},
    }


def _case(data: dict[str, Any]) -> Case:
    problem = Problem.of(data["spec"], data["sizes"], data["dtype"])
    if "skipped" in data:
        return Case(data["name"], problem, skipped=data["skipped"])
    entries = {
        name: Entry(**entry | {"seconds": tuple(map(float, entry["seconds"]))})
        for name, entry in data["entries"].items()
    }
    return Case(
        data["name"], problem, data["roofline"], data["predicted"], data["bottleneck"], entries
    )


def read(path: str | os.PathLike[str]) -> Sweep:
    """Read the file of a sweep.

    Examples
    --------
    >>> read("missing.json")
    Traceback (most recent call last):
    tilesolve.contractions.errors.BenchmarkError: cannot read missing.json: No such file or \
directory
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BenchmarkError(f"cannot read {Path(path)}: {why}") from None
    return Sweep.from_json(text, origin=str(path))


def resumed(path: str | os.PathLike[str], new: Sweep) -> Sweep:
    """Return the sweep of a file, to be gone on with; the new one if there is no file.

    Raises
    ------
    BenchmarkError
        If the file is of a sweep with other settings: both would be lost in a mixture.

    Examples
    --------
    >>> new = Sweep(Settings("mine", None, 1, 1, 5, {}, "mine 123"), {}, "", ())
    >>> resumed("not-yet.json", new) is new
    True
    """
    if not Path(path).exists():
        return new
    old = read(path)
    for what, value in asdict(new.settings).items():
        if (before := asdict(old.settings)[what]) != value:
            raise BenchmarkError(
                f"{Path(path)} holds a sweep with another {what}: {before!r}, now {value!r}; "
                "name another file, or remove it"
            )
    return old


def keep(path: str | os.PathLike[str], sweep: Sweep) -> None:
    """Write a sweep to its file, all of it or nothing.

    Examples
    --------
    >>> import tempfile
    >>> sweep = Sweep(Settings("mine", None, 1, 1, 5, {}, "mine 123"), {"CPU": "fast"}, "", ())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keep(Path(folder) / "sweep.json", sweep)
    ...     read(Path(folder) / "sweep.json") == sweep
    True
    """
    write_atomically(path, sweep.to_json() + "\n")
