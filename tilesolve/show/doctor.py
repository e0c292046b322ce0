"""What ``tilesolve doctor`` finds: what is in force, what is missing, which commands mend it."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilesolve.contractions.errors import FileAccessError, MachineError, SettingError
from tilesolve.machine.costs import describe_costs
from tilesolve.machine.cpu import PROC, SYS, detect_cpu
from tilesolve.machine.detect import default_threads
from tilesolve.machine.file import impossible_kernels, was_changed
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.machine.places import calibrated_text, machine_file
from tilesolve.show.machine_tables import cost_text, machine_facts
from tilesolve.system.cache_bound import cache_limit
from tilesolve.system.files import (
    SETTINGS,
    cache_dir,
    config_dir,
    find_obstacle,
    is_switched_on,
    nearest_existing,
    read_setting,
    takes_files,
)
from tilesolve.system.loading import lacks_memory
from tilesolve.system.tables import Table
from tilesolve.system.trust import NOWHERE, check_folder, private_folder
from tilesolve.system.units import format_duration, format_rate, format_size
from tilesolve.system.version import __version__
from tilesolve.system.workers import run_unheard

if TYPE_CHECKING:
    from rich.console import Console

NEEDED = (
    "numpy",
    "numba",
    "llvmlite",
    "scipy",
    "pyomo",
    "networkx",
    "opt_einsum",
    "threadpoolctl",
)
"""Modules that nothing works without, beside the command line's own."""

MORE_MEMORY = "free memory, or allow the process more of it (ulimit -v)"
"""What mends libraries that are there, but cannot be loaded."""

EXTRAS = {
    "matplotlib": "plot",
    "pyscipopt": "certify",
    "onnx": "onnx",
    "ml_dtypes": "bfloat16",
    "islpy": "polyhedral",
    "distributed": "dask",
}
"""Optional modules, and the extra that brings each."""


@dataclass(frozen=True, slots=True)
class Row:
    """One finding.

    `source` says where the value comes from, or its state; `mend` is the command that would
    better it, empty if nothing needs to; `bad` says whether something needed is missing or
    damaged.
    """

    what: str
    value: str
    source: str = ""
    mend: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Findings about one thing."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings."""

    sections: tuple[Section, ...]

    @property
    def healthy(self) -> bool:
        """Whether all that is needed is there."""
        return not any(row.bad for section in self.sections for row in section.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all findings as plain data, for JSON."""
        return {"healthy": self.healthy, **asdict(self)}


def diagnose(root: Path = SYS, proc: Path = PROC) -> Diagnosis:
    """Examine this computer and this installation.

    `root` and `proc` are where sysfs and procfs are mounted.

    Examples
    --------
    >>> [section.title for section in diagnose().sections]
    ['software', 'solver', 'processor', 'machine', 'files', 'settings']
    """
    return Diagnosis(
        (
            Section("software", tuple(_software())),
            Section("solver", (_ipopt(),)),
            Section("processor", tuple(_processor(root, proc))),
            Section("machine", tuple(_machine())),
            Section("files", tuple(_files())),
            Section("settings", tuple(_settings())),
        )
    )


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """Print all findings: a table per section, then the commands that mend or better something.

    Examples
    --------
    >>> from tilesolve.show.console_tables import console
    >>> print_diagnosis(Diagnosis(()), console())
    All that is needed is there.
    """
    for section in found.sections:
        rows = [(row.what, row.value, row.source) for row in section.rows]
        columns = dict.fromkeys((section.title, "value", "source"), "left")
        console.print(Table("", columns, rows))
    for row in (row for section in found.sections for row in section.rows if row.mend):
        console.print(f"{'!' if row.bad else '-'} {row.what}: {row.mend}")
    console.print(
        "All that is needed is there."
        if found.healthy
        else "Something that is needed is missing or damaged (!)."
    )


def _software() -> Iterable[Row]:
    yield Row("tilesolve", __version__)
    yield Row("python", f"{platform.python_version()} on {platform.system()}")
    for name in NEEDED:
        row = _module(name)
        mend = row.mend or f"pip install --force-reinstall {name}"
        yield replace(row, mend=mend) if row.bad else row
    for name, extra in EXTRAS.items():
        row = _module(name)
        mend = (row.mend or f"pip install 'tilesolve[{extra}]'") if row.bad else ""
        yield replace(row, source=f"optional, {row.source}", mend=mend, bad=False)


def _module(name: str) -> Row:
    """Import a module: that it is installed does not show that it works."""
    try:
        version = getattr(importlib.import_module(name), "__version__", "unknown version")
    except ModuleNotFoundError:
        return Row(name, "not installed", "missing", bad=True)
    except Exception as error:  # a broken extension module can raise anything
        mend = MORE_MEMORY if lacks_memory(error) else ""
        return Row(name, f"cannot be imported: {error}", "broken", mend, bad=True)
    return Row(name, str(version), "imported")


def _ipopt() -> Row:
    """Solve a problem of one variable with IPOPT: min (x - 2)^2 within [0, 5]."""
    mend = "pip install --force-reinstall cyipopt-wheels"
    try:
        import cyipopt
        import numpy as np

        class Parabola:
            def objective(self, x: Any) -> float:  # noqa: ANN401 - an array of one
                return float((x[0] - 2) ** 2)

            def gradient(self, x: Any) -> Any:  # noqa: ANN401 - an array of one
                return 2 * (x - 2)

        program = cyipopt.Problem(n=1, m=0, problem_obj=Parabola(), lb=[0.0], ub=[5.0])
        options = {"print_level": 0, "sb": "yes", "hessian_approximation": "limited-memory"}
        for name, value in options.items():
            program.add_option(name, value)
        found, info = run_unheard(lambda: program.solve(np.array([0.5])))
        version = ".".join(map(str, cyipopt.IPOPT_VERSION))
    except ModuleNotFoundError as error:
        return Row("IPOPT", f"not installed: {error}", "missing", mend, bad=True)
    except Exception as error:  # a broken extension module can raise anything
        mend = MORE_MEMORY if lacks_memory(error) else mend
        return Row("IPOPT", f"does not run: {error}", "broken", mend, bad=True)
    if not abs(found[0] - 2) < 1e-6:  # a NaN is no answer either
        text = f"{version} answers {found[0]:.9g}, not 2: {info['status_msg']!r}"
        return Row("IPOPT", text, "broken", mend, bad=True)
    return Row("IPOPT", f"{version} through cyipopt {cyipopt.__version__}", "solved a test")


def _processor(root: Path, proc: Path) -> Iterable[Row]:
    here = detect_cpu(root, proc)
    widths = {"sse2": 128, "asimd": 128, "avx2": 256, "avx512f": 512}
    has = sorted({bits for name, bits in widths.items() if name in here.features})
    yield Row("CPU", here.model, "detected")
    yield Row("fingerprint", here.fingerprint)
    yield Row("vector widths", ", ".join(map(str, has)) or "unknown", "detected" if has else "")
    yield Row("cores in force", str(here.cores), "affinity and control group")
    try:
        source = (
            "TILESOLVE_NUM_THREADS" if read_setting("TILESOLVE_NUM_THREADS") else "none are named"
        )
        yield Row("threads in force", str(default_threads()), source)
    except SettingError as error:
        yield Row("threads in force", str(error), "damaged", "unset TILESOLVE_NUM_THREADS", True)
    yield _huge_pages(root / "kernel/mm/transparent_hugepage/enabled")


def _huge_pages(path: Path) -> Row:
    try:
        mode = path.read_text(encoding="utf-8").partition("[")[2].partition("]")[0]
    except OSError:
        return Row("huge pages", "unknown", "not reported")
    mend = f"echo madvise | sudo tee {path}" if mode == "never" else ""
    return Row("huge pages", mode or "unknown", "detected", mend)


def _machine() -> Iterable[Row]:
    """Tell which machine is in force and why, and each of its figures by source."""
    try:
        machine, why, _ = Machine.find()
    except MachineError as error:
        yield Row(
            "machine in force", str(error), "TILESOLVE_MACHINE", "unset TILESOLVE_MACHINE", True
        )
        return
    mend = "tilesolve calibrate" if why == "detection" else ""
    yield Row("machine in force", machine.name, why, mend)
    for level in machine.levels:
        for source, texts in _figures(machine, level).items():
            yield Row(level.name, ", ".join(texts), source)
    for fact in machine_facts(machine):
        yield Row(*fact)
    yield from _costs(machine)
    if refused := [figure for figure, source in machine.sources if source == "refused"]:
        mend = "measure again while nothing else runs: tilesolve calibrate"
        yield Row("no measurements", f"{', '.join(refused)}: defaults hold", "refused", mend)


def _costs(machine: Machine) -> Iterable[Row]:
    """Count the costs that nothing measured, and name the others."""
    known = describe_costs(machine.costs)
    sources = {cost.name: machine.source(f"costs.{cost.name}") for cost in known}
    others = [cost for cost in known if sources[cost.name] not in ("assumed", "refused")]
    count = len(known) - len(others)
    yield Row("costs", f"{count} of {len(known)} assumed", "see 'tilesolve machine'")
    for cost in others:
        name = cost.name.replace("_", " ")
        yield Row(name, f"{cost_text(machine, cost)} {cost.unit}", sources[cost.name])


def _figures(machine: Machine, level: Level) -> dict[str, list[str]]:
    """Return a level's figures as text, in groups of one source."""

    def moved(what: str, rate: float | None) -> str:
        return f"{what} {format_rate(rate, machine.frequency)}".strip() if rate else ""

    texts = {
        "capacity": format_size(level.capacity) if level.capacity else "",
        "effective": f"{level.effective:.0%} effective" if level.effective < 1 else "",
        "line": f"lines of {level.line} B",
        "ways": f"{level.ways} ways" if level.ways else "",
        "shared_by": f"shared by {level.shared_by}" if level.shared_by > 1 else "",
        "inclusive": "" if level.inclusive else "victim cache",
        "bandwidth": moved("", level.bandwidth),
        "read": moved("read only", level.read),
        "stream": moved("non-temporal stores", level.stream),
        "bandwidth_all": moved("all cores", level.bandwidth_all),
        "latency": f"latency {format_duration(level.latency)}" if level.latency else "",
        "start": f"a run starts in {format_duration(level.start)}" if level.start else "",
        "part": f"a run amid lines costs {format_duration(level.part)}" if level.part else "",
        "ahead": f"{level.ahead} lines fetched ahead at most" if level.capacity else "",
        "fetched": f"{level.fetched} for each access" if level.capacity else "",
    }
    groups: dict[str, list[str]] = {}
    for field, text in texts.items():
        if text:
            groups.setdefault(machine.source(f"{level.name}.{field}"), []).append(text)
    return groups


def _files() -> Iterable[Row]:
    path = machine_file()
    yield _machine_file(path)
    with suppress(OSError):  # the row of the folder tells
        others = len([file for file in path.parent.glob("*.toml") if file != path])
        if others:
            yield Row("machine files of other CPUs", str(others), str(path.parent))
    settings, kept = config_dir(), cache_dir()
    idle = "nothing but measuring writes there"
    yield _folder("settings folder", settings, "TILESOLVE_CONFIG_DIR", lambda: idle)
    yield _folder("cache folder", kept, "TILESOLVE_CACHE_DIR", lambda: _stand_in(kept))
    try:
        yield Row("bound of the cache", format_size(cache_limit()))
    except SettingError as error:
        mend = "unset TILESOLVE_CACHE_LIMIT"
        yield Row("bound of the cache", str(error), "damaged", mend, True)
    try:
        yield Row("plans are kept", "yes" if is_switched_on("TILESOLVE_CACHE") else "no")
    except SettingError as error:
        yield Row("plans are kept", str(error), "damaged", "unset TILESOLVE_CACHE", True)


def _machine_file(path: Path) -> Row:
    """Tell whether this CPU was measured, and whether the file still says what was measured."""
    try:
        text = calibrated_text()
        Machine.calibrated()
    except MachineError as error:
        return Row("machine file", str(error), "damaged", "tilesolve calibrate", True)
    if text is None:
        return Row("machine file", str(path), "not calibrated yet")
    if was_changed(text):
        mend = f"tilesolve calibrate; or, if the change is yours: sed -i '/^# checksum/d' {path}"
        return Row("machine file", str(path), "changed after it was measured", mend)
    if told := impossible_kernels(text):
        value = f"{path}: kernels faster than the peak, which are not used ({'; '.join(told)})"
        return Row("machine file", value, "impossible", "measure again: tilesolve kernels")
    return Row("machine file", str(path), "measured")


def _folder(what: str, path: Path, variable: str, otherwise: Callable[[], str]) -> Row:
    """Tell a folder's size, and whether it, or else its nearest parent, serves to keep files.

    Where nobody lets this process write, that is no fault if something says how it works otherwise.
    """
    mend = f"export {variable}=<a folder that can be written>"
    try:
        there = nearest_existing(path)
        if not takes_files(there):
            return _unwritable(what, f"{path}: {there} cannot be written", mend, otherwise())
        if obstacle := find_obstacle(path):
            return Row(what, f"{path}: {obstacle}", "damaged", mend, True)
        check_folder(path)
        if not path.exists():
            return Row(what, str(path), "not made yet")
        used = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except FileAccessError as error:
        return Row(what, str(error), "damaged", mend, True)
    except OSError as error:
        return _unwritable(what, f"{path}: {error.strerror}", mend, otherwise())
    return Row(what, str(path), format_size(used))


def _unwritable(what: str, why: str, mend: str, otherwise: str) -> Row:
    return Row(what, why, otherwise or "damaged", mend, not otherwise)


def _stand_in(folder: Path) -> str:
    """Say what serves if the cache folder takes no files; an empty text if nothing does."""
    with suppress(OSError):
        if any(folder.iterdir()):
            return "what is there is used"
    private = private_folder()
    return "" if private == NOWHERE else f"{private} serves instead"


def _settings() -> Iterable[Row]:
    for name, meaning in SETTINGS.items():
        yield Row(name, read_setting(name) or "not set", meaning)
    for name in sorted(os.environ):
        if name.startswith("TILESOLVE_") and name not in SETTINGS:
            yield Row(name, "unknown to this version, and ignored", "", f"unset {name}")
