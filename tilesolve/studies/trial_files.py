"""Files of measured variants: those of ``rank --json``, and of a study of rankings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilesolve.contractions.canonical import canonicalize
from tilesolve.contractions.errors import BenchmarkError, PlanError
from tilesolve.machine.cpu import detect_cpu
from tilesolve.ranking.files import load
from tilesolve.ranking.learning.judging import Trials, collect_trials
from tilesolve.ranking.standings import Standings
from tilesolve.studies.ranking import RankedCases
from tilesolve.system.files import read_regular
from tilesolve.system.version import __version__

NO_SUITE = "single problems"
"""What the suite of rankings is called that were made one by one."""


def read_trials(paths: Sequence[Path]) -> tuple[str, list[Trials]]:
    """Return the suite that some files are of, and their variants, problem by problem.

    Raises
    ------
    BenchmarkError
        If a file cannot be read, holds something else, was not measured on this computer by this
        version, is of another suite or machine file than the first, or repeats a problem.
    """
    found: list[Trials] = []
    problems: dict[str, str] = {}
    suites: dict[str, Path] = {}
    machines: dict[str, Path] = {}
    for path in paths:
        suite, rankings = read_rankings(path)
        suites.setdefault(suite, path)
        if len(suites) > 1:
            first = next(iter(suites))
            raise BenchmarkError(
                f"{path} is of the suite {suite!r}, {suites[first]} of {first!r}: learn from one "
                "suite at a time"
            )
        for name, one in rankings:
            _check_origin(path, one)
            machines.setdefault(one.solver.machine.to_toml(), path)
            if len(machines) > 1:
                other = next(iter(machines.values()))
                raise BenchmarkError(f"{path} has plans for another machine file than {other}")
            form = str(canonicalize(one.problem).problem)
            if form in problems:
                raise BenchmarkError(
                    f"{path}: {name} is the problem of {problems[form]}: whoever learned from one "
                    "would be judged by the other"
                )
            problems[form] = name
            try:
                found.append(collect_trials(name, one))
            except BenchmarkError as error:
                raise BenchmarkError(f"{path}: {error}") from None
    return next(iter(suites), NO_SUITE), found


def read_rankings(path: Path) -> tuple[str, list[tuple[str, Standings]]]:
    """Return the suite of a file, and its rankings with the names of their problems.

    Raises
    ------
    BenchmarkError
        If it cannot be read, or holds neither a ranking nor a study of rankings.
    """
    try:
        text = read_regular(path)
        data = json.loads(text)
    except OSError as error:
        raise BenchmarkError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"{path}: not valid JSON: {error}") from None
    try:
        if isinstance(data, dict) and "ranking" in data:
            one = load(text)
            return NO_SUITE, [(str(one.problem), one)]
        study = RankedCases.from_json(text, origin=str(path))
    except PlanError as error:
        raise BenchmarkError(f"{path}: {error}") from None
    return study.conditions.suite, list(study.rankings.items())


def _check_origin(path: Path, found: Standings) -> None:
    """Refuse what was not measured here: what is learned from it would hold elsewhere."""
    for fault in _find_faults(found):
        raise BenchmarkError(f"{path}: {fault}: measure again on this computer")


def _find_faults(found: Standings) -> Iterator[str]:
    here, machine = detect_cpu().fingerprint, found.solver.machine
    if found.clock is None:
        yield "it does not say where its times were measured"
    elif found.clock.cpu != here:
        yield f"it was measured on another CPU ({found.clock.cpu}, this one is {here})"
    elif found.clock.version != __version__:
        yield f"version {found.clock.version} measured it, and this is {__version__}"
    if machine.fingerprint != here:
        yield f"its plans are for machine {machine.name!r}, which is not this computer"
