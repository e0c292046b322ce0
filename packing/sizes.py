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
