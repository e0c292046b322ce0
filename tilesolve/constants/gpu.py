"""Cut-offs of plans for GPUs, and what is assumed of their kernels."""

from __future__ import annotations

CHUNK_BYTES = 16
"""Bytes that a thread copies to shared memory at once, at most."""

MOST_ELEMENTS = 2**31 - 1
"""Elements of a tensor: kernels count them in 32 bits."""

BLOCK_SIDES = (16, 32, 64, 128, 256)
"""Rows and columns of C that a block of threads may compute."""

LEAST_SIDE = 64
"""Rows and columns that a block computes at least, of a product that has as many."""

LEAST_WARP_SIDE = 32
"""Rows and columns that a warp computes at least, of a block that has as many."""

WARP_COUNTS = (1, 2, 4, 8)
"""Warps that rows, or columns, of a block are divided among."""

MOST_WARPS = 16
"""Warps of a block."""

GROUP_COUNTS = (1, 2, 4)
"""Groups of four warps that rows, or columns, of a block are divided among."""

LEAST_GROUP_COLUMNS, MOST_GROUP_COLUMNS = 16, 256
"""Columns of an instruction of a group of four warps."""

GROUP_COLUMNS = (16, 32, 64, 96, 128, 192, 256)
"""Columns of C that a block of groups may compute."""

GROUP_STAGES = (4, 3, 5)
"""Copies of tiles in shared memory where groups multiply, which have two of them in use."""

DEPTH_BYTES = (64, 128)
"""Bytes of a row that tiles in shared memory may have along the sum."""

STAGES = (4, 3, 5, 2)
"""Copies of tiles in shared memory where a device copies asynchronously; of equally fast ones the
first."""

WAITED_STAGES = (2,)
"""Copies where threads copy through registers."""

PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Parts that the sum may be divided into."""

LEAST_PART = 128
"""Steps of the sum that a part has at least."""

GROUPS = (1, 2, 4, 8, 16, 32)
"""Rows of tiles that blocks go down before they go on to the next columns."""

OTHER_REGISTERS = 40
"""Registers of a thread beside sums and fragments: places, steps, and what is worked out."""

FMA_DEPTHS = (8, 16)
"""Steps of the sum that tiles have where FMAs multiply, which are unrolled."""

FMA_REGISTERS = 28
"""Registers of a thread that assemblers take besides where FMAs multiply, for loads ahead."""

CHUNK_REGISTERS = 3
"""Registers of a thread for each chunk that it copies of a tile."""

CHUNK_INSTRUCTIONS, BOX_INSTRUCTIONS = 8.0, 14.0
"""Instructions of a warp for a chunk that each lane copies, and for a box that one has fetched."""

REACH_RATIO, GROUP_REACH_RATIO = 4.0, 16.0
"""Factors up to which tiles that are priced differ from those of the program: of warps, of groups.
"""

BUSY_FRAGMENTS = 4
"""Products of a warp at once that keep a quarter of a multiprocessor's tensor cores busy."""

QUARTERS = 4
"""Parts of a multiprocessor, each with tensor cores and a scheduler of its own."""

CANDIDATES = 24
"""Tilings whose order of blocks is chosen, and that are assembled until one does not spill."""
"""The best ones by price."""

EMULATED_SECONDS = 600.0
"""After which emulation on a CPU is ended."""

EMULATED_POISON = 0xA5
"""What bytes between kernels are there before one writes them."""

STEP_CYCLES = 12.0
"""Cycles of a block for each step over shared memory, beside what is copied and multiplied."""

FETCH_SHARE = 0.25
"""Share of the first load's latency that each further step takes, for each stage ahead."""

PART_LAUNCHES = 1.8
"""Launches that adding up parts of sums takes the time of, beside its bytes."""

CHANNELS = 4
"""Values of a letter that each thread of a pipeline's kernel walks by itself, at most."""

UNROLLED_STEPS = 8
"""Steps of a sum within a stage that are written out."""

TILE_WIDTHS = (16, 32, 64, 128, 256)
"""Values side by side that a block computes of a pipeline's stage."""

TILE_HEIGHTS = (1, 2, 4, 8, 16, 32, 64)
"""Rows of them."""

POINT_SHARES = (1, 2, 4, 8)
"""Points of the largest stage that a thread computes."""

STAGE_REGISTERS = 64
"""Registers of a thread of a pipeline's kernel, where no assembler counts them."""

LEAST_OCCUPANCY = 0.1
"""Share of a multiprocessor's warps that blocks of a group have at least (chapter 6)."""

BUSY_WARPS = 16
"""Warps of a multiprocessor that keep its arithmetic and loads busy."""

BARRIER_CYCLES = 60.0
"""Cycles of a block for each barrier."""

POINT_OPERATIONS = 8.0
"""Operations for each point of a stage, for its place and whether it is one."""

TRIED_KERNELS = 4
"""Kernels of a group that are assembled until one does not spill, the best ones by score."""

FIRST_ASSEMBLED = 75
"""The compute capability from which on NVIDIA's assembler makes code."""

THESIS_L2_COST = 200.0
"""Operations that a load from outside costs at most, in the costs of chapter 6."""

THESIS_FOOTPRINT = 65536
"""Bytes of an array that add as much to the one operation that a load of it costs."""

THESIS_TRANSACTION = 64
"""Bytes side by side that one load of a warp has there."""

THESIS_OCCUPANCY = 0.2
"""Least share of warps of groups of fewer stages than the next number, there."""

THESIS_STAGES = 3
"""Stages of a group from which on the occupancy may be less."""
