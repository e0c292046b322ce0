"""Task lists: all that a call does, as instructions; threads take one task after another.

An instruction runs a part of a loop program, of a contraction or of a transpose, on arrays that lie
where its operands say (`task_fields`). So a call of many small parts is one call of compiled code.
"""

from __future__ import annotations

from tilesolve.constants.tuning import TURNS_TO_YIELD
from tilesolve.kernels.runtime import task_fields as fields
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    add_behind,
    as_pointer,
    compiled,
    double,
    inlined,
    invoke,
    look,
    on_stack,
    result,
    take_next,
)
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES
from tilesolve.packing.sizes import PAGE_BYTES, WORD_BYTES

# What `on_stack` makes room for has to be a plain global.
_TENSORS = 3
_PLACES = 11  # and `MAX_PLACES` operands of an epilogue


@inlined
def _operand(step, s, number):
    """Return an operand of an instruction."""
    at = fields.OPERANDS + 2 * number
    return s[step[at]] + step[at + 1]


@inlined
def _run_program(step, s):
    """Run a part of a program: write the words of its call, and call it."""
    count, length = step[fields.PATCHES], step[fields.PATCHES + 1]
    patches = fields.PATCHES + 2
    words, told = as_pointer(s[fields.SCRATCH]), patches + fields.PATCH_WORDS * count
    for number in range(length):
        words[number] = step[told + number]
    for number in range(count):
        at = patches + fields.PATCH_WORDS * number
        words[step[at]] = s[step[at + 1]] + step[at + 2]
    invoke(_operand(step, s, 0), _operand(step, s, 1), _operand(step, s, 2), words)


@inlined
def _run_product(step, s):
    """Run a part of a contraction: the macrokernel finds addresses where arrays would have them."""
    places = on_stack(_PLACES)
    addresses = as_pointer(places)
    for number in range(_TENSORS):
        addresses[number] = _operand(step, s, 2 + number)
    tensor = places - OBJECT_HEADER_BYTES
    count = _operand(step, s, 10)
    for number in range(count):
        addresses[_TENSORS + number] = _operand(step, s, 11 + number)
    result(
        _operand(step, s, 0),
        _operand(step, s, 1),
        tensor,
        tensor + WORD_BYTES,
        tensor + 2 * WORD_BYTES,
        _operand(step, s, 5),
        places + WORD_BYTES * _TENSORS if count else 0,
        0,
        s[fields.STOP],
        double(_operand(step, s, 6)),
        double(_operand(step, s, 7)),
        double(_operand(step, s, 8)),
        double(_operand(step, s, 9)),
    )


@inlined
def _run_move(step, s):
    """Run a part of a transpose; its buffer begins with a page, which stores should not cross."""
    places = on_stack(_TENSORS)
    addresses = as_pointer(places)
    addresses[0], addresses[1] = _operand(step, s, 2), _operand(step, s, 3)
    buffer = (_operand(step, s, 4) + PAGE_BYTES - 1) & -PAGE_BYTES
    invoke(
        _operand(step, s, 0),
        _operand(step, s, 1),
        places,
        places + WORD_BYTES,
        buffer,
        _operand(step, s, 5),
        _operand(step, s, 6),
        s[fields.STOP],
    )


@compiled(POINTER, POINTER, inner=True)
def _run_step(step, s):
    """Run an instruction."""
    kind = step[fields.KIND]
    if kind == fields.PROGRAM:
        _run_program(step, s)
    elif kind == fields.PRODUCT:
        _run_product(step, s)
    elif kind == fields.MOVE:
        _run_move(step, s)
    else:
        words = as_pointer(_operand(step, s, 1))
        for number in range(_operand(step, s, 2)):
            words[number] = 0


@compiled(POINTER, INT, POINTER, returns=INT, inner=True)
def _run_task(begins, number, s):
    """Run a task; return the address of an instruction that fails, else 0."""
    at = begins[number]
    while at < begins[number + 1]:
        step = as_pointer(at)
        _run_step(step, s)
        if s[fields.FAILED]:
            return at
        at += WORD_BYTES * step[fields.LENGTH]
    return 0


@compiled(INT, INT, INT, INT, returns=INT)
def run_tasks(tasks, count, following, slots):
    """Run tasks until none is left; return the address of an instruction that fails, else 0.

    Parameters
    ----------
    tasks
        Address of the addresses where tasks begin, and where the last one ends.
    count
        How many there are.
    following
        Address of the number of the task that is taken next, by whichever thread.
    slots
        Address of the thread's slots.
    """
    s, begins = as_pointer(slots), as_pointer(tasks)
    s[fields.FAILURE], s[fields.FAILED] = slots + WORD_BYTES * fields.FAILED, 0
    number = take_next(following)
    while number < count and not as_pointer(s[fields.STOP])[0]:
        failed = _run_task(begins, number, s)
        if failed:
            return failed
        number = take_next(following)
    return 0


@compiled(POINTER, INT, INT, POINTER, returns=INT, inner=True)
def _run_share(stage, own, team, s):
    """Run tasks of a stage that no other thread has taken, a thread's own ones first."""
    tasks, count = as_pointer(stage[fields.STAGE_TASKS]), stage[fields.STAGE_COUNT]
    taken, done = stage[fields.STAGE_TAKEN], 0
    first = own % team * count // team  # more may help than the stages were written for
    for turn in range(count):
        number = first + turn
        if number >= count:
            number -= count
        if take_next(taken + WORD_BYTES * number) == 0:
            failed = _run_task(tasks, number, s)
            if failed:
                return failed
            done += 1
    if done:
        add_behind(stage[fields.STAGE_DONE], done)
    return 0


@compiled(POINTER, POINTER, POINTER, returns=INT, inner=True)
def _wait_for(stage, team, s):
    """Wait until all tasks of a stage are done; return whether there is any sense in going on."""
    turns = 0
    while look(stage[fields.STAGE_DONE]) < stage[fields.STAGE_COUNT]:
        if as_pointer(s[fields.STOP])[0] or team[fields.TEAM_BROKEN]:
            return 0
        turns += 1
        if turns > TURNS_TO_YIELD:
            invoke(team[fields.TEAM_YIELD])
    return 1


@compiled(INT, INT, INT, INT, INT, returns=INT)
def run_stages(stages, count, own, words, slots):
    """Run stages one after another, with other threads; return as `run_tasks` does.

    A stage begins when all tasks of the one before are done, whoever did them: a thread that comes
    late, or never, holds up no other one.

    Parameters
    ----------
    stages
        Address of the stages (`task_fields`).
    count
        How many there are.
    own
        The number of the thread.
    words
        Address of what the team shares.
    slots
        Address of the thread's slots.
    """
    s, team = as_pointer(slots), as_pointer(words)
    s[fields.FAILURE], s[fields.FAILED] = slots + WORD_BYTES * fields.FAILED, 0
    times = 0 if own else team[fields.TEAM_TIMES]
    if times:
        invoke(team[fields.TEAM_CLOCK], fields.MONOTONIC, times)
    for number in range(count):
        stage = as_pointer(stages + WORD_BYTES * fields.STAGE_WORDS * number)
        if as_pointer(s[fields.STOP])[0]:
            return 0
        failed = _run_share(stage, own, team[fields.TEAM_SIZE], s)
        if failed:
            team[fields.TEAM_BROKEN] = 1
            return failed
        if _wait_for(stage, team, s) == 0:
            return 0
        if times:
            times += WORD_BYTES * fields.TIME_WORDS
            invoke(team[fields.TEAM_CLOCK], fields.MONOTONIC, times)
    return 0


@inlined
def _fill_slots(told, given, values, memory):
    """Write the slots of a fast call to the beginning of its workspace."""
    s, count = as_pointer(memory), told[fields.ARRAY_COUNT]
    s[fields.ZERO], s[fields.STOP] = 0, told[fields.STOP_ADDRESS]
    s[fields.SHARED] = memory + told[fields.SHARED_BYTES]
    s[fields.OWN] = memory + told[fields.OWN_BYTES]
    s[fields.SCRATCH] = memory + told[fields.SCRATCH_BYTES]
    for number in range(count):
        s[fields.GIVEN + number] = as_pointer(given[number] + OBJECT_HEADER_BYTES)[0]
    for number in range(told[fields.NUMBER_COUNT]):
        s[fields.GIVEN + count + number] = values[number]


@compiled(INT, INT, INT, INT, returns=INT)
def run_all(words, row, numbers, memory):
    """Run all tasks of a fast call; return whether none failed.

    Parameters
    ----------
    words
        Address of what the call is told.
    row
        Address of the addresses of the arrays that it is given.
    numbers
        Address of the words of its numbers.
    memory
        Address of the workspace.
    """
    told, s = as_pointer(words), as_pointer(memory)
    _fill_slots(told, as_pointer(row), as_pointer(numbers), memory)
    s[fields.NEXT] = 0
    following = memory + WORD_BYTES * fields.NEXT
    return run_tasks(told[fields.TASKS], told[fields.TASK_COUNT], following, memory) == 0


@inlined
def _begin_team(told, memory):
    """Write a team of which nothing is done yet to the workspace of a fast call."""
    count = told[fields.STAGES]
    size = fields.TEAM_WORDS + fields.STAGE_WORDS * count
    words, begun = as_pointer(memory + told[fields.TEAM_BYTES]), as_pointer(told[fields.TEAM])
    for number in range(size):
        words[number] = begun[number]
    marks = memory + told[fields.TEAM_BYTES] + WORD_BYTES * size
    for number in range(count):
        at = fields.TEAM_WORDS + fields.STAGE_WORDS * number
        words[at + fields.STAGE_TAKEN] += marks
        words[at + fields.STAGE_DONE] += marks
    for number in range(told[fields.MARKS]):
        as_pointer(marks)[number] = 0


@inlined
def _run_own(told, own, team, slots):
    """Run the stages of a fast call's team as the thread of a number."""
    stages = team + WORD_BYTES * fields.TEAM_WORDS
    return run_stages(stages, told[fields.STAGES], own, team, slots)


@compiled(INT, INT, INT, INT, returns=INT)
def run_with_team(words, row, numbers, memory):
    """Run all stages of a fast call with the threads that come; return whether no task failed.

    Parameters are those of `run_all`; the last number is the address of a gate.
    """
    told, values = as_pointer(words), as_pointer(numbers)
    _fill_slots(told, as_pointer(row), values, memory)
    _begin_team(told, memory)
    gate = values[told[fields.NUMBER_COUNT]]
    place, doors = gate + WORD_BYTES * fields.GATE, as_pointer(gate)
    doors[fields.GATE_TOLD], doors[fields.GATE_MEMORY] = words, memory
    add_behind(place, fields.OPENED)
    team = memory + told[fields.TEAM_BYTES]
    failed = _run_own(told, 0, team, memory)
    came = add_behind(place, fields.CLOSED) - fields.OPENED
    while look(gate + WORD_BYTES * fields.GATE_LEFT) < came:
        invoke(as_pointer(team)[fields.TEAM_YIELD])
    return failed == 0 and as_pointer(team)[fields.TEAM_BROKEN] == 0


@compiled(INT, INT, INT, returns=INT)
def help_team(gate, memory, give_way):
    """Run stages of a fast call that another thread makes; return whether it was not too late.

    Parameters
    ----------
    gate
        Address of the gate that the call is given.
    memory
        Address of a workspace: for slots, and behind them what a task has of its own.
    give_way
        Address of a function that lets other threads run.
    """
    place, turns = gate + WORD_BYTES * fields.GATE, 0
    while look(place) < fields.OPENED:
        turns += 1
        if turns > TURNS_TO_YIELD:
            invoke(give_way)
        if turns > 2 * TURNS_TO_YIELD:
            return 0
    came = take_next(place)
    if came >= fields.CLOSED:
        return 0
    told, s = as_pointer(as_pointer(gate)[fields.GATE_TOLD]), as_pointer(memory)
    begun = as_pointer(gate)[fields.GATE_MEMORY]
    count = fields.GIVEN + told[fields.ARRAY_COUNT] + told[fields.NUMBER_COUNT]
    for number in range(count):
        s[number] = as_pointer(begun)[number]
    s[fields.OWN] = memory + told[fields.TEAM_BYTES]
    s[fields.SCRATCH] = s[fields.OWN] + told[fields.SCRATCH_BYTES] - told[fields.OWN_BYTES]
    _run_own(told, came - fields.OPENED + 1, begun + told[fields.TEAM_BYTES], memory)
    add_behind(gate + WORD_BYTES * fields.GATE_LEFT, 1)
    return 1
