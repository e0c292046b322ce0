"""A sweep as a table, worst cases first, with its means, for a terminal or as Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import exp, inf, isfinite, isnan, log
from pathlib import Path

from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.sweeps import Case, Entry, Sweep
from tilesolve.contractions.errors import BenchmarkError, FileAccessError
from tilesolve.machine.model import Machine
from tilesolve.system.files import check_writable, read_regular, write_atomically
from tilesolve.system.units import format_count, format_duration, format_volume

NEAR_ERROR = 0.1
"""Relative error up to which a prediction counts as near."""

NOT_INSTALLED = "not installed"
"""The reason of a contender that could not take part; it gets no column."""


def sort_cases(sweep: Sweep) -> list[Case]:
    """Return the cases: without a result, then by the ratio to the best peer, skipped ones last.

    Where there is no peer, the share of the roofline counts.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> from tilesolve.contractions.problem import Problem
    >>> matmul = Problem.of("ik-ij-jk", 8)
    >>> cases = [Case(f"{s} s", matmul, 1.0, 1.0, "", {OURS: Entry((s,))}) for s in (1.0, 2.0)]
    >>> settings = Settings("mine", None, 1, 1, 1, {}, "")
    >>> [case.name for case in worst_first(Sweep(settings, {}, "", tuple(cases)))]
    ['2.0 s', '1.0 s']
    """

    def place(case: Case) -> tuple[bool, float, float]:
        ratio, reached = case.ratio, case.reached(OURS)
        return (
            bool(case.skipped),
            ratio if isfinite(ratio) else -inf if isnan(reached) else inf,
            0.0 if isnan(reached) else reached,
        )

    return sorted(sweep.cases, key=place)


def list_contenders(sweep: Sweep) -> list[str]:
    """Return the contenders that are installed, in the order of the settings.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> settings = Settings("mine", None, 1, 1, 1, {"tilesolve": "tilesolve 1"}, "")
    >>> taking_part(Sweep(settings, {}, "", ()))
    ['tilesolve']
    """
    absent = {
        name
        for name in sweep.conditions.contenders
        if any(name in case.entries for case in sweep.cases)
        and all(case.entries[name].reason == NOT_INSTALLED for case in sweep.cases if case.entries)
    }
    return [name for name in sweep.conditions.contenders if name not in absent]


def list_columns(sweep: Sweep) -> dict[str, str]:
    """Return the headers of a sweep's table, each with the side that its cells stand on.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> settings = Settings("mine", None, 1, 1, 1, {"tilesolve": "", "numpy": ""}, "")
    >>> list(columns(Sweep(settings, {}, "", ())))[-2:]
    ['memory', 'numpy']
    """
    left = {"case": "left"}
    right = (
        *(
            "roofline",
            OURS,
            "of roofline",
            "to best peer",
            "spread",
            "rounds",
            "predicted",
            "bound by",
        ),
        *("planning", "memory", *(name for name in list_contenders(sweep) if name != OURS)),
    )
    return left | dict.fromkeys(right, "right")


def list_rows(sweep: Sweep) -> list[tuple[str, ...]]:
    """Return the cells of a sweep's table; speeds are in GFLOP/s.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> from tilesolve.contractions.problem import Problem
    >>> case = Case("matmul", Problem.of("ik-ij-jk", 1000), 1.0, 1.5, "L1",
    ...             {"tilesolve": Entry((2.0,)), "numpy": Entry((4.0,))})
    >>> settings = Settings("mine", None, 1, 1, 1, {"tilesolve": "", "numpy": ""}, "")
    >>> rows(Sweep(settings, {}, "", (case,)))
    [('matmul', '1 s', '1', '50%', '2.00', '0%', '1', '0.75', 'L1', '-', '-', '0.5')]
    """
    peers = [name for name in list_contenders(sweep) if name != OURS]
    found = []
    for case in sort_cases(sweep):
        if case.skipped:
            found.append((case.name, "skipped", *[""] * (len(list_columns(sweep)) - 2)))
            continue
        mine = case.entries.get(OURS, Entry(()))
        found.append(
            (
                case.name,
                format_duration(case.roofline) if isfinite(case.roofline) else "-",
                _format_speed(case, OURS),
                _format_figure(case.reached(OURS), "{:.0%}"),
                _format_figure(case.ratio, "{:.2f}"),
                _format_figure(mine.spread, "{:.0%}"),
                str(len(mine.seconds)),
                _format_figure(case.predicted / mine.median, "{:.2f}"),
                case.bottleneck or "-",
                "-" if mine.preparation is None else format_duration(mine.preparation),
                "-" if mine.memory is None else format_volume(mine.memory),
                *(_format_speed(case, name) for name in peers),
            )
        )
    return found


def _format_figure(value: float, form: str) -> str:
    return form.format(value) if isfinite(value) else "-"


def _format_speed(case: Case, name: str) -> str:
    """Return a contender's GFLOP/s, or the first word of why there are none."""
    entry = case.entries.get(name)
    if entry is None:
        return "-"
    return f"{case.speed(name) / 1e9:.3g}" if entry.seconds else entry.reason.split()[0].strip(":,")


def list_notes(sweep: Sweep) -> list[str]:
    """Return a line for each contender without a result, and each case that was skipped.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> from tilesolve.contractions.problem import Problem
    >>> case = Case("matmul", Problem.of("ik-ij-jk", 9), 1.0, 1.5, "L1",
    ...             {"numpy": Entry((), "crashed: SIGSEGV")})
    >>> notes(Sweep(Settings("mine", None, 1, 1, 1, {"numpy": ""}, ""), {}, "", (case,)))
    ['matmul, numpy: crashed: SIGSEGV']
    """
    there = list_contenders(sweep)
    found = []
    for case in sort_cases(sweep):
        if case.skipped:
            found.append(f"{case.name}: {case.skipped}")
        found += [
            f"{case.name}, {name}: {entry.reason}"
            for name, entry in case.entries.items()
            if entry.reason and name in there
        ]
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean.

    Examples
    --------
    >>> mean([1.0, 4.0])
    2.0
    """
    return exp(sum(map(log, values)) / len(values))


def list_means(sweep: Sweep) -> list[str]:
    r"""Return lines with the geometric means of a sweep.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> from tilesolve.contractions.problem import Problem
    >>> case = Case("matmul", Problem.of("ik-ij-jk", 1000), 1.0, 1.5, "L1",
    ...             {"tilesolve": Entry((2.0,)), "numpy": Entry((4.0,))})
    >>> settings = Settings("mine", None, 1, 1, 1, {"tilesolve": "", "numpy": ""}, "")
    >>> print("\n".join(means(Sweep(settings, {}, "", (case,)))))
    Geometric means over 1 of 1 cases: 50 % of the roofline;
    2.00 times the best peer (slower than it in 0 of 1);
    2.00 times numpy (1 case);
    predicted over measured time 0.75, within 10 % in 0 of 1.
    """
    reached = [case.reached(OURS) for case in sweep.cases if isfinite(case.reached(OURS))]
    if not reached:
        return [f"No case of {len(sweep.cases)} has a result of {OURS}."]
    lines = [
        f"Geometric means over {len(reached)} of {len(sweep.cases)} cases: "
        f"{100 * geometric_mean(reached):.0f} % of the roofline"
    ]
    lines += _list_peaks(sweep)
    if ratios := [case.ratio for case in sweep.cases if isfinite(case.ratio)]:
        slower = sum(ratio < 1 for ratio in ratios)
        lines.append(
            f"{geometric_mean(ratios):.2f} times the best peer (slower than it in {slower} of {len(ratios)})"
        )
    for name in list_contenders(sweep):
        times = [case.seconds(name) / case.ours for case in sweep.cases if name != OURS]
        if known := [ratio for ratio in times if isfinite(ratio)]:
            lines.append(
                f"{geometric_mean(known):.2f} times {name} ({format_count(len(known), 'case')})"
            )
    errors = [c.predicted / c.ours for c in sweep.cases if isfinite(c.predicted / c.ours)]
    near = sum(abs(error - 1) <= NEAR_ERROR for error in errors)
    lines.append(
        f"predicted over measured time {geometric_mean(errors):.2f}, "
        f"within {100 * NEAR_ERROR:.0f} % in {near} of {len(errors)}"
    )
    return [*(f"{line};" for line in lines[:-1]), f"{lines[-1]}."]


def _list_peaks(sweep: Sweep) -> Iterator[str]:
    """Yield what arithmetic reached beside the runs, for each dtype where that was measured."""
    for dtype in dict.fromkeys(case.problem.dtype for case in sweep.cases):
        if peak := sweep.peak(dtype):
            calibrated = Machine.from_toml(sweep.machine).peak(dtype, sweep.conditions.threads)
            yield (
                f"the peak of {dtype} beside the runs was {peak / 1e9:.1f} GFLOP/s in the median, "
                f"{peak / calibrated:.2f} of the machine's"
            )


def list_facts(sweep: Sweep) -> dict[str, str]:
    """Return what a reader has to know of a sweep: settings, provenance, contenders.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> settings = Settings("mine", None, 1, 1, 5, {}, "")
    >>> facts(Sweep(settings, {"CPU": "fast"}, "", ()))["settings"][:22]
    'suite mine, 1 thread, '
    """
    settings = sweep.conditions
    threads = "1 thread" if settings.threads == 1 else f"{settings.threads} threads"
    batch = "" if settings.batch == 1 else f", {settings.batch} processes side by side"
    dtype = f", {settings.dtype}" if settings.dtype else ""
    budget = f", fewer past {settings.seconds:g} s a case" if settings.seconds else ""
    return {
        **sweep.provenance,
        "settings": f"suite {settings.suite}{dtype}, {threads}{batch}, median of "
        f"{settings.repeat} rounds in turns{budget}, caches flushed before each run",
    }


def markdown(sweep: Sweep) -> str:
    """Return a sweep as Markdown: facts, contenders, table, means and notes.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> settings = Settings("mine", None, 1, 1, 5, {"numpy": "numpy: numpy 2"}, "")
    >>> "- numpy: numpy 2" in markdown(Sweep(settings, {"CPU": "fast"}, "", ())).splitlines()
    True
    """
    return "\n".join(_markdown(sweep))


def _markdown(sweep: Sweep) -> Iterator[str]:
    for what, value in list_facts(sweep).items():
        yield f"{what}: {value}  "
    yield ""
    yield from (f"- {label}" for label in sweep.conditions.contenders.values())
    yield ""
    heads = list_columns(sweep)
    yield "| " + " | ".join(heads) + " |"
    yield "| " + " | ".join("---" if side == "left" else "--:" for side in heads.values()) + " |"
    for row in list_rows(sweep):
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"
    yield ""
    yield from list_means(sweep)
    if found := list_notes(sweep):
        yield ""
        yield from (f"- {note}" for note in found)


def between(text: str, name: str, new: str) -> str:
    r"""Return a document with what stands between two markers replaced.

    Raises
    ------
    BenchmarkError
        If the markers are not there, or not once.

    Examples
    --------
    >>> between("a <!-- x -->old<!-- /x --> b", "x", "new")
    'a <!-- x -->\nnew\n<!-- /x --> b'
    """
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(first) != 1 or text.count(last) != 1 or text.index(first) > text.index(last):
        raise BenchmarkError(f"there must be one {first} and, after it, one {last}")
    return f"{text.partition(first)[0]}{first}\n{new}\n{last}{text.partition(last)[2]}"


def write_between(path: str | os.PathLike[str], name: str, new: str | None) -> None:
    r"""Write text between two markers of a file; None only checks that it could be done.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "README.md"
    ...     _ = file.write_text("<!-- x --><!-- /x -->")
    ...     write_between(file, "x", "new")
    ...     file.read_text()
    '<!-- x -->\nnew\n<!-- /x -->'
    """
    target = Path(path)
    try:
        text = read_regular(target)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise FileAccessError(f"cannot read {target}: {why}") from None
    try:
        changed = between(text, name, new or "")
    except BenchmarkError as error:
        raise BenchmarkError(f"{target}: {error}") from None
    if new is None:
        check_writable(target)
    else:
        write_atomically(target, changed)
