"""Cut-offs of nests, pipelines and networks: what is looked at, and from which sizes on."""

THESIS_MISS_COSTS = (1.0, 3.5)
"""What misses of the first and the second cache cost where a nest is planned as the thesis does."""

LATER_LINE_SHARE = 0.25
"""Share of a run's first line that each further one is taken to cost, where no start is known."""

LATER_CACHED_LINE_SHARE = 0.5
"""The same of a run in the last cache, whose latency loads hide in part."""

FAR_LEVELS = 2
"""Levels, from memory inwards, where first lines of runs are waited for."""

FOLLOWED_ROWS = 8
"""Rows that a sum reads in turn up to which hardware follows each of them."""

NEST_WHOLE_EXTENT = 8
"""Extent up to which a letter gets no tile where a nest has many letters."""

GROUP_SHORT_EXTENT = 4
"""Extent up to which a letter of a stage of a group is written out within each vector: channels."""

ASKED_ELEMENTS = 2**16
"""Elements up to which NumPy is asked about a call, while a function is traced, as it is."""

ASKED_EXTENT = 5
"""Elements along an axis of arrays that stand for larger ones where NumPy is asked, about."""

NEST_CONTRACTION_FLOPS = 2**22
"""Operations from which on a statement that is a contraction is left to a plan."""

NEST_COMPARED_FLOPS = 2**16
"""The same from which on a plan may compute it, if it is predicted to take less time than loops."""

NEST_NARROW_TERMS = 64
"""Terms of a sum from which on it is computed in a narrow dtype, and then cast."""

NEST_FACTORS = 4
"""Elements of a product up to which a sum of it is looked at as sums of products of fewer."""

NEST_PANELS = 8
"""Into how many panels a letter is cut where a condition couples it to another."""

NEST_BLOCKS = 512
"""Blocks of a region that are looked at, at most."""

NEST_BLOCK_KINDS = 16
"""Different blocks from which on a region is left to loops: each is planned and compiled."""

NEST_LOOPS_GAIN = 1.05
"""How many times as long as loops blocks of a region may be predicted to take, and compute it: what
plans cost is measured."""

NEST_OPERATIONS = {
    **{"true_divide": 12, "divide_by_number": 6, "pick_bytes": 10, "sqrt": 26, "hypot": 30},
    **{"exp": 40, "exp2": 35, "tanh": 50, "sigmoid": 60, "silu": 60, "gelu_tanh": 90, "gelu": 230},
    **{"log": 60, "log2": 70, "log10": 70, "log1p": 80},
    **{"sin": 80, "cos": 80, "tan": 100, "arctan2": 80, "power": 500},
    **{"minimum": 4, "maximum": 4},
}
"""As how many additions each of these takes, about: measured with float64 in the first cache.

Extremes are those of floating-point numbers, which keep what is no number. Numbers that are divided
by have reciprocals to multiply by, and bytes are picked out of a table in registers."""

NEST_SINGLE_OPERATIONS = {
    **{"tanh": 35, "sigmoid": 34, "silu": 44, "gelu_tanh": 58, "gelu": 38, "sqrt": 19, "hypot": 60},
    **{"exp": 28, "exp2": 25, "log": 51, "log10": 60, "log1p": 68, "power": 355},
    **{"sin": 40, "cos": 40, "arctan2": 58},
}
"""The same of float32, where it is another number."""

NEST_WHOLE_UPDATE_SHARE = 0.6
"""Of the time of an update that is left where it is of a whole number."""

NEST_UPDATE_ADDITIONS = 4
"""As many additions as an update takes that waits for the last one of the same element: a store and
a load are between."""

NEST_SEVERAL_CALLS = 5
"""As many calls of one result as one of several takes: 1.1 µs for 0.2."""

STAGE_PARTS = 64
"""Parts of a statement between borders that it is cut into, at most."""

NEST_PERIOD_PIECES = 27
"""Pieces of a statement with periodic positions, at most: a stencil in three dimensions has as many
with a neighbour on each side."""

NEST_TASKS_PER_THREAD = 2
"""Blocks of a region with elements of their own, for each thread, from which on each block is left
to one of them."""

NEST_CAP_ROUNDS = 3
"""How often the relaxed tiles are solved for with limits of heights of the tiles before."""

NEST_REPAIR_LINES = 2
"""How many steps around the relaxed tiles are tried in each letter."""

NEST_REPAIR_RATIO = 2.0
"""By how much relaxed tiles are made larger and smaller at most before that, letters together."""

NEST_REPAIR_TILES = 1_000
"""Tiles that are looked at for that in a round, about."""

NEST_HELD_ROWS = 6
"""Rows of the output that a nest's innermost loops keep in registers."""

NEST_HELD_VECTORS = 2
"""Vectors of each of these rows."""

NEST_LONE_VECTORS = 8
"""Vectors of sums of columns that are held at once, and registers that are left where all are."""

NEST_CROSSED_BYTES = 4
"""Bytes of an element from which on loops may move an array, as transposes do: blocks of shorter
ones take them up to five times as long."""

NEST_WALK_CALLS = 5
"""Calls of statements that a transpose's walk takes as long as to begin: 0.95 µs for 0.2."""

NEST_SHARED_ROWS = 4
"""Rows of a stencil that are computed at once, so that what several of them read is loaded once."""

LONG_EXTREMES, EXTREME_CHECKS = 6, 2
"""Numbers from which on their extreme is found without a look at each for NaN: two of them are
looked at at once beside it. And how many such looks wait for no other one."""

NEST_WRITTEN_PARTS = 1024
"""Parts of a term, of all rows together, up to which rows are written out: more runs no faster."""

PIPELINE_INLINED_STAGES, PIPELINE_INLINED_ROWS, PIPELINE_INLINED_OPERATIONS = 4, 8, 24
"""Stages that may all be computed where the last one reads them, at most, its rows at once, and as
many additions as a point may take: more are computed once, and kept."""

NEST_SPARE_REGISTERS = 2
"""Vector registers that blocks of windows leave free."""

NEST_BLOCK_TAPS = 700
"""Taps of a block of windows at most, all of which are written out: code takes a second then."""

NEST_STEP_SHOWN = 0.25
"""Share of the usual that shows of other levels' time beside windows whose sums are in step: they
wait for nothing, and loads are known long before."""

NEST_UNEVEN_SHARE = 1.05
"""The most that the busiest thread may have, in even shares, for threads to divide a letter that is
outermost in place of one farther in."""

NEST_LONE_POINT = 2
"""How many times as long as its loads a point of a window takes that is computed by itself."""

NEST_SUMMED_VECTORS = 2
"""Vectors of a sum's letter from which on a nest's vectors lie along that, where several rows could
share vectors of the output's last one: the lanes of each sum are put together in the end."""

NEST_LONE_ROWS_GAIN = 1.1
"""How many times as long as several rows of a sum at once single ones may be predicted to take, and
be taken: hardware follows one row better than several, which prices have only within pages."""

NEST_ROWS_GAIN = 1.15
"""How much larger than along other letters a thread's share of rows of windows may be: works before
and behind divide rows, too, and what changes cores takes longer."""

NEST_ENUMERATED_LETTERS = 3
"""How many letters may have tiles for all tiles to be tried."""

NEST_ORDER_PAIRS = 24**2
"""Pairs of orders of loops up to which all are compared."""

NEST_SHORT_ROW_VECTORS = 64
"""Vectors of a row up to which rows that lie one behind another are computed as one row."""

NEST_REGION_POINTS = 64
"""Points of a grid, along all letters of a region together, that tell what share it is."""

KEPT_REGIONS = 64
"""Computations whose regions are remembered: each choice of their loops asks for the same ones."""

PIPELINE_TERM_PARTS = 512
"""How many parts a term may have that others are put into."""

PIPELINE_COPIES = 8
"""Stages that differ only in where they begin to read from which on one stage has all of them."""

PIPELINE_PARTS = 16
"""Parts between borders that a stage may have that others are put into."""

PIPELINE_TILED_EXTENT = 32
"""Extent of a letter up to which stages that run together get no tiles of it."""

PIPELINE_ROWS = (2, 4)
"""Rows of a stage that may be written out around each vector where stages run together."""

PIPELINE_BANDS = (4, 8, 16, 32, 64, 128)
"""Rows of bands in which contractions run with the stages that they read and that read them, each
tried as long as it costs less than the one before."""

PIPELINE_APART_GAIN = 1.5
"""How many times what they cost one by one stages may cost together and run so: groups that gain
are priced up to 1.28 times as dear, and those that lose 1.9 times and more."""

PIPELINE_LOAD_WEIGHTS = ((32 * 1024, 1), (256 * 1024, 10), (None, 25))
"""In the thesis's mode, what a load costs of what takes so many bytes; without a number, of what
the last cache holds."""

PIPELINE_BALANCE = 40
"""What it costs of all else."""

PIPELINE_HALVINGS = 8
"""In the thesis's mode, how many tiles of a letter are tried, each half of the one before."""

PIPELINE_LEAST_COLUMNS = 128
"""In the thesis's mode, columns that tiles have more than, where there are twice as many."""

PIPELINE_LAST_CACHES = 2
"""How many times the last cache the buffers of stages may take that run together."""

NEST_CROWD_RATIO = 4
"""How many times its lines a box may have for a look at the sets of a cache; with more, it does not
stay."""

# Networks

NETWORK_GROWTH_BYTES = 1 << 20
"""By how much a constant that is computed once may be larger than what it is computed of."""

NETWORK_JOINED_NODES = 8
"""How many operators of a network one pipeline has at most."""

NETWORK_KEPT_PROGRAMS = 4
"""Programs of one model that are kept: one for the shapes of each of the last calls."""

GROUP_TAPS = 100
"""Taps of a window, over all channels of a group, up to which a layer of groups is a statement."""

GROUP_FILTERS = 4
"""Filters of a group of several channels from which on such a layer is one where channels are last:
vectors are of them."""

NETWORK_ALONE_PLANS = 2
"""Plans of a network's layers that are solved before other cores help: one takes 50 to 500 ms, a
copy of the process some 20."""

NEST_HELPED_PROGRAMS = 4
"""Programs without code from which on other cores help to make it: one takes 30 to 100 ms."""

NETWORK_ARENA_GROWTH = 1.3
"""How many times the bytes that are needed at once an arena may have so that threads write where
they wrote before."""

NETWORK_SHAPE_BYTES = 4096
"""Bytes of a model's array up to which its numbers may decide shapes of others."""

NETWORK_MOST_EXTENTS = 64
"""How many numbers an array has at most whose arithmetic is looked at for an overflow: it may be a
shape."""

NETWORK_SHARED_SECONDS = 5e-6
"""Predicted seconds of a network's work from which on several threads share it, those counted that
its code takes to come: of 2 µs of computing, to see that others are done, and to read what they
wrote, is a tenth and more."""

NETWORK_SHARED_ZEROS = 1 << 14
"""Bytes of zeros around images from which on each thread writes those that it reads later: lines
that change cores take longer than to tell others of a stage."""

WINOGRAD_CROSSING_SHARE = 0.05
"""By which share longer bands of Winograd that threads have each for themselves may be predicted to
take than those they share: the matrices of these go from core to core, which prices do not have."""
