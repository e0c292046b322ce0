"""Checksums that a document carries: whether it still says what it said when it was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def checksum_of(document: Mapping[str, Any]) -> str:
    """Return a checksum of what a document says, whatever the order of its entries.

    It tells changes and damage; anybody can make one.

    Examples
    --------
    >>> checksum_of({"a": 1, "b": [2.5]}) == checksum_of({"b": (2.5,), "a": 1})
    True
    >>> len(checksum_of({}))
    16
    """
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
