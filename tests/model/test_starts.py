"""Where arrays lie at first: prices of who repeats a call, and of who does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.errors import PlanError
from tilesolve.machine.model import Machine
from tilesolve.model.score import score_price
from tilesolve.model.starts import charge_sources, list_between, start_arrays
from tilesolve.nests.plan import nest
from tilesolve.nests.planning import plan_loops

MACHINE = Machine.load("i7-6700k")
TEXTS = ("o[i] = A[i] + 1", "s[j] = sum(B[i,j], i)", "h[v[i]] += 1", "o[i] = T[v[i]]")


def price_of(text, extent):
    """The price of a statement by loops, and what was asked for."""
    sizes = {"i": extent, "j": 64, "T": (extent,), "h": (extent,)}
    dtypes = {"A": "float32", "B": "float32", "T": "float32", "v": "int64"}
    letters = {x: size for x, size in sizes.items() if x in text.replace("int", "")}
    named = {x: kind for x, kind in dtypes.items() if f"{x}[" in text}
    request = nest(text, letters, named, machine=MACHINE, cache=False).request
    (solution,) = plan_loops(request)
    return solution.cost, request


@pytest.mark.parametrize("extent", [100, 3000, 10**5, 10**7])
@pytest.mark.parametrize("text", TEXTS)
def test_caches_that_hold_all_arrays_take_nothing_in(text, extent):
    """Farther levels have nothing to do then; with more than they hold, all is as from memory."""
    cost, request = price_of(text, extent)
    places, overlap = request.places, MACHINE.costs.level_overlap
    warm, touched = start_arrays(cost, places, "warm"), sum(cost.levels[-1].moved)
    assert start_arrays(cost, places, "cold") is cost
    for level, full, place in zip(warm.levels[1:], cost.levels[1:], places[1:], strict=True):
        if touched <= place.capacity:
            assert level.volume == level.seconds == 0
        elif touched >= 1.25 * place.capacity:
            assert level == full
    charged = charge_sources(warm)
    assert score_price(charged, overlap) <= score_price(warm, overlap) <= score_price(cost, overlap)


@pytest.mark.parametrize("extent", [100, 10**5, 10**7])
def test_positions_read_at_run_time_bring_lines_that_are_not_there(extent):
    """A table that a cache holds comes once; of another one at most a line for each element."""
    cost, request = price_of("o[i] = T[v[i]]", extent)
    for level, place in zip(cost.levels[1:], request.places[1:], strict=True):
        table = level.moved[1]
        once = 4 * extent if 4 * extent <= place.capacity else 0
        assert table == once or 4 * extent < table <= 64 * extent


def test_starts_are_two():
    """Plans say what they are predicted to take from either; others are refused."""
    found = nest(TEXTS[0], 1000, "float32", machine=MACHINE, cache=False)
    cold = nest(TEXTS[0], 1000, "float32", machine=MACHINE, start="cold", cache=False)
    assert found.predict("cold") == cold.seconds > found.seconds == cold.predict("warm")
    with pytest.raises(PlanError, match="start is one of warm, cold"):
        nest(TEXTS[0], 1000, machine=MACHINE, start="hot")


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 99)), max_size=6))
def test_arrays_are_as_far_as_what_was_touched_since(works):
    """Each array counts once, with the most of it that was touched; parts of it count together."""
    for at, found in enumerate(list_between(works, [None] * len(works))):

        def touched(name, since, at=at):
            return sum(one.get(name, 0) for one in works[since:at])

        half = {name: size / 2 for name, size in works[at].items()}
        assert set(found) == {name for name, size in half.items() if touched(name, 0) >= size}
        for name, size in found.items():
            last = max(x for x in range(at) if touched(name, x) >= half[name])
            names = {x for one in works[last:at] for x in one}
            most = (max(one.get(x, 0) for one in works[last:at]) for x in names)
            assert size == sum(most)


def test_a_later_statement_finds_arrays_where_an_earlier_one_left_them():
    """A last cache that holds them serves them; a plan that is flushed reads them once."""
    text = "m[i] = sum(A[i,k], k)\no[i,k] = A[i,k] - m[i]"
    plans = [
        nest(text, {"i": 1000, "k": n}, "float32", machine=MACHINE, start="cold", cache=False)
        for n in (500, 4000)
    ]
    alone = [sum(one.seconds for one in plan.solutions) for plan in plans]
    called = MACHINE.costs.cold_statement_seconds
    assert plans[0].seconds - called < 0.9 * alone[0]
    assert plans[1].seconds - called == pytest.approx(alone[1])


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_memory_takes_what_goes_past_the_caches_whoever_repeats_the_call(start):
    """What the last cache holds of inputs spares nothing of that."""
    text, sizes = "o[i,j] = x[i] * y[j]", {"i": 4000, "j": 4096}
    plan = nest(text, sizes, "float32", machine=MACHINE, start=start, cache=False)
    (solution,) = plan.solutions
    bytes_written = 4 * 4000 * 4096
    assert solution.loops.output == "stream"
    assert plan.seconds >= solution.cost.past_caches >= bytes_written / MACHINE.memory.bandwidth
    assert "o goes past the caches" in str(plan)
    assert "stores" in str(plan)


def test_reports_say_where_arrays_are_and_what_is_assumed():
    """A machine whose rates nobody measured is told of."""
    known, assumed = (
        str(nest(TEXTS[0], 1000, "float32", machine=name, cache=False))
        for name in ("i7-6700k", "i7-6700")
    )
    assert "arrays in the nearest cache" in known
    assert "assumed" not in known
    assert "assumed rates of L1, L2, L3, memory" in assumed
