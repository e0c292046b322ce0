"""What a command has found so far, as a value and as a JSON file."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from tilesolve.bench.case import Case
from tilesolve.bench.results.fields import Data, read_as, read_fields, read_text, write_value
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.system.files import read_regular, write_atomically
from tilesolve.system.tables import write_csv

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
        Name and a digest of the machine that plans were made for.
    seconds
        Budget of a case; None where its rounds were not bounded.
    plans
        Random plans of a study of tiles; None for a sweep.
    code
        A digest of the code that made the plans; empty if unknown.
    offset
        Bytes from the beginning of a line to where arrays begin, but for those that are said to be
        aligned; None in older files, which do not say.
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
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found of a case.

    `skipped` says why nothing was found, `fault` whose result is wrong and how; both are empty
    otherwise.
    """

    case: Case[Any]
    skipped: str = field(default="", kw_only=True)
    fault: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        """The name of the case."""
        return self.case.name

    @property
    def work(self) -> Any:  # noqa: ANN401 - a problem, a convolution or a nest
        """What was computed."""
        return self.case.work

    @property
    def problem(self) -> Problem:
        """The contraction that was computed."""
        assert isinstance(self.case.work, Problem)
        return self.case.work


_COMMON = tuple(field.name for field in fields(Outcome))

Kind = TypeVar("Kind", bound=Outcome)

Some = TypeVar("Some", bound=Case[Any])


@dataclass(frozen=True, slots=True)
class Record(Generic[Kind]):
    """All cases so far, and what they have in common.

    `machine` is the text of the machine's file; cases are in the order in which they were
    measured.
    """

    HOLDS: ClassVar[str]
    CASE: ClassVar[type[Case[Any]]]
    OUTCOME: ClassVar[Any]
    COLUMNS: ClassVar[tuple[str, ...]]
    conditions: Conditions
    provenance: Mapping[str, str]
    machine: str
    cases: tuple[Kind, ...]

    @property
    def done(self) -> list[Kind]:
        """The cases of which something was found."""
        return [case for case in self.cases if not (case.skipped or case.fault)]

    @classmethod
    def keep(cls, found: Kind) -> dict[str, Any]:
        """Return the JSON fields of what was found, beside those of its case."""
        own = [field.name for field in fields(cls.OUTCOME) if field.name not in _COMMON]
        return {name: write_value(getattr(found, name)) for name in own}

    @classmethod
    def restore(cls, case: Case[Any], data: Data) -> Kind:
        """Return what was found of a case, from such JSON fields."""
        found: Kind = read_fields(cls.OUTCOME, data, case=case, skipped="", fault="")
        return found

    @classmethod
    def _write(cls, found: Kind) -> dict[str, Any]:
        data = {"name": found.name} | found.case.to_data()
        if found.skipped:
            return data | {"skipped": found.skipped}
        return data | ({"fault": found.fault} if found.fault else cls.keep(found))

    @classmethod
    def _read(cls, data: Data) -> Kind:
        read_text(data, "name")
        case = cls.CASE.read(data)
        for why in ("skipped", "fault"):
            if data.get(why):
                ended: Kind = cls.OUTCOME(case, **{why: read_text(data, why)})
                return ended
        return cls.restore(case, data)

    @classmethod
    def list_lines(cls, found: Kind) -> Iterator[tuple[object, ...]]:
        """Yield the lines of a case in a CSV file, without the cells of what is computed."""
        if reason := found.skipped or found.fault:
            yield (*[""] * (len(cls.COLUMNS) - 1), reason)
        else:
            yield from cls.case_rows(found)

    @classmethod
    @abstractmethod
    def case_rows(cls, case: Kind) -> Iterator[tuple[object, ...]]:
        """Yield the lines of a case of which something was found."""

    def to_csv(self) -> str:
        """Return the results as CSV, a line for each thing that was timed."""
        rows = (
            (found.name, *found.case.list_cells(), *line)
            for found in self.cases
            for line in self.list_lines(found)
        )
        return write_csv((*PROBLEM_COLUMNS, *self.COLUMNS), rows)

    def with_case(self, case: Kind) -> Self:
        """Return a record with one more case, or with one replaced."""
        others = tuple(other for other in self.cases if other.name != case.name)
        return replace(self, cases=(*others, case))

    def has(self, case: Case[Any]) -> bool:
        """Return whether a case has been measured."""
        return any(
            (found.name, found.work) == (case.name, case.work) and not found.skipped
            for found in self.cases
        )

    def pick_waiting(self, cases: Mapping[str, Some]) -> dict[str, Some]:
        """Return the cases that have not been measured."""
        return {name: case for name, case in cases.items() if not self.has(case)}

    def to_json(self) -> str:
        """Return the record as JSON; `from_json` reads it."""
        return json.dumps(
            {
                "format": FORMAT,
                "holds": self.HOLDS,
                "settings": asdict(self.conditions),
                "provenance": dict(self.provenance),
                "machine": self.machine,
                "cases": [self._write(found) for found in self.cases],
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
                read_as(Mapping[str, str], data, "provenance"),
                read_text(data, "machine"),
                tuple(map(cls._read, data["cases"])),
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
