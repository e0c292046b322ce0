"""Threads of numpy's BLAS, which takes as many as it was told to when it was loaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tilesolve.system.locks import make_lock


@dataclass(slots=True)
class _Bound:
    """The bound in force, if any: how many contexts are in it, and the libraries' usual threads."""

    lock: threading.Lock = field(default_factory=make_lock)
    within: int = 0
    usual: list[tuple[Any, int]] = field(default_factory=list)


_bound = _Bound()


@contextmanager
def limit_blas_threads(threads: int) -> Iterator[None]:
    """Return a context in which BLAS takes so many threads, or fewer if it is to take fewer anyway.

    The bound holds for the process, as BLAS has a single pool. Where several threads of the user
    set bounds at the same time, the first one counts, and the last one to leave ends it.

    Examples
    --------
    >>> import numpy as np
    >>> with limit_blas_threads(1):
    ...     float(np.matmul(np.ones(3), np.ones(3)))
    3.0
    """
    with _bound.lock:
        if not _bound.within:
            usual = [(library, library.get_num_threads()) for library in _libraries()]
            _bound.usual = [(library, count) for library, count in usual if count > threads]
            for library, _ in _bound.usual:
                library.set_num_threads(threads)
        _bound.within += 1
    try:
        yield
    finally:
        with _bound.lock:
            _bound.within -= 1
            if not _bound.within:
                for library, count in _bound.usual:
                    # OpenBLAS heeds the thread alone that first set a bound: maybe another one.
                    _let_any_thread_bound(library)
                    library.set_num_threads(count)
                    _let_any_thread_bound(library)


def _let_any_thread_bound(library: Any) -> None:  # noqa: ANN401 - threadpoolctl has no types
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


@cache
def _libraries() -> list[Any]:
    """Return the BLAS libraries that are loaded by now: numpy's is one of them."""
    from threadpoolctl import ThreadpoolController

    found: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return found
