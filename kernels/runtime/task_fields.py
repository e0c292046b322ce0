"""Fields of a task list: the slots of a thread, and the instructions that refer to them.

An operand of an instruction is a slot and what is added to it: an address in an array, one in
the thread's memory, the word of a number, or a constant.
"""

from __future__ import annotations

# Slots

ZERO = 0
"""Always 0: operands that refer to it are constants."""

STOP = 1
"""Address of the word that ends the run once it is not 0."""

FAILED = 2
"""The number of the check that failed in a program, 0 for none; then the position that it found."""

FAILURE = 4
"""Address of `FAILED`."""

NEXT = 5
"""The task that is taken next, where one thread takes all."""

SHARED = 6
"""Address of the arrays between statements, which all threads see."""

OWN = 7
"""Address of the arrays between the instructions of a task."""

SCRATCH = 8
"""Address of what an instruction needs itself: words, packed copies, buffers."""

GIVEN = 9
"""Addresses of the arrays that a call is given, then the words of its numbers."""

# Fields of an instruction

KIND = 0
"""`PROGRAM`, `PRODUCT`, `MOVE` or `CLEAR`."""

LENGTH = 1
"""Words of the instruction."""

OPERANDS = 2
"""A slot and a number for each operand; the first one is the address of the code."""

# Kinds of instructions, and their operands

PROGRAM = 0
"""A part of a loop program: code, part, parts. Behind them are `PATCHES`."""

PRODUCT = 1
"""A part of a contraction: code, what it is told (`call_fields`), output, both operands, workspace,
the parts of both factors as words of doubles, how many operands the epilogue has, and these."""

MOVE = 2
"""A part of a copy in another order: code, walk, target, source, buffer, the first trip of the
outermost loop and the one to stop before."""

CLEAR = 3
"""Zeros: no code, address, words."""

PATCHES = 8
"""Of a program, how many words of its call are operands; then how many words the call has; then for
each operand the word, the slot and what is added; then the words."""

PATCH_WORDS = 3

# What threads know of a stage that they run together

STAGE_TASKS = 0
"""Address of the addresses where its tasks begin, and where the last one ends."""

STAGE_COUNT = 1
"""How many tasks it has."""

STAGE_TAKEN = 2
"""Address of a word for each task, not 0 once a thread has taken it."""

STAGE_DONE = 3
"""Address of the number of tasks that are done."""

STAGE_WORDS = 4

# What a team shares

TEAM_SIZE = 0
"""How many threads there are."""

TEAM_BROKEN = 1
"""Not 0 once a task has failed."""

TEAM_YIELD = 2
"""Address of a function that lets other threads run."""

TEAM_CLOCK = 3
"""Address of the system's `clock_gettime`."""

TEAM_TIMES = 4
"""Where the first thread writes when it began, and when each stage ended; 0 for nowhere."""

TEAM_WORDS = 5

TIME_WORDS = 2
"""Words of a time: seconds and nanoseconds."""

MONOTONIC = 1
"""The number of the clock that Python's `perf_counter` reads, too."""

# What a call that a guard knows is told

TASKS = 0
"""Address of the addresses where tasks begin, and where the last one ends."""

TASK_COUNT = 1

STOP_ADDRESS = 2
"""What `STOP` is."""

SHARED_BYTES = 3
"""Bytes from the workspace's beginning to `SHARED`; behind the slots."""

OWN_BYTES = 4
"""Bytes to `OWN`."""

SCRATCH_BYTES = 5
"""Bytes to `SCRATCH`."""

ARRAY_COUNT = 6
"""How many arrays the call is given."""

NUMBER_COUNT = 7
"""How many numbers."""

TEAM = 8
"""Address of what its team begins with: `TEAM_WORDS`, then the stages, where `STAGE_TAKEN` and
`STAGE_DONE` are bytes from the beginning of the marks; 0 where one thread runs all tasks."""

STAGES = 9
"""How many stages the team runs."""

MARKS = 10
"""Words of the team's marks."""

TEAM_BYTES = 11
"""Bytes from the workspace's beginning to the team; behind the slots."""

TOLD_WORDS = 12

# What threads meet at that may help with such a call

GATE = 0
"""How many threads came; plus `OPENED` once they may help, plus `CLOSED` once they may not."""

GATE_LEFT = 1
"""How many of them are done."""

GATE_TOLD = 2
"""Address of what the call is told."""

GATE_MEMORY = 3
"""Address of its workspace."""

GATE_WORDS = 4

OPENED, CLOSED = 1 << 20, 1 << 21
