"""How lengthy work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Receives the fraction that is done, and what is being done."""


def silent(fraction: float, what: str) -> None:
    """Report to nobody.

    Examples
    --------
    >>> silent(0.5, "half of it")
    """
