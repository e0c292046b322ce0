"""Threads of numpy's BLAS, which takes as many as it was told to when it was loaded."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def at_most(threads: int) -> AbstractContextManager[Any]:
    """Return a context in which BLAS takes so many threads, or fewer if it is to take fewer anyway.

    The bound is the process's, as BLAS has a single pool. Where threads of the user's want bounds
    at the same time, threadpoolctl lets the first of them say it. That takes 10 µs.

    Examples
    --------
    >>> import numpy as np
    >>> with at_most(1):
    ...     float(np.matmul(np.ones(3), np.ones(3)))
    3.0
    """
    controller = _controller()
    usual = max((x.get_num_threads() for x in controller.lib_controllers), default=threads)
    return controller.limit(limits=min(threads, usual))  # type: ignore[no-any-return]


@cache
def _controller() -> Any:  # noqa: ANN401 - threadpoolctl has no types
    """Return what tells the BLAS libraries that are loaded by now: numpy's is one of them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
