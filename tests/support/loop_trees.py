"""Loop trees of statements drawn at random, and what any price of one lies between."""

from dataclasses import replace
from math import prod

from tilesolve.model.chain import Chain
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import Buffer, Call, Do, LoopTree, Work, nest_loops
from tilesolve.model.traffic import count_traffic
from tilesolve.nests.programs import write_program
from tilesolve.nests.references import find_references
from tilesolve.nests.shapes import over

MOST_ROWS = 24
"""The most trips of a loop that is written out."""


def write_loops(computation, *loops, held=0, past=False):
    """The program of one stage by its loops, outermost first; registers hold sums in the last."""
    loops = [over(*one) for one in loops]
    body = nest_loops(loops[len(loops) - held :], (Do(),))
    if held:
        holds = find_references(computation, *computation.stages)[0]
        body = (Buffer(0, holds, "registers", "register", body),)
    body = nest_loops(loops[: len(loops) - held], body)
    return write_program(computation, LoopTree((), body, "stream" if past else "store"))


def draw_tree(computation, rng, lanes):
    """A tree of all stages, for vectors of so many lanes.

    Stages run one after another, or together for each value of a letter that all of them have. The
    outermost loop is mostly one of threads, where each may write elements of its own.
    """
    stages, works = computation.stages, []
    for stage in stages:
        found = find_references(computation, stage)
        extents = tuple((x, computation.sizes[x]) for x in stage.letters)
        works.append(Work(found, extents, found[0].element))
    shared = draw_shared(stages, rng)
    body = tuple(
        node for at in range(len(stages)) for node in draw_nest(computation, at, rng, lanes, shared)
    )
    if shared:
        kind = "threads" if rng.random() < 0.5 else "serial"
        body = nest_loops([over(shared, 1, kind)], body)
    output = "stream" if rng.random() < 0.25 else "store"
    return LoopTree(tuple(works), body, output, aligned=False)


def draw_shared(stages, rng):
    """A letter for whose values stages run together: each needs what the others compute there."""
    made = {stage.name: stage.output for stage in stages}
    letters = set.intersection(*(set(one) for one in made.values()))
    if len(stages) == 1 or rng.random() < 0.5:
        return ""
    for read in (read for stage in stages for read in stage.reads if read.array in made):
        places = zip(made[read.array], read.subscripts, strict=True)
        letters -= {x for x, subscript in places if getattr(subscript, "plain", None) != x}
    return min(letters, default="")


def draw_nest(computation, at, rng, lanes, done):
    """The loops of one stage, but for one over a letter that is done, if any is."""
    stage = computation.stages[at]
    output = [x for x in stage.output if x != done]
    held = stage.reduction is not None and output and rng.random() < 0.6
    if held:
        outer, inner = draw_held(stage.reduction.over, output, rng, lanes)
    else:
        sums = stage.reduction.over if stage.reduction else ()
        letters = stage.letters if stage.update is not None else (*output, *sums)
        outer, inner = draw_loops(computation.sizes, letters, rng, lanes)
    alone = not done and stage.update is None
    if alone and outer and outer[0].letter in output and rng.random() < 0.7:
        outer = [replace(outer[0], kind="threads"), *outer[1:]]
    body = nest_loops(inner, (Do(at),))
    # Vectors of sums that registers hold are written out: they go over a tile, not an extent.
    if held or (rng.random() < 0.7 and (len(inner) < 2 or inner[0].letter in output)):
        holds = find_references(computation, stage)[0]
        body = (Call((Buffer(0, holds, "registers", "register", body),)),)
    return nest_loops(outer, body)


def draw_loops(sizes, letters, rng, lanes):
    """Loops in some order, some over tiles; the innermost one or two perhaps of one call."""
    steps = {x: [1] for x in letters}
    for x in letters:
        for step in rng.choice([2, 3, 4, lanes, 17], 2, replace=False):
            if rng.random() < 0.3:
                steps[x] = sorted({int(step), *steps[x]})
    loops = order_loops(steps, rng)
    if not loops or rng.random() < 0.2:
        return loops[:-1], loops[-1:]
    *outer, inner = loops
    inner = replace(inner, kind="vector")
    if not outer or not outer[-1].single or rng.random() < 0.5:
        return outer, [inner]
    *outer, row = outer
    if min([sizes[row.letter], *steps[row.letter][1:2]]) > MOST_ROWS:
        return [*outer, row], [inner]
    if rng.random() < 0.5 and lanes not in steps[inner.letter]:
        outer = [*outer, over(inner.letter, lanes)]
    return outer, [replace(row, kind="unrolled"), inner]


def draw_held(sums, output, rng, lanes):
    """Loops over tiles of the output, and those over which registers hold the sums of one."""
    vector = str(rng.choice(output)) if rng.random() < 0.3 else output[-1]
    across = sums[0] if rng.random() < 0.2 else None
    steps, rows, inner = {}, [], []
    for x in output:
        steps[x] = [int(rng.choice([1, 2, 3, 4, *((lanes, 17) if across is None else ())]))]
        if x == vector and across is None:
            steps[x] = [int(rng.choice([lanes, 2 * lanes, lanes + 1]))]
        elif steps[x] != [1]:
            rows.append(over(x, 1, "unrolled"))
    for x in map(str, rng.permutation(sums)):
        tile, step = (int(one) for one in rng.choice([2, 3, 4, lanes, 17], 2))
        if rng.random() < 0.3:
            steps[x] = [tile]
        elif rng.random() < 0.5:
            inner.append(over(x, step))
        if x != across:
            inner.append(over(x, 1, "unrolled" if inner and inner[-1].letter == x else "serial"))
    inner += [*rows, over(across or vector, 1, "vector")]
    return order_loops(steps, rng), inner


def order_loops(steps, rng):
    """Loops in some order, those of each letter with the longest steps outermost."""
    left = {x: sorted(found) for x, found in steps.items()}
    order = rng.permutation([x for x, found in left.items() for _ in found])
    return [over(str(x), left[x].pop()) for x in order]


def check_traffic(tree, rng):
    """Caches of any sizes take in each element once at least, and once for each access at most."""
    extents = dict(pair for work in tree.works for pair in work.extents)
    near, far = sorted(int(2 ** rng.uniform(3, 16)) for _ in range(2))
    line = int(rng.choice([1, 64]))
    places = [
        LevelView("register", 512.0, 1, "L1", 1.0),
        LevelView("L1", near, line, "L2", 1.0),
        LevelView("L2", far, line, "memory", 1.0),
    ]
    accesses, found = Chain(tree).accesses, count_traffic(tree, places)
    for moved in found.moved[1:]:
        for access, size in zip(accesses, moved, strict=True):
            most = sum(
                prod(n for _, n in work.extents) * one.touched(dict.fromkeys(extents, 1), line)
                for work in tree.works
                for one in work.accesses
                if one is access or (len(tree.works) > 1 and one.array == access.array)
            )
            assert access.touched(extents, line) * (1 - 1e-9) <= size <= most * (1 + 1e-9)
