"""Drawn graphs of stages on two axes: stencils, halved and doubled grids, several consumers."""

import numpy as np
from hypothesis import strategies as st

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read, Reduce
from tilesolve.nests.group_trees import Grouping, Level
from tilesolve.nests.shapes import over


@st.composite
def draw_stages(draw, most=5, largest=14, scales=True, dtypes=("float32", "uint16", "int32")):
    """Draw stages, the extents of their letters and a dtype, as `bind_stages` takes them.

    Stage 0 reads the input alone. Each one is read by a later one; the last has a box of its own.
    """
    count = draw(st.integers(2, most))
    levels = [
        tuple(draw(st.integers(-1, 1)) if scales else 0 for _ in range(2)) for _ in range(count)
    ]
    readers = {at: set() for at in range(count)}
    for at in range(count - 1):
        for _ in range(draw(st.integers(1, 3))):
            readers[at].add(draw(st.integers(at + 1, count - 1)))
    sizes, stages = {}, []
    needed = [[1, 1] for _ in range(count)]
    needed[-1] = [
        draw(st.integers(min(5, largest) if draw(st.integers(0, 7)) else 1, largest))
        for _ in range(2)
    ]
    for at in reversed(range(count)):
        letters = [f"y{at}", f"x{at}"]
        sizes |= dict(zip(letters, needed[at], strict=True))
        producers = [one for one in range(at) if at in readers[one]]
        reads, summed = [], None
        for one in producers:
            for _ in range(draw(st.integers(1, 3))):
                subscripts = []
                for axis in range(2):
                    shift = draw(st.integers(0, 3))
                    difference = levels[one][axis] - levels[at][axis]
                    position = Affine.letter(letters[axis]) * 2 ** max(difference, 0) + shift
                    position = position // 2 ** max(-difference, 0)
                    if axis == 0 and summed is None and not reads and draw(st.booleans()):
                        summed, sizes[f"r{at}"] = f"r{at}", 2
                        position = (
                            position if position.divisor > 1 else position + Affine.letter(summed)
                        )
                        if position.divisor > 1:
                            summed = None
                            del sizes[f"r{at}"]
                    box = {letters[axis]: (0, needed[at][axis] - 1), f"r{at}": (0, 1)}
                    reach = position.interval(box)[1] + 1
                    needed[one][axis] = max(needed[one][axis], reach)
                    subscripts.append(position)
                read = Read(f"s{one}", tuple(subscripts))
                reads.append(Reduce("add", (summed,), read) if _has(read, summed) else read)
        if not producers:
            shift = Affine.letter(letters[1]) + draw(st.integers(0, 2))
            reads = [Read("I", (Affine.letter(letters[0]), shift))]
            reads.append(Read("I", (Affine.letter(letters[0]) + 1, Affine.letter(letters[1]))))
        term = reads[0]
        for weight, read in enumerate(reads[1:], 2):
            term = term + weight * read
        stages.append(Stage(f"s{at}", tuple(map(Affine.letter, letters)), term))
    return tuple(stages[::-1]), sizes, draw(st.sampled_from(dtypes))


def _has(read, letter):
    return letter is not None and any(letter in one.letters for one in read.subscripts)


@st.composite
def draw_group(draw, computation, threads=1):
    """Draw how stages run together: rings, tiles that overlap, and arrays of their own."""
    root = computation.stages[-1]
    y, x = root.output_letters()
    sizes = computation.sizes
    rows = draw(st.integers(1, 3))
    loops = [
        over(
            y, draw(st.integers(min(4, sizes[y]), sizes[y])), "threads" if threads > 1 else "serial"
        )
    ]
    if draw(st.booleans()):
        loops.append(over(x, draw(st.integers(1, sizes[x]))))
    if draw(st.integers(0, 3)) and rows < loops[0].step:
        loops.append(over(y, rows))
    levels = {root.name: Level(len(loops), len(loops))}
    for stage in reversed(computation.stages[:-1]):
        readers = [
            levels[one.name]
            for one in computation.stages
            if any(read.array == stage.name for read in one.reads)
        ]
        most = min(one.computed for one in readers)
        computed = draw(st.sampled_from([most, most, most, *range(most)]))
        kept = max(computed - min(draw(st.integers(0, 3)), 1), min(computed, 1))
        levels[stage.name] = Level(computed, kept)
    del levels[root.name]
    return Grouping(tuple(loops), levels, rows)


def fill(computation, seed=0):
    """Arrays of small numbers for the inputs of a computation, by name."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in computation.inputs:
        info = computation.array(name)
        found[name] = rng.integers(0, 7, info.shape).astype(info.dtype)
    return found
