"""Threads of numpy's BLAS, which takes as many as it was told to when it was loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tilesolve.system.locks import Lock


@dataclass(slots=True)
class _Bound:
    """The bound in force, if any: how many contexts are in it, and what ends it."""

    lock: Lock = field(default_factory=Lock)
    within: int = 0
    limiter: Any = None


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
            libraries = _controller().lib_controllers
            usual = max((x.get_num_threads() for x in libraries), default=threads)
            _bound.limiter = _controller().limit(limits=min(threads, usual))
        _bound.within += 1
    try:
        yield
    finally:
        with _bound.lock:
            _bound.within -= 1
            if not _bound.within:
                # OpenBLAS heeds the thread alone that first set a bound, which may be another one.
                _let_any_thread_bound()
                _bound.limiter.restore_original_limits()
                _let_any_thread_bound()


def _let_any_thread_bound() -> None:
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@cache
def _controller() -> Any:  # noqa: ANN401 - threadpoolctl has no types
    """Return what tells the BLAS libraries that are loaded by now: numpy's is one of them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
