"""Programs drawn at random for computations: tilings, orders, kinds of loops, holds."""

import numpy as np

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import identity
from tilesolve.kernels.programs.program import Barrier, Compute, Hold, Loop, Program, Start

ZERO = Affine.number(0)


def number(value):
    """A bound that is the same everywhere."""
    return Affine.number(value)


def bounds(computation, stage, letter, known):
    """The bounds of a letter where others stand: its extent, and conditions that it closes."""
    low, high = [ZERO], [number(computation.sizes[letter])]
    for condition in stage.where:
        factor = condition.position.factor(letter)
        if not factor or not set(condition.letters) <= {letter, *known}:
            continue
        rest = condition.position - factor * Affine.letter(letter)
        if factor > 0:  # letter >= ceil(-rest / factor)
            low.append((-rest + factor - 1) // factor)
        else:
            high.append(rest // -factor + 1)
    return tuple(low), tuple(high)


def nest(computation, stage, letters, body, kinds=(), known=()):
    """Loops over letters, the first outermost."""
    kinds = dict(kinds)
    known = list(known)
    made = []
    for letter in letters:
        made.append((letter, *bounds(computation, stage, letter, known)))
        known.append(letter)
    for letter, low, high in reversed(made):
        body = (Loop(letter, low, high, body, kind=kinds.get(letter, "serial")),)
    return body


def simple(computation, rng, threads=True):
    """A program of one stage: loops in some order, the innermost one perhaps a vector."""
    (stage,) = computation.stages
    over = list(stage.reduction.over) if stage.reduction else []
    letters = [*stage.output, *over] if stage.update is None else list(stage.letters)
    order = list(rng.permutation(letters)) if letters else []
    kinds = {}
    if order and rng.random() < 0.8:
        kinds[order[-1]] = "vector"
    if len(order) > 1 and rng.random() < 0.4 and computation.sizes[order[-2]] <= 24:
        kinds[order[-2]] = "unrolled"
    outermost = order[0] if order else None
    if threads and outermost in stage.output and outermost not in kinds and stage.update is None:
        kinds[outermost] = "threads"
    body = nest(computation, stage, order, (Compute(0),), kinds)
    return Program(computation, (*starts(computation, stage), *body))


def starts(computation, stage):
    """What begins a reduction, ahead of everything else."""
    if stage.update is not None:
        return (Start(0), Barrier())
    if stage.reduction is None:
        return ()
    kept = stage.output
    return (*nest(computation, stage, kept, (Start(0),)), Barrier())


def blocked(computation, rng, lanes):
    """A program with tiles, an order of them, and a hold if it is a reduction."""
    (stage,) = computation.stages
    over = list(stage.reduction.over) if stage.reduction else []
    output = list(stage.output)
    vector = output[int(rng.integers(len(output)))] if rng.random() < 0.3 else output[-1]
    within = [*over, *(letter for letter in output if letter != vector), vector]
    sizes = {letter: int(rng.choice([1, 2, 3, 4, lanes, 17])) for letter in within}
    sizes[vector] = int(rng.choice([lanes, 2 * lanes, lanes + 1]))
    body = (Compute(0),)
    for at in range(len(within) - 1, -1, -1):
        letter = within[at]
        low, high = bounds(computation, stage, letter, within[:at])
        kind = "vector" if letter == vector else "unrolled" if sizes[letter] <= 20 else "serial"
        summed = letter in over
        if summed and rng.random() < 0.5:
            body = (Loop(letter, low, high, body),)
            continue
        start = Affine.letter(letter + "_tile")
        high = (start + sizes[letter], *high)
        body = (Loop(letter, (start, *low[1:]), high, body, kind=kind),)
        if summed:
            body = (tile_loop(computation, letter, sizes[letter], body),)
    anew = bool(rng.random() < 0.7)
    body = (Hold(0, body, anew=anew),) if over else body
    order = list(rng.permutation(output))
    for letter in order:
        kind = "threads" if letter == order[-1] else "serial"
        body = (tile_loop(computation, letter, sizes[letter], body, kind),)
    begun = starts(computation, stage) if over and not anew else ()
    return Program(computation, (*begun, *body))


def tile_loop(computation, letter, size, body, kind="serial"):
    """A loop over tiles of a letter."""
    high = (number(computation.sizes[letter]),)
    return Loop(letter + "_tile", (ZERO,), high, body, step=size, kind=kind)


def draw_values(shape, dtype, rng):
    """Values of a dtype: small integers and some extremes, or normal numbers."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    ends = np.iinfo(dtype)
    found = rng.integers(max(ends.min, -9), 10, shape).astype(dtype)
    wild = rng.random(shape) < 0.1
    found[wild] = rng.choice([ends.min, ends.max], int(wild.sum()))
    return found


def lay(values, rng):
    """The same values elsewhere in memory: reordered axes, steps, directions; poison between."""
    order = rng.permutation(values.ndim) if rng.random() < 0.4 else np.arange(values.ndim)
    steps = [int(rng.choice([1, 1, 1, 2, -1])) if rng.random() < 0.5 else 1 for _ in order]
    shape = [
        max(1, values.shape[axis]) * abs(step) + 3 for axis, step in zip(order, steps, strict=True)
    ]
    room = np.empty(shape, values.dtype)
    room.view(np.uint8 if values.dtype != bool else bool)[...] = 1
    parts = []
    for axis, step in zip(order, steps, strict=True):
        extent = values.shape[axis]
        begin = 1 if step > 0 else 1 + (extent - 1) * abs(step)
        stop = begin + extent * step
        parts.append(slice(begin, stop if stop >= 0 else None, step))
    found = room[(*parts, ...)].transpose(np.argsort(order))
    found[...] = values
    return found, room


def poison(dtype):
    """A value that no result has."""
    return np.nan if np.dtype(dtype).kind == "f" else identity("maximum", dtype)
