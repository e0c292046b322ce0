"""Cut-offs of the network level, and what is assumed of workers that nothing measured."""

from __future__ import annotations

WORKER_MEMORY_SHARE = 0.6
"""Share of a worker's memory that blocks may take: where Dask begins to move data to disk."""

BLOCK_INSTANCES = 3
"""Copies of a moving operand's block at once: one in use, one on the way, one that is left."""

MOST_OBLONG = 4
"""How much longer than a cut letter another one of a share may be, where parts are uneven."""

CHUNKS_PER_THREAD = 4
"""Chunks of C's tile per thread of a worker, so that results leave before all are there."""

GOOD_CHUNK_BYTES = 1 << 24
"""Bytes below which chunks of C are not cut further, but for threads that have none."""

LEAST_CHUNK_BYTES = 1 << 20
"""Bytes below which they are not cut for threads either."""

ROOM_SHARES = (1.0, 0.7, 0.5, 0.3, 0.1, 0.01)
"""Shares of a worker's room that tiles are solved for, until what runs beside them fits, too."""

TILE_GROWTH = 1.25
"""Factor on the number of tiles, as long as fewer of them do not fit a worker's memory."""

ASSUMED_NETWORK_RATE = 1.2e9
"""Bytes per second into a worker where nothing measured them: ten gigabits."""

ASSUMED_WORKER_BYTES = 16 << 30
"""Memory of a worker where nothing says it."""

NETWORK_PROBE_BYTES = 1 << 26
"""Bytes that calibration moves between two workers."""

NETWORK_PROBE_PAIRS = 17
"""Transfers that calibration makes at most, the first of which does not count."""

MOST_WORKER_TASKS = 100_000
"""Tasks of one worker at most: a scheduler takes a millisecond for each."""

MOST_GRIDS = 8
"""Grids of workers that tiles are solved for, where others score about as well."""

SNAP_SHARE = 0.06
"""Share of a tile by which it may be longer so that it ends where chunks of operands do."""

SLIVER_SHARE = 0.25
"""Share of the longest chunk of an operand below which blocks do not end where a chunk does."""

LEAST_PIECE = 256
"""Length of a class that a step computes at once, else blocks are put together of their pieces."""

ALTERNATIVES = 4
"""Divisions whose bytes and memory are counted for the chunks that operands have."""

MOST_ROOMS = 6
"""Rooms that tiles are solved for before blocks are said not to fit beside chunks of operands."""

ROOM_STEP = 0.8
"""Factor on that room, at most, as long as what lies beside tiles does not fit."""

TASK_SECONDS = 1e-3
"""Time that a task takes beside what it computes."""

WORKER_CODE_BYTES = 160 << 20
"""Memory of a worker's process beside its blocks: modules, machine code and messages."""

SPILL_SHARE = 0.7
"""Share of a worker's memory that its process takes before Dask writes data to files."""
