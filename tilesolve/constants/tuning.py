"""Numbers that generated code, runtime code and probes are written with: the same on every CPU.

Costs of a CPU are no part of this: they are fields of `tilesolve.machine.costs.Costs`. Sizes of
lines and pages stand in `tilesolve.packing.sizes`. All are plain integers, constants to compiled
functions. The measurements behind them are in ``docs/decisions/``:
040 to 045 for generated code and probes, 05x for runtime code.
"""

from __future__ import annotations

from tilesolve.packing.sizes import LINE_BYTES, PAGE_BYTES

# Register tiles

MAX_TILE_VECTORS = 4
"""Vectors of rows in a register tile at most."""

MAX_TILE_COLUMNS = 24
"""Columns of a register tile at most: each is an address."""

BROADCAST_REGISTERS = 1
"""Registers that a microkernel needs beside its tile and its rows, for each part of an element."""

WIDE_VECTOR_BITS = 512
"""Vectors from this width on are stored slowly, and a step of k with them leaves time for
prefetches."""

# The loop over k of a microkernel

INDEPENDENT_FMAS = 8
"""FMA chains that a microkernel keeps busy: latency times rate on all CPUs known."""

UNROLLED_STEPS = 4
"""Steps of k in a trip of an unrolled loop; twice as many for narrow vectors, half as many for
complex elements."""

PREFETCHING_STEPS = 4
"""Steps of k in a trip of a narrow microkernel while it prefetches the lines of ``fetch``."""

SPARE_LOADS_PER_STEP = 1
"""Loads that a step of k leaves free for prefetches where FMAs take rows from memory."""

MAX_COLUMNS_PER_PASS = 8
"""Columns that microkernels with a halved vector multiply in one pass over the rows, at most."""

MIN_STEPS_TO_PREFETCH_C = 64
"""Steps of k from which on C is prefetched from a list of its lines, which takes time to write."""

TURNS_OF_SINGLE_TILES = 4
"""Tiles alike, along the second loop, that one call computes where those of the first loop differ:
each alone would take as long to call as a short sum."""

# Stores of C

MIN_INTERLEAVED_VECTORS = 16
"""Vectors of a register tile from which on stores of C are interleaved with the last FMAs."""

INTERLEAVED_STEPS = 2
"""Steps of k that stores of C are interleaved with."""

INTERLEAVED_STEPS_OF_3_VECTORS = 3
"""The same for register tiles of three vectors of rows."""

NEXT_PANEL_LINES = 16
"""Lines of each of the next tile's micro-panels that are prefetched before C is written by
non-temporal stores."""

# Packing and transpose kernels

PACK_PREFETCH_STEPS = 4
"""Steps of a packing kernel from the prefetch of a line to its use."""

BLOCK_PREFETCHES_PER_ROW = 2
"""Prefetches that a row of a transposed block is given."""

NON_TEMPORAL_PREFETCHES_PER_ROW = 3
"""The same beside non-temporal stores, which make CPUs drop more prefetches."""

MIN_NON_TEMPORAL_BYTES = 4
"""Bytes of the smallest part of a line that is written by a non-temporal store."""

# What runs between microkernels: the prefetch queue, packing of segments

MAX_PREFETCHES_PER_CALL = 8192
"""Addresses of lines that one call of a microkernel is given at most."""

MIN_PREFETCHES_PER_TILE = 8
"""Lines that each tile prefetches if so many are left: to list a few takes as long as to list
one."""

RESIDENT_PANEL_BYTES = 1 << 18
"""Bytes of micro-panels that are written by turns before the next ones, so that they stay in the
second cache."""

HARDWARE_STREAM_BLOCKS = 3
"""Neighbouring blocks from which on hardware prefetchers follow them."""

# The staging buffer of non-temporal stores of C

STAGING_BYTES = 3 * PAGE_BYTES
"""Bytes of C in the staging buffer at most: it shares the first cache with what is computed."""

STAGING_FLUSH_BYTES = 2048
"""Bytes of C, about, that leave the staging buffer at once."""

MIN_FLUSHED_RUN_BYTES = 512
"""Bytes of each run that leave at once, at least, where more tiles make a run longer."""

MIN_STAGED_RUN_BYTES = 1024
"""Bytes of runs from which on C goes through the staging buffer; shorter ones are written through
the caches."""

MIN_VECTORS_BEHIND_LEAD = 24
"""Vectors of a run of C from which on tiles begin at its lines, behind a first tile of fewer
rows."""

MAX_RUNS_IN_PIECES = 4
"""Runs of C in a register tile up to which they leave straight from registers in pieces of lines.
Each has a line written in part; of more runs the staging buffer makes whole lines first, if all are
whole vectors."""

MAX_STAGED_RUNS = 128
"""Runs in the staging buffer at most."""

MAX_STAGED_INDICES = 256
"""Rows, and columns, in the staging buffer at most."""

MAX_KEPT_LINES = 128
"""Runs whose last, partial line waits for the tiles that go on there, at most."""

MAX_LISTED_PARTS = 256
"""Parts of lines that wait in the staging buffer at most; more are written at once."""

STAGING_GAP_BYTES = 2 * LINE_BYTES
"""Bytes before each run in the staging buffer, and behind the last one: a line for what was kept,
and a tile's last vectors reach so far beyond its rows."""

MIN_TRANSPOSED_COLUMNS = 4
"""Columns side by side in C from which on blocks of a tile are transposed on their way there."""

# Transposes of arrays

COPY_PREFETCH_BYTES = 2048
"""Bytes ahead of a copy by non-temporal stores at which its source is prefetched: hardware
prefetchers end with a page."""

MAX_TRANSPOSED_ROWS = 256
"""Rows that are transposed at once at most."""

TRANSPOSE_FLUSH_BYTES = 1024
"""Bytes of a run, at least, that go to the target before the rest of it is transposed."""

TRANSPOSE_PREFETCH_BYTES = 512
"""Bytes ahead at which a source is prefetched where a cache does not hold that of all rows."""

TRANSPOSE_NEXT_ROWS_BYTES = 128
"""Bytes beyond the next rows at which a source is prefetched: those of the next rows come too
late."""

# Calls that are kept

MAX_KEPT_EINSUMS = 4096
"""Calls of einsum, and expressions behind them, that are kept; with more, all are forgotten."""

MAX_KEPT_CONVOLUTIONS = 1024
"""Kinds of calls of `conv` whose plans are kept; the one not used for longest goes first."""

# Probes: how bandwidth, frequency and microkernels are measured

SWEEP_BYTES = 512
"""Bytes that one trip of a sweep's loop covers; blocks are a multiple of it."""

READ_ACCUMULATORS = 4
"""Independent sums of the probe that only loads."""

CHAIN_OPERATIONS = 32
"""Dependent operations, a cycle each, in one trip of the probe of the frequency."""

CHASE_LOADS = 32
"""Loads that wait for each other, in one trip of the probe of latencies."""

PROBE_ROUNDS = 15
"""Times that each microkernel is timed; the best round counts, as others were disturbed."""

PROBE_RETRIES = 3
"""Times that microkernels are timed anew which seem faster than the arithmetic peak."""

PROBE_SECONDS = 1e-4
"""Seconds of one timing."""

PROBE_TILES = 8
"""Tiles of a timed call: the macrokernel mostly computes some dozens in one."""

PROBE_NON_TEMPORAL_TILES = 64
"""Tiles of a timed call that stores C non-temporally: a column's page has as many lines."""

PROBE_SHORT_STEPS = 16
"""Steps of k of short calls: what a call costs besides its steps."""

PROBE_LONG_STEPS = 80
"""Steps of k of long calls: together with short ones they tell what a step costs."""

PROBE_IN_PLACE_STEPS = 128
"""Steps of k where operands are read in place: as many pages as nests mostly touch."""

PROBE_PITCH_BYTES = PAGE_BYTES + 3 * LINE_BYTES
"""Bytes between the rows in place of one step and the next: their lines spread over all sets of any
cache."""

PROBE_OFFSET_BYTES = 16
"""Bytes by which rows in place miss the beginnings of lines, as NumPy's own arrays do."""

PROBE_SHIFT_BYTES = 37 * LINE_BYTES
"""Bytes that C moves on from round to round, so that not all rounds suffer from 4 KiB aliasing with
a micro-panel."""

# Tables of a run

MAX_LEVELS = 8
"""Levels of a nest at most, the register tiles included."""

MAX_TABLE_INDICES = 1 << 17
"""Indices of one role that are tabulated at once; a tile of more is walked part by part."""

MAX_LAYOUT_BYTES = 1 << 21
"""Bytes of tables that an executor keeps for arrays of other strides than the last ones; what was
not used for longest goes first."""

# Loop programs

MAX_SIZE_IN_CODE = 8
"""Extents and steps up to which code of a program has them as numbers: larger ones are arguments of
it."""

MAX_WORD_LANES = 16
"""Lanes of a mask up to which their numbers are compared as whole words; those of more are compared
as bytes."""

NEAR_VECTORS = 4
"""Vectors that may be loaded for the lanes of one; what lies further apart is gathered."""

MAX_NEAR_TABLE_BYTES = 1 << 21
"""Bytes of an array up to which each lane loads from a computed position by itself: from further
away, more loads are under way if they are those of a gather."""

UPDATE_TABLES = 4
"""Tables that updates of few elements are spread over, in turn; other updates in a trip, too."""

MAX_SPREAD_TABLE = 256
"""Elements of such a table at most: that all of them stay in the first cache."""

SPREAD_UPDATES = 16
"""Updates for each element of a table from which on tables are worth adding up."""

INDEPENDENT_SUMS = 4
"""Vectors of sums that a program adds to in a trip, where vectors lie along a summed letter."""

CHAINED_VECTORS = 4
"""Vectors that a program computes at once where functions are of one another's results: twice as
fast as one, where each has steps enough to fill the CPU's window by itself."""

ALIGNED_VECTORS = 8
"""Vectors from which on a loop that stores them begins with the part of one before a line."""

ALIGNED_BLOCK_VECTORS = 64
"""The same in each row of a block, whose code is larger: shorter ones lose as much as they gain."""

MAX_SHORT_ROW_PARTS = 24
"""Parts of a term up to which its short rows have code of their own."""

MAX_TRIPS_WRITTEN_OUT = 64
"""Trips of a loop of a program that are written out at most."""

MAX_HELD_VECTORS = 256
"""Elements or vectors of them that a program holds in registers at most: LLVM spills the rest."""

INTERRUPTED_LOOPS = 2
"""Loops of a program, from the outermost on, in whose trips an interrupt is looked for."""

UNINTERRUPTED_VECTORS = 1 << 14
"""Vectors of one such loop between two looks."""

MIN_STREAMED_ROW_BYTES = 160
"""Bytes of rows from which on a program writes them past the caches where they share lines: each
row computes its parts of them by themselves."""

ALIGNED_SUM_VECTORS = 16
"""Vectors of a row from which on a program that adds it up begins whole ones where lines do."""

MIN_STREAMED_RUN_BYTES = 1024
"""Bytes of runs from which on a program writes them past the caches, where the parts of lines at
their ends go there, too."""

MIN_CACHED_ENDS_RUN_BYTES = 4096
"""The same where these parts go through the caches: their lines are read first."""

TRANSPOSED_PREFETCH_BYTES = 4 * LINE_BYTES
"""How far ahead rows are prefetched that a program transposes in registers: the blocks that follow
read on there."""

LEAST_TRANSPOSED_ROWS = 4
"""Rows side by side, of a program, from which on they are transposed in registers, not gathered."""

PROBE_TOLERANCE = 0.01
"""By which share a microkernel may seem faster than the arithmetic peak, which was measured at
another moment. What seems faster yet is no measurement."""

TURNS_TO_YIELD = 1 << 14
"""How often a thread looks whether others are done before it lets other threads run: for some tens
of microseconds."""

COMPILED_TILINGS = 2048
"""Tilings whose traffic compiled code counts; more of them are counted at once by NumPy."""

COMPILED_POINTS = 2**53
"""Points of a nest that compiled code counts: its integers have 64 bits, those of Python any."""
