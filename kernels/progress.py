"""How long work says how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Told the fraction that is done, and what is being done."""


def silent(fraction: float, what: str) -> None:
    """Tell nobody.

    Examples
    --------
    >>> silent(0.5, "half of it")
    """
