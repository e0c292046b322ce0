"""Sizes that memory comes in: words, cache lines and pages, and what buffers owe to them."""

from __future__ import annotations

WORD_BYTES = 8
"""Bytes of an address, and of an entry of any table."""

LINE_BYTES = 64
"""Bytes of a cache line, and of the widest vector."""

PAGE_BYTES = 4096
"""Bytes of a small page."""

HUGE_PAGE_BYTES = 1 << 21
"""Bytes of a huge page; smaller buffers do not get one."""

ALIGNMENT_BYTES = LINE_BYTES
"""Buffers begin at a multiple of it."""

GUARD_BYTES = LINE_BYTES
"""Bytes that a buffer has behind its packed copy, so that vectors may reach beyond its end."""

PANEL_GAP_BYTES = LINE_BYTES
"""Bytes between two micro-panels whose size is an even number of lines: they begin in different
sets of a cache then."""

VECTOR_BYTES = 16
"""Bytes of the smallest vector."""

MAX_IDLE_WORKSPACE_BYTES = 1 << 28
"""Bytes of workspace that a thread keeps between runs at most."""

MAX_OVERLAP_PROOF_STEPS = 10_000
"""Effort of NumPy to prove that two arrays share no element before they count as overlapping."""


def panel_bytes(sums: int, step_bytes: int) -> int:
    """Return the bytes from one micro-panel to the next, given those of one step of k.

    Examples
    --------
    >>> panel_bytes(10, 64), panel_bytes(9, 64)
    (704, 576)
    """
    size = sums * step_bytes
    return size + PANEL_GAP_BYTES * (size % (2 * PANEL_GAP_BYTES) == 0)


def packed_bytes(panels: int, batches: int, sums: int, step_bytes: int) -> int:
    """Return the bytes that a packed copy takes at most, the guard behind it not counted.

    Parameters
    ----------
    panels
        Micro-panels of one batch.
    batches
        Batches.
    sums
        Steps of k of a micro-panel.
    step_bytes
        Bytes of one step.

    Examples
    --------
    >>> packed_bytes(2, 1, 10, 64)
    1408
    """
    return panels * batches * (sums * step_bytes + PANEL_GAP_BYTES)


def buffer_bytes(copy_bytes: int) -> int:
    """Return the bytes of a buffer for a packed copy: with its guard, up to the next buffer.

    Examples
    --------
    >>> buffer_bytes(1000)
    1088
    """
    size = copy_bytes + GUARD_BYTES
    return size + -size % ALIGNMENT_BYTES
