"""Trees of several works: what caches take in is what simulated ones miss."""

import numpy as np
import pytest

from tilesolve.model.access import Access, Axis
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import Buffer, Do, Loop, LoopTree, Work
from tilesolve.model.traffic import count_traffic
from tilesolve.simulation.cache_simulator import CacheShape, access, caches, lean

LINE, ITEM = 64, 4
SOURCE, MIDDLE, TARGET = np.arange(3)  # of one type: numba compiles `access` but once
HEIGHT, WIDTH = 66, 258


@lean
def _blur(state, rows, columns, tile, ring):
    """Blur along rows, then along columns, in strips, with the rows of the first one in a ring."""
    source, middle, target = 0, 1 << 20, 1 << 21
    for x0 in range(0, columns, tile):
        x1 = min(x0 + tile, columns)
        for y in range(rows):
            for r in range(y if y == 0 else y + 2, y + 3):
                kept, shift, pitch = (r % 3, x0, tile) if ring else (r, 0, columns)
                for x in range(x0, x1):
                    for d in range(3):
                        access(state, source + (r * (columns + 2) + x + d) * 4, SOURCE)
                    access(state, middle + (kept * pitch + x - shift) * 4, MIDDLE)
            for x in range(x0, x1):
                for d in range(3):
                    kept, shift, pitch = ((y + d) % 3, x0, tile) if ring else (y + d, 0, columns)
                    access(state, middle + (kept * pitch + x - shift) * 4, MIDDLE)
                access(state, target + (y * columns + x) * 4, TARGET)


def simulate(capacity, tile, ring):
    """Return the bytes of the source, of what lies between, and of the result that come in."""
    state = caches([CacheShape(capacity, LINE)], 1 << 22, 3)
    _blur(state, HEIGHT - 2, WIDTH - 2, tile, ring)
    return state.misses[0] * LINE


def blur(tile, ring):
    """The same as a tree."""

    def array(name, shape, mode="read", down=0, right=0):
        axes = (Axis(((1, "y"),), down), Axis(((1, "x"),), right))
        return Access(name, axes, shape, ITEM, mode)

    rows, columns = HEIGHT - 2, WIDTH - 2
    lines = (3, tile) if ring else (HEIGHT, columns)
    extents = (("y", rows), ("x", columns))
    wanted = array("I", (HEIGHT, WIDTH), right=2)
    first = Work((array("m", lines, "write"), wanted), extents, ITEM)
    second = Work((array("o", (rows, columns), "write"), array("m", lines, down=2)), extents, ITEM)
    body = (Loop("y", 1, tuple(Loop("x", 1, (Do(n),)) for n in range(2))),)
    if ring:
        body = (Buffer(0, array("m", lines), "ring", "L1", body),)
    return LoopTree((first, second), (Loop("x", tile, body),))


@pytest.mark.grid
@pytest.mark.parametrize("capacity", [2048, 4096, 8192, 16384, 1 << 18])
@pytest.mark.parametrize("tile", [256, 128, 64])
@pytest.mark.parametrize("ring", [True, False])
def test_two_works_and_a_ring_move_what_caches_miss(ring, tile, capacity):
    """No less than simulated; as much where some rounds fit, but a ring comes in for each strip."""
    places = [
        LevelView("register", 512.0, 1, "L1", 1.0),
        LevelView("L1", capacity, LINE, "memory", 1.0),
    ]
    moved = count_traffic(blur(tile, ring), places).moved[1]
    found = dict(zip(["m", "I", "o"], moved, strict=True))
    exact = dict(zip(["I", "m", "o"], simulate(capacity, tile, ring), strict=True))
    micro_panels = 3 * tile * ITEM * (WIDTH // tile) if ring else 0
    one_round = 5 * tile * ITEM
    for name, size in exact.items():
        assert found[name] >= 0.95 * size
        if name != "m" or capacity > 2.5 * one_round:
            assert found[name] == pytest.approx(
                size, rel=0.05, abs=micro_panels if name == "m" else 0
            )


def test_a_ring_saves_what_lies_between():
    """A cache that holds some rows takes in the source and the result alone."""
    places = [
        LevelView("register", 512.0, 1, "L1", 1.0),
        LevelView("L1", 16384, LINE, "memory", 1.0),
    ]
    ring, whole = (count_traffic(blur(128, ring), places).moved[1] for ring in (True, False))
    assert ring[0] < 0.1 * whole[0]
    assert ring[1:] == whole[1:]


def test_a_tree_is_printed_as_it_is_nested():
    """Each node a line, what is within it further to the right."""
    assert str(blur(128, True)).splitlines() == [
        "for x step 128",
        "  m~[y,x] = ring of m in L1:",
        "    for y step 1",
        "      for x step 1",
        "        m[y,x] <- I[y,x]",
        "      for x step 1",
        "        o[y,x] <- m[y,x]",
    ]
