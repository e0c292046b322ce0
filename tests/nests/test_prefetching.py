"""What the machine knows of runs and of prefetching, in tiles and prices of nests."""

from dataclasses import replace

import pytest

from tilesolve.constants.nests import LATER_LINE_SHARE
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.model.price import list_levels
from tilesolve.nests.reuse import first_misses, second_misses
from tilesolve.nests.setting import make_setting
from tilesolve.nests.temporal import enumerate_tiles

MACHINE = Machine.load("i7-5930k")
MATMUL = "C[i,j] += A[i,k] * B[k,j]"
TURN = "m[y,x] = A[x,y] & B[y,x]"


def changed(name, **changes):
    """The machine with another figure of one level."""
    levels = (
        replace(level, **changes) if level.name == name else level for level in MACHINE.levels
    )
    return MACHINE.replace(levels=tuple(levels))


def setting(machine, threads=1, mode="default", text=MATMUL, extent=1600, **others):
    """What tiles of a statement are chosen by."""
    computation = bind_stages(parse_stages(text), extent, "float32")
    return make_setting(computation, computation.stages[0], machine, threads, mode, **others)


def test_misses_cost_what_the_level_behind_says():
    """Of the first cache by the start of the second one, and so on; lines by their bandwidth."""
    plain, timed = setting(MACHINE).weights, setting(changed("L2", start=5e-9)).weights
    assert (plain.later_first, plain.later_second) == (LATER_LINE_SHARE, LATER_LINE_SHARE)
    (place,) = [place for place in list_levels(MACHINE) if place.server == "L2"]
    line = place.line / (place.read or place.bandwidth)
    assert timed.first == pytest.approx(5e-9 + line)
    assert timed.later_first == pytest.approx(line / (5e-9 + line))
    assert (timed.second, timed.later_second) == (plain.second, plain.later_second)
    far = setting(changed("L3", start=5e-9)).weights
    assert (far.first, far.later_first) == (plain.first, plain.later_first)
    assert far.later_second < plain.later_second


def test_a_latency_is_no_start():
    """Loads of other runs go on while one waits."""
    assert setting(changed("L2", latency=1e-7)) == setting(MACHINE)


def test_shares_that_are_given_count_before_the_machine_s():
    """For both caches."""
    found = setting(changed("L2", start=5e-9), later=(0.0, 1.0)).weights
    assert (found.later_first, found.later_second) == (0.0, 1.0)


@pytest.mark.parametrize(("fetched", "ahead", "wanted"), [(2, 20, 2), (5, 3, 3), (1, 20, 1)])
def test_the_second_cache_leaves_room_for_what_it_fetches(fetched, ahead, wanted):
    """The lines of an access, but none farther than hardware prefetches; or as many as are said."""
    machine = changed("L2", fetched=fetched, ahead=ahead)
    assert {far.ahead for _, far in setting(machine).sets} == {wanted}
    assert {far.ahead for _, far in setting(machine, ahead=7).sets} == {7}
    assert {near.ahead for near, _ in setting(machine).sets} == {0}


@pytest.mark.parametrize(
    ("threads", "mode", "ways"),
    [(1, "default", 8), (6, "default", 8), (7, "default", 4), (1, "thesis", 4), (12, "thesis", 4)],
)
def test_threads_of_a_core_share_its_ways(threads, mode, ways):
    """Where more run than there are cores; all of them in the thesis."""
    found = setting(MACHINE, threads, mode)
    assert {(near.ways, far.ways) for near, far in found.sets} == {(ways, ways)}
    single = setting(MACHINE.replace(threads_per_core=1), threads, mode)
    assert {(near.ways, far.ways) for near, far in single.sets} == {(8, 8)}
    assert found == setting(MACHINE, threads, mode, threads_per_core=8 // ways)


@pytest.mark.parametrize("text", [MATMUL, "C[i,j] += A[i,k] * A[j,k]"])
def test_the_longer_starts_are_the_fewer_runs_tiles_have(text):
    """Of both caches together, where both start alike."""
    counts = []
    for start in (1e-13, 1e-9, 1e-6):
        levels = tuple(replace(level, start=start) for level in MACHINE.levels)
        one = setting(MACHINE.replace(levels=levels), text=text, extent=777)
        best = enumerate_tiles(one)[0]
        near = first_misses(one.references, best.tiles, one.extents, 64)
        far = second_misses(one.references, best.tiles, one.extents, best.ends.innermost_tile, 64)
        counts.append(near + far)
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]
