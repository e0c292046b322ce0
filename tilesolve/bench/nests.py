"""What a sweep of nests measures: the kernels of a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.nest_suites import NestCase as NestCase
from tilesolve.contractions.statements.nest_suites import nest_suite, nest_suites


def has_nests(name: str) -> bool:
    """Return whether a suite has nests.

    Examples
    --------
    >>> has_nests("nests"), has_nests("tccg")
    (True, False)
    """
    return name in nest_suites()


def find_nests(name: str, *, chosen: Sequence[str] = ()) -> Mapping[str, NestCase]:
    """Return the kernels of a suite by name.

    Parameters
    ----------
    name
        The suite.
    chosen
        Names, or patterns such as ``syr*``; all if there are none.

    Raises
    ------
    BenchmarkError
        If no kernel has a chosen name.

    Examples
    --------
    >>> list(find_nests("nests", chosen=["syr2k", "t?"]))
    ['syr2k', 'tp']
    """
    found = nest_suite(name)
    for pattern in chosen:
        if not any(fnmatchcase(one, pattern) for one in found):
            raise BenchmarkError(f"{name!r} has no nest {pattern!r}; it has {', '.join(found)}")
    return {
        one: case
        for one, case in found.items()
        if not chosen or any(fnmatchcase(one, pattern) for pattern in chosen)
    }
