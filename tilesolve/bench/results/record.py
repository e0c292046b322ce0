"""What a command has found so far, as a value and as a JSON file."""

from __future__ import annotations

import csv
import io
import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from tilesolve.bench.results.fields import read_text, read_texts
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.system.files import read_regular, write_atomically

FORMAT = 1
"""Version of the JSON format; a file of another version is refused."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What has to be equal for cases to stand in one table.

    Parameters
    ----------
    suite, dtype, threads, batch, repeat
        As the command was given them; the dtype is None where the suite's counts.
    contenders
        Labels, by name.
    machine
        Name and a digest of what the plans were made for.
    seconds
        Budget of a case; None where its rounds were not bounded.
    plans
        Random plans of a study of tiles; None for a sweep.
    code
        A digest of the code that made the plans; empty if unknown.
    """

    suite: str
    dtype: str | None
    threads: int
    batch: int
    repeat: int
    contenders: Mapping[str, str]
    machine: str
    seconds: float | None = None
    plans: int | None = None
    code: str = ""


class Item(Protocol):
    """The results of one problem."""

    @property
    def name(self) -> str:
        """The name of the problem."""

    @property
    def problem(self) -> Any:  # noqa: ANN401 - a `Problem` but in sweeps of nests
        """What was computed."""

    @property
    def skipped(self) -> str:
        """Why nothing was computed; empty otherwise."""


Kind = TypeVar("Kind", bound=Item)


@dataclass(frozen=True, slots=True)
class Record(Generic[Kind]):
    """All cases so far, and what they have in common.

    Parameters
    ----------
    conditions
        What they have in common.
    provenance
        CPU, versions, date: what and its value.
    machine
        The machine's file.
    cases
        In the order in which they were measured.
    """

    HOLDS: ClassVar[str]
    COLUMNS: ClassVar[tuple[str, ...]]
    conditions: Conditions
    provenance: Mapping[str, str]
    machine: str
    cases: tuple[Kind, ...]

    @staticmethod
    @abstractmethod
    def case_data(case: Kind) -> dict[str, Any]:
        """Return the JSON fields of a case that was not skipped, beside those of its problem."""

    @staticmethod
    def skipped_data(case: Kind) -> dict[str, Any]:
        """Return the JSON fields of a case that was skipped, beside those of its problem."""
        return {"skipped": case.skipped}

    @staticmethod
    @abstractmethod
    def case_of(name: str, problem: Any, data: dict[str, Any]) -> Kind:  # noqa: ANN401 - as above
        """Return the case that such JSON fields describe."""

    @staticmethod
    def problem_data(problem: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """Return the JSON fields of what was computed."""
        return {
            "spec": str(problem.spec),
            "sizes": dict(problem.sizes),
            "dtype": problem.dtype,
        }

    @classmethod
    def problem_cells(cls, problem: Any) -> tuple[str, ...]:  # noqa: ANN401 - as above
        """Return what was computed as cells of a CSV file: spec, sizes and dtype."""
        spec, sizes, dtype = cls.problem_data(problem).values()
        written = " ".join(f"{letter}={extent}" for letter, extent in sizes.items())
        return spec, written, dtype

    @staticmethod
    def read_problem(entry: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
        """Return what `problem_data` describes."""
        return Problem.of(entry["spec"], entry["sizes"], entry["dtype"])

    @staticmethod
    @abstractmethod
    def case_rows(case: Kind) -> Iterator[tuple[object, ...]]:
        """Yield the lines of a case in a CSV file, without the cells of its problem."""

    def to_csv(self) -> str:
        """Return the results as CSV, a line for each thing that was timed."""
        lines = io.StringIO()
        write = csv.writer(lines, lineterminator="\n").writerow
        write((*PROBLEM_COLUMNS, *self.COLUMNS))
        for case in self.cases:
            for row in self.case_rows(case):
                write((case.name, *self.problem_cells(case.problem), *row))
        return lines.getvalue()

    def with_case(self, case: Kind) -> Self:
        """Return a record with one more case, or with one replaced."""
        others = tuple(other for other in self.cases if other.name != case.name)
        return replace(self, cases=(*others, case))

    def has(self, name: str, problem: object) -> bool:
        """Return whether a case has been measured."""
        return any(c.name == name and c.problem == problem and not c.skipped for c in self.cases)

    def to_json(self) -> str:
        """Return the record as JSON; `from_json` reads it."""
        return json.dumps(
            {
                "format": FORMAT,
                "holds": self.HOLDS,
                "settings": asdict(self.conditions),
                "provenance": dict(self.provenance),
                "machine": self.machine,
                "cases": [
                    {"name": case.name}
                    | self.problem_data(case.problem)
                    | (self.skipped_data(case) if case.skipped else self.case_data(case))
                    for case in self.cases
                ],
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, document: str, *, origin: str = "results") -> Self:
        """Read what `to_json` wrote.

        Raises
        ------
        BenchmarkError
            If the text is something else, or of another version.

        Examples
        --------
        >>> from tilesolve.bench.results.sweeps import Sweep
        >>> Sweep.from_json("[]", origin="old.json")
        Traceback (most recent call last):
        tilesolve.contractions.errors.BenchmarkError: old.json: these are no results of a sweep
        """
        try:
            data = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise BenchmarkError(f"{origin}: not valid JSON: {error}") from None
        if not isinstance(data, dict):
            raise BenchmarkError(f"{origin}: these are no results of {cls.HOLDS}")
        if data.get("format") != FORMAT:
            raise BenchmarkError(
                f"{origin}: format is {data.get('format')!r}, this version reads {FORMAT}"
            )
        if (holds := data.get("holds", "a sweep")) != cls.HOLDS:  # sweeps did not always say so
            raise BenchmarkError(f"{origin}: these are results of {holds}, not of {cls.HOLDS}")
        try:
            return cls(
                Conditions(**data["settings"]),
                read_texts(data, "provenance"),
                read_text(data, "machine"),
                tuple(
                    cls.case_of(
                        read_text(entry, "name"),
                        cls.read_problem(entry),
                        entry,
                    )
                    for entry in data["cases"]
                ),
            )
        except BenchmarkError as error:
            raise BenchmarkError(f"{origin}: a damaged file of results: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BenchmarkError(
                f"{origin}: a damaged file of results: {type(error).__name__}: {error}"
            ) from None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file."""
        try:
            document = read_regular(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BenchmarkError(f"cannot read {Path(path)}: {why}") from None
        return cls.from_json(document, origin=str(path))

    def resume(self, path: str | os.PathLike[str]) -> Self:
        """Return the record in a file, to continue it; this one if there is no file.

        Raises
        ------
        BenchmarkError
            If that record was made under other conditions: results of both do not compare.
        """
        if not Path(path).exists():
            return self
        old = self.read(path)
        for what, value in asdict(self.conditions).items():
            if (before := asdict(old.conditions)[what]) != value:
                raise BenchmarkError(
                    f"{Path(path)} holds {self.HOLDS} with another {what}: {before!r}, now "
                    f"{value!r}; name another file, or remove it"
                )
        return old

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record to a file, all of it or nothing."""
        write_atomically(path, self.to_json() + "\n")


PROBLEM_COLUMNS = ("case", "spec", "sizes", "dtype")
"""The first columns of a CSV file."""
