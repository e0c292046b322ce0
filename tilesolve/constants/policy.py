"""Cut-offs of the search: which times count as equal, what is worth a look, how far to look.

They are shares, ratios and counts of candidates, the same on every machine; what a CPU costs is in
`tilesolve.machine.costs`. What stands behind the numbers is in
``docs/decisions/020-search-cut-offs.md``.
"""

from __future__ import annotations

# What counts as equal
TIE_WEIGHT = 0.01
"""Weight of the mean of all times beside the longest: it settles what the longest leaves open."""

TIME_TOLERANCE = 0.02
"""Relative difference of two times up to which the plans count as equally fast."""

DEFAULT_TILE_SHARE = 0.8
"""Share of the default register tile's cycles from which on a better one is judged by its plan."""

RAGGED_CONCESSION = 0.005
"""Share of a plan's time that is given up for tiles that cut a sum's letters evenly."""

SOLVER_TOLERANCE = 1e-3
"""Relative difference that IPOPT's answers and rounded tiles do not resolve."""

ROUNDING = 1e-6
"""Relative difference that rounding makes between numbers that are the same otherwise."""

CONSTANT_ROUNDING = 1e-9
"""Relative difference that rounding makes in constraints without variables."""

EXACT_ROUNDING = 1e-12
"""Relative difference that rounding makes between sums of the same terms."""

ROUND_GAIN = 1e-4
"""Relative gain of a round of the integer search from which on another round is taken."""

PAGE_VISIT_TOLERANCE = 0.05
"""Relative difference of page visits up to which loops keep the order of the first tensor."""

# What is worth a look
IDLE_SHARE = 0.15
"""Share of the longest time below which a level's time is not minimised further."""

SHORT_RUN_SHARE = 0.02
"""Share of a plan's time that ends of runs may cost before a runner-up is looked at."""

LATE_SHARE = 0.055
"""Share of a plan's time that late lines may cost before other tiles are solved for, and that those
must spare."""

SHORT_RUN_LIMIT = 0.2
"""Share of the arithmetic's time above which reading makes smaller tiles worth a look."""

SCATTERED_WRITE_SHARE = 0.4
"""Share of the arithmetic's time above which C should be written in long runs."""

IN_PLACE_LIMIT = 1.1
"""Slowdown up to which small problems are expected to read both operands in place."""

WHOLE_LINES_SHARE = 0.5
"""Share of a cache that tiles may need at most for whole lines, or for long runs, of all tensors.
"""

EDGE_WASTE_POWER = 0.25
"""Power of the waste by size and by edges, outside the register tile, beside that by lines."""

RUN_PAGE_VISITS = 3
"""Visits to pages that a run of an operand counts as where the TLB does not hold a tile's pages."""

PASSING_TILES = 16
"""Register tiles of rows that pass by the same columns, when register tiles are compared."""

PACK_CROSSINGS = 3
"""Times a packed byte crosses each level up to its copy: source in, copy out, copy in."""

WHOLE_SUM_PASSES = 1.5
"""Passes over C of which fewer count as one, in which sums of halves are whole: tiles are means."""

FAST_SHARE = 0.85
"""Share of the fastest microkernel's rate from which on schemes are composed of a microkernel."""

LONG_SUMS_SHARE = 0.4
"""Share of all schemes, those with the longest sums in a call, whose volumes are compared."""

DIVIDED_EXTENT = 32
"""Iterations of a letter of C for each thread from which on threads divide no sums of layers."""

PARTIAL_OUTPUTS_SHARE = 0.25
"""Bytes of partial outputs where threads divide a sum, at most, as a share of the operands'."""

# How far to look
MOST_COMBINATIONS = 3
"""Combinations of two microkernels that schemes are completed for, for each class and letter."""

MOST_MICROKERNELS = 6
"""Combinations of microkernels that are completed, of all classes and letters."""

MOST_SPLITS = 2
"""Letters that threads may divide in schemes, the longest ones."""

MOST_COMPLETIONS = 600
"""Completions of a permutation that are compared; with more, fewer divisors are."""

FEW_COMPLETIONS = 60
"""Completions by which permutations are compared."""

MOST_SCHEMES = 16
"""Schemes that are priced: of those with long sums, the ones that move least."""

LEAST_CALL_PRODUCTS = 192
"""Products that a call's sum is not cut below where sums are cut shorter."""

MOST_CALL_PRODUCTS = 512
"""Products that a call sums at most, where register tiles are compared and C is not added to."""

ACCUMULATORS_GAIN = 0.05
"""By what share a register tile that was not measured must have more accumulators in use than the
default one, to be taken instead."""

LEAST_ACCUMULATORS_SHARE = 0.6
"""Of the default register tile's accumulators: those of one that was not measured and that writes
C in long runs."""

MOST_DEFAULT_COLUMNS = 12
"""Columns of a register tile that was not measured: as many as registers have addresses of."""

RUN_BYTES = (16384, 8192, 4096, 2048, 1024)
"""Bytes of C that a tile should write side by side, the first for which there is room."""

TRANSPOSED_RUN_BYTES = (256, 64)
"""Bytes of C that a tile should write side by side where register tiles are
transposed, the first for which there is room."""

SHRINK_FACTORS = (1.0, 0.95, 0.9, 0.8, 0.65, 0.5, 0.3)
"""Multiples of the continuous tiles that are tried: whole ways and lines may need less."""

GROWTH_FACTORS = (1.25, 1.7, 2.5)
"""Multiples that are tried as well: limits keep room that an exact price may not need."""

EVEN_RANGE = (0.75, 1.5)
"""Multiples of an index's best tile between which tiles are tried that cut its letters evenly."""

INTERIOR_STEPS = 80
"""Newton steps of the interior point at most."""

INTERIOR_PROOF_STEPS = 3
"""Newton steps after which it is looked whether all sizes are proved to cost too much."""

INTERIOR_GAP = 1e-8
"""What its products of slacks and multipliers may add up to, relative to the objective."""

INTERIOR_LEAST_GAP = 1e-9
"""What they are to add up to at least: with less, limits that are missed hold back all steps."""

INTERIOR_RESIDUAL = 1e-7
"""What its equations of optimality and its limits may miss, each relative to its terms."""

INTERIOR_REACH = 0.99
"""Share of the way to the nearest bound that one of its steps may go."""

INTERIOR_SHARES = (0.1, 0.4)
"""Share of the gap that it aims at: where the last step was nearly whole, and else."""

INTERIOR_WHOLE_STEP = 0.9
"""Share of a step from which on it is nearly whole."""

INTERIOR_INSIDE = 1e-2
"""Share of its range that a variable keeps from its bounds in the beginning."""

INTERIOR_SLACK = 0.1
"""What limits have left in the beginning, at least, as if those that are missed were met."""

INTERIOR_ENDLESS = 1e30
"""What bounds the longest time."""

START_SHARES = (0.3, 0.05, 0.7, 0.5, 0.15)
"""Where solvers start between the smallest tiles and the whole problem, in logarithms."""

STARTS = 3
"""Points that solvers start from where the program is not convex, and tensors outgrow the second
cache."""

ROUNDED_OPTIMA = 4
"""Continuous optima that are made integer at most."""

LATE_OPTIMA = 3
"""Optima that are made integer of a program as if lines waited."""

SCREENED_CHOICES = 2
"""Choices of loops beside the best one that are solved for the sake of its shorter times."""

TILINGS_AT_ONCE = 3_000
"""Tilings that are priced at once; with more, the indices take turns."""

BOXES_AT_ONCE = 1 << 15
"""Boxes that are compared at once: there are 2²⁰ for a class of twenty letters of extent 2."""

MOST_PARTS = 4096
"""Parts of a letter that are considered where it is cut evenly."""

WHOLE_EXTENT_RATIO = 1.5
"""Up to how many times a tile's size an extent may be for the whole one to be tried."""

MOST_REGISTERS = 32
"""Vector registers that register tiles take at most: kernels address no more."""

MIN_NEAREST_TILES = 32
"""Register tiles that the nearest tile has at least, if the loop around it can go on in it."""

SIDES_PER_LETTER = 24
"""Sides of a box that are considered for one letter."""

EVEN_ITERATIONS = 1 << 14
"""Iterations of the largest even box of a sum that is considered: calls sum fewer products."""

MOST_EXPONENTIALS = 10_000
"""Exponentials that a function of a Pyomo model may multiply out to."""

HELPERS = 7
"""How many copies of a process plan or compile beside it at most."""

# When the main thread leaves work to others
LONG_SECONDS = 0.02
"""Predicted seconds of a call from which on the main thread leaves it to others, so that it hears
interrupts."""

BRIEF_SECONDS = 1e-5
"""Predicted seconds of a nest below which a call keeps Python's lock: to let go of it and take it
again costs a small one a tenth of its time."""

LONG_COPY_BYTES = 1 << 26
"""Bytes of a transposed copy from which on the main thread does so."""

TRANSPOSE_GROUP_GAIN = 1.05
"""How much more work per row is worth a smaller staging buffer of a transpose."""

# Times

EPILOGUE_OPERATIONS = {
    "float32": {"sigmoid": 34, "tanh": 35, "gelu": 38, "silu": 44, "gelu-tanh": 58},
    "float64": {"sigmoid": 50, "tanh": 50, "gelu": 130, "silu": 60, "gelu-tanh": 95},
}
"""As how many additions each of these takes in an epilogue, about, beside a plain step: measured in
the first cache. Those of halves are in single precision."""

NEAR_START_RAMP = (1.0, 1.25)
"""How many times a near cache arrays may take until part of them, and until all, is no longer there
when they are asked for in turn."""

LAST_START_RAMP = (0.5, 1.6)
"""The same of the last cache, which others use, too, and which drops no line because it was used
longest ago."""

LAST_WRITTEN_RAMP = (0.3, 0.75)
"""The same of an array that is written: what changed leaves that cache sooner."""

START_TOUCHED_SHARE = 0.5
"""Of what a work touches of an array, the share that earlier ones touched if it is in caches."""

# What is written past the caches, and prefetched

ALIASED_STORE_LIMIT = 1.25
"""Slowdown by aliased non-temporal stores from which on C goes through the caches."""

PREFETCH_GAIN_LIMIT = 0.98
"""Time of short calls that prefetch rows of C, relative to others, up to which they do."""

FEEDING_RATIO = 1.4
"""Bandwidth of a cache relative to a register tile's need, from which on it feeds it."""

ALIASED_PAGES_RATIO = 2.0
"""Lines with 4 KiB aliasing that evict each other, relative to those that stay."""

PREFETCHED_WAIT_SHARE = 0.5
"""Share of the wait for a late line that is left where a plan prefetches it."""

PREFETCH_LINES_PER_PAGE = 8
"""Lines of a page from which on hardware helps to prefetch a block."""

PREFETCH_LEAST_SHARE = 0.05
"""Share of a block's arithmetic that reading it takes, below which none is prefetched."""

# Transposes
TRANSPOSE_NEAR_SHARE = 0.25
"""Share of a near L3 for source and target of a transpose."""

TRANSPOSE_LAST_SHARE = 0.5
"""Share of any other last cache for them."""

TRANSPOSE_RUN_BYTES = 2048
"""Run of the target in a tile, about."""

TRANSPOSE_LONG_RUN_BYTES = 1 << 15
"""Run at most that holds all rows of a tile."""

TRANSPOSE_TILE_BYTES = 1 << 20
"""Bytes of a tile, about."""

TRANSPOSE_STAGING_BYTES = 5 << 12
"""Rows in the staging buffer, about."""

TRANSPOSE_SOURCE_BYTES = 1 << 14
"""Rows that share lines of the source and stay in L1."""

TRANSPOSE_GROUP_BYTES = 512
"""Rows transposed at once without a staging buffer, about."""

TRANSPOSE_ELEMENT_BYTES = 128
"""Elements that stay together, from which on none is staged."""

TRANSPOSE_ALIASED_LINES = 4
"""Lines of a set that the source may have for each way of L2, or else of L1."""

TRANSPOSE_BLOCK_LINES = 8
"""Side of a block, in lines, whose lines have 4 KiB aliasing and stay in L1."""

# Einsum: the route of a contraction
EINSUM_LOOP_PRODUCTS = 1 << 13
"""Products up to which numpy's loops are fastest."""

EINSUM_KERNEL_FLOPS = 1 << 22
"""Flops of a matrix product from which on plans are as fast as BLAS."""

EINSUM_PLAN_FLOPS = 1 << 27
"""Flops of a matrix product from which on a call of einsum plans it."""

EINSUM_LAYOUT_FLOPS = 1_000_000_000
"""Flops of two planned steps from which on layouts between them are compared."""

EINSUM_TRANSPOSE_BYTES = 1 << 22
"""Bytes of a transposed copy from which on numpy does not make it."""

EINSUM_BATCH_EXTENT = 8
"""Batches that come last, from which on they are transposed to the front."""
