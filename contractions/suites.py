"""Named problems that are measured together, kept as TOML.

A suite file has ``format = 1`` and a list ``problems`` of tables. Each has ``spec``, ``sizes``
(a table, or text such as ``"a=72 b=72"``) and, if wished, ``name`` (else it is the spec) and
``dtype``. A ``spec`` or ``dtype`` beside ``problems`` serves those that have none.
"""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from typing import Any

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import SuiteError, TilesolveError
from tilesolve.contractions.problem import Problem

FORMAT = 1
"""Version of the TOML format; a file of another version is refused."""

_SHIPPED = (
    *("tccg", "yolo9000", "resnet18", "gemm"),
    *("gemm-small", "resnet50", "fastrcnn", "maskrcnn"),
)
_OF_FILE = {"format", "problems", "spec", "dtype"}
_OF_PROBLEM = {"name", "spec", "sizes", "dtype"}


def list_suites() -> tuple[str, ...]:
    """Return the names of the suites that come with the package.

    Examples
    --------
    >>> ", ".join(list_suites())
    'tccg, yolo9000, resnet18, gemm, gemm-small, resnet50, fastrcnn, maskrcnn'
    """
    return _SHIPPED


def read_drawn_name(name: str, what: str) -> tuple[int, int] | None:
    """Return the count and the seed of a name of drawn problems; None of another name.

    Examples
    --------
    >>> read_drawn_name("random:5:1", "random"), read_drawn_name("tccg", "random")
    ((5, 1), None)
    """
    drawn = re.fullmatch(rf"{what}:([1-9][0-9]{{0,4}}):([0-9]{{1,18}})", name)
    return (int(drawn[1]), int(drawn[2])) if drawn else None


def suite(name: str | Path) -> dict[str, Problem]:
    """Return the problems of a suite by name, in the file's order.

    Parameters
    ----------
    name
        One of `list_suites`, or the path of a TOML file of one's own; text is taken for a path if
        it ends in ``.toml``.

    Examples
    --------
    >>> print(suite("yolo9000")["Yolo9000-0"])
    khw-c[h+r][w+s]-kcrs k=32 h=544 w=544 c=3 r=3 s=3 float32
    >>> len(suite("tccg"))
    36
    """
    check_kind(name, (str, PathLike), "name", "that of a suite or the path of a file", SuiteError)
    if isinstance(name, str) and name in _SHIPPED:
        return _load(resources.files(__package__) / "suites" / f"{name}.toml")
    if isinstance(name, str) and not name.endswith(".toml"):
        raise SuiteError(
            f"there is no suite {name!r}; there are {', '.join(_SHIPPED)}, "
            "and files whose names end in .toml"
        )
    return _load(Path(name))


def _load(file: Traversable) -> dict[str, Problem]:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SuiteError(f"cannot read the suite {file}: {error}") from error
    _check_keys(str(file), data, _OF_FILE)
    if data.get("format") != FORMAT:
        raise SuiteError(f"{file}: format is {data.get('format')!r}, this version reads {FORMAT}")
    entries = data.get("problems")
    if not isinstance(entries, list) or not entries:
        raise SuiteError(f"{file}: 'problems' must be a list of tables, got {entries!r}")
    common = {key: value for key, value in data.items() if key in _OF_PROBLEM}
    problems: dict[str, Problem] = {}
    for position, entry in enumerate(entries, start=1):
        where = f"{file}, problem {position}"
        if not isinstance(entry, dict):
            raise SuiteError(f"{where}: expected a table, got {entry!r}")
        _check_keys(where, entry, _OF_PROBLEM)
        entry = common | entry
        name = entry.get("name", entry.get("spec"))
        if not isinstance(name, str) or "spec" not in entry:
            raise SuiteError(f"{where}: it needs a spec, and a name that is text, got {name!r}")
        where += f" ({name!r})"
        if name in problems:
            raise SuiteError(f"{where}: an earlier problem has the same name")
        problems[name] = _problem(where, entry)
    return problems


def _problem(where: str, entry: dict[str, Any]) -> Problem:
    sizes = entry.get("sizes")
    if not isinstance(sizes, dict | str):
        raise SuiteError(f"{where}: 'sizes' must be a table or text, got {sizes!r}")
    try:
        return Problem.of(entry["spec"], sizes, entry.get("dtype", "float64"))
    except TilesolveError as error:
        raise SuiteError(f"{where}: {error}") from error


def _check_keys(where: str, table: dict[str, Any], known: set[str]) -> None:
    """Refuse a key that would be overlooked, a misspelt one for instance."""
    for key in table:
        if key not in known:
            raise SuiteError(f"{where}: unknown key {key!r}; known are {', '.join(sorted(known))}")
