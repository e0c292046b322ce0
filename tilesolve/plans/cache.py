"""Plans that were solved before: in memory, and on disk under their canonical problem.

Renaming letters or swapping operands finds the same plan. ``TILESOLVE_CACHE=off`` switches
both caches off; `clear` empties them.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from tilesolve.contractions.canonical import canonicalize
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import FileAccessError, PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.model import Machine
from tilesolve.machine.places import check_machine, machine_file
from tilesolve.planning.demand import Demand
from tilesolve.planning.solution import Solution
from tilesolve.planning.solve import drop_alignment
from tilesolve.plans.arguments import Sizes, problem_of
from tilesolve.plans.files import FORMAT, VALUES, dump, load, rename_letters
from tilesolve.plans.tries import pick_fastest_measured
from tilesolve.running.epilogue_code import check_epilogue
from tilesolve.system import files
from tilesolve.system.cache_bound import bound_cache, note_use
from tilesolve.system.locks import make_lock
from tilesolve.system.trust import NOWHERE, kept_folder, read_trusted
from tilesolve.system.version import __version__

MAX_PLANS_IN_MEMORY = 1024
"""Plans kept in memory; the one not used for longest goes first."""

PACKAGES = ("tilesolve", "tilesolve.contractions", "tilesolve.kernels", "tilesolve.packing")
"""Where the code lies that a plan depends on, in these folders and all below them."""

_counts: Counter[str] = Counter()
_memory: OrderedDict[Hashable, Any] = OrderedDict()
_T = TypeVar("_T")
_lock = make_lock()


def is_enabled() -> bool:
    """Return whether plans may be kept: unless ``TILESOLVE_CACHE`` is ``off`` or the like.

    Raises
    ------
    SettingError
        If the variable says neither on nor off.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_CACHE="Off"):
    ...     is_enabled()
    False
    """
    return files.is_switched_on("TILESOLVE_CACHE")


def plan_folder() -> Path:
    """Return where plans are kept on disk.

    Examples
    --------
    >>> plan_folder().name
    'plans'
    """
    return kept_folder("plans")


def clear() -> int:
    """Forget all plans, in memory and on disk, and return how many files were removed.

    Raises
    ------
    FileAccessError
        If a file cannot be removed.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_CACHE_DIR=tempfile.mkdtemp()):
    ...     clear()
    0
    """
    forget()
    return files.remove_files(plan_folder(), "*.json")


def forget() -> None:
    """Forget the plans in memory; those on disk stay.

    Examples
    --------
    >>> forget()
    >>> count_plans()["memory"]
    0
    """
    with _lock:
        _memory.clear()


def cached(
    spec: Spec | str | Problem,
    sizes: Sizes | None,
    machine: Machine | str | None,
    dtype: str | None,
    threads: int,
    demand: Demand,
    constant: str,
    make: Callable[[Solution], _T],
    *,
    aligned_output: bool = False,
) -> _T:
    """Return what is made of a solution, from memory; else of one from disk, or solved now.

    Parameters
    ----------
    spec, sizes, machine, dtype, threads, constant, aligned_output
        As in `plan`.
    demand
        How C is wanted.
    make
        Makes what callers share; the same in all calls.
    """
    # Equal numbers of different types are not all sizes.
    numbers = tuple(sizes.items()) if isinstance(sizes, Mapping) else (("", sizes),)
    key = (
        spec,
        tuple((letter, type(size), size) for letter, size in numbers),
        machine if isinstance(machine, Machine) else _machine_key(machine),
        dtype,
        threads,
        demand,
        constant,
        aligned_output,
    )
    pose = partial(problem_of, spec, sizes, dtype, constant, aligned_output=aligned_output)
    try:
        hash(key)
    except TypeError:  # no sizes, or no spec: the error says so
        problem = pose()
        return make(pick_fastest_measured(problem, Machine.load(machine), threads, demand))
    return remember(key, lambda: make(_from_disk(pose(), Machine.load(machine), threads, demand)))


def remember(key: Hashable, make: Callable[[], _T]) -> _T:
    """Return what was made for a key, from memory, or made now.

    Examples
    --------
    >>> remember("an example", lambda: 1), remember("an example", lambda: 2)
    (1, 1)
    """
    with _lock:
        kept: _T | None = _memory.get(key)
        if kept is not None:
            _memory.move_to_end(key)
            return kept
    found = make()
    with _lock:
        _memory[key] = found
        while len(_memory) > MAX_PLANS_IN_MEMORY:
            _memory.popitem(last=False)
    return found


def _machine_key(machine: str | None) -> Hashable:
    """Return what a named machine, or the one in force, depends on, without reading it."""
    if machine is not None:
        check_machine(machine)
    named = machine if machine is not None else files.read_setting("TILESOLVE_MACHINE")
    path = Path(named) if named else machine_file()
    try:
        state = path.stat()
    except OSError:
        return (named, str(path))
    return (named, str(path), state.st_mtime_ns, state.st_ino, state.st_size)


def _from_disk(problem: Problem, machine: Machine, threads: int, demand: Demand) -> Solution:
    form = canonicalize(drop_alignment(problem, machine, threads, demand))
    check_epilogue(demand.epilogue, problem)
    if demand.scheme is not None:
        demand.scheme.check_letters(problem.spec.letters)
    wanted = demand.rename(dict(form.letters))
    # What was tried was timed on this computer, whatever machine it was planned for.
    here = _name_computer() if wanted.tries > 1 else ""
    try:
        found = recall(
            (FORMAT, VALUES.write(form.problem), machine.to_toml(), threads, wanted, here),
            partial(_load_own, problem=form.problem, machine=machine, epilogue=wanted.epilogue),
            partial(pick_fastest_measured, form.problem, machine, threads, wanted),
            dump,
        )
    except PlanError:
        # It says so in the problem's letters.
        return pick_fastest_measured(problem, machine, threads, demand)
    return rename_letters(found, problem, form)


def recall(
    key: object, read: Callable[[str], _T], solve: Callable[[], _T], write: Callable[[_T], str]
) -> _T:
    """Return what this code kept on disk under a key; else what is solved now, and kept then.

    Parameters
    ----------
    key
        What it depends on beside the code: values of another `repr` are others.
    read, write
        What a file has; one that holds it wrongly is a `PlanError`.
    solve
        Makes it.
    """
    text = repr((_code_state(), key))
    path = plan_folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    found = _read_kept(path, read)
    if found is None:
        _counts["solved"] += 1
        found = solve()
        _keep(path, write(found))
    return found


def count_solved() -> int:
    """Return how many plans this process has solved that none had kept."""
    return _counts["solved"]


@cache
def _name_computer() -> str:
    """Return the fingerprint of this computer's CPU: it takes milliseconds, and stays."""
    return detect_cpu().fingerprint


@cache
def _code_state() -> tuple[object, ...]:
    """Return what the code that solves is known by: a plan of other code may not be its best.

    The version alone does not tell apart two states of a checkout.
    """
    folders = [Path(folder) for package in PACKAGES for folder in import_module(package).__path__]
    states = [
        (f"{folder.name}/{source.relative_to(folder)}", source.stat())
        for folder in folders
        for source in sorted(folder.rglob("*.py"))
    ]
    return __version__, *((name, state.st_mtime_ns, state.st_size) for name, state in states)


def code_digest() -> str:
    """Return a few characters that tell the code that makes plans from other states of it.

    Examples
    --------
    >>> len(code_digest())
    12
    """
    return hashlib.sha256(repr(_code_state()).encode()).hexdigest()[:12]


def _read_kept(path: Path, read: Callable[[str], _T]) -> _T | None:
    """Return what a file in the cache has; a damaged or foreign one is reported, and made again.

    So is one that somebody else could have written.
    """
    try:
        found = read(read_trusted(path).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, PlanError) as error:
        files.warn_once(f"the plan in {path} is ignored: {error}")
        return None
    note_use(path)
    return found


def _keep(path: Path, text: str) -> None:
    """Write a file to the cache; where that is not possible, warn once."""
    if NOWHERE in path.parents:  # a warning has said so
        return
    try:
        files.write_atomically(path, text, mode=0o600)
    except FileAccessError as error:
        files.warn_once(f"plans are not kept on disk: {error}")
        return
    bound_cache(path)


def _load_own(text: str, problem: Problem, machine: Machine, epilogue: Epilogue | None) -> Solution:
    """Return the plan in a text, if it is of a problem and a machine."""
    found = load(text, epilogue)
    if found.problem != problem or found.machine != machine:
        raise PlanError("it is of another problem or machine")
    return found


def count_plans() -> dict[str, Any]:
    """Return how many plans are kept, and how many bytes they take on disk.

    Examples
    --------
    >>> sorted(count_plans())
    ['bytes', 'disk', 'memory']
    """
    paths = list(plan_folder().glob("*.json"))
    return {
        "memory": len(_memory),
        "disk": len(paths),
        "bytes": sum(path.stat().st_size for path in paths if path.exists()),
    }
