"""Works of networks are priced for arrays where the works before left them."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.machine.model import Machine
from tilesolve.nests.plan import nest
from tilesolve.networks.places import Blocks
from tilesolve.networks.prices import predict_works
from tilesolve.networks.works import CopyWork
from tilesolve.plans.plan import plan

MACHINE = Machine.load("i7-6700k")


class NotingWork(CopyWork):
    """A copy that notes since when its arrays were used."""

    def predict(self, since):
        """Note it."""
        self.since = since


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=7),
)
def test_distances_are_the_bytes_between_two_uses(sizes, pairs):
    """Of whole blocks that lie apart: the bytes of all different ones that were used since."""
    blocks, kind = Blocks(), np.dtype("uint8")
    places = [blocks.make((size,), kind, (0,), 0) for size in sizes]
    for place in places:
        blocks.use(place, len(pairs))  # all live at once
    pairs = [(x % len(sizes), y % len(sizes)) for x, y in pairs]
    works = [NotingWork((), places[x], places[y]) for x, y in pairs]
    assert predict_works(works, blocks, MACHINE.costs) == [None] * len(works)
    for at, (work, pair) in enumerate(zip(works, pairs, strict=True)):
        for name in pair:
            seen, before = set(), at
            while True:
                before -= 1
                seen.update(pairs[before % len(pairs)])
                if name in pairs[before % len(pairs)]:
                    break
            assert work.since.places[places[name]] == pytest.approx(sum(sizes[x] for x in seen))
        used = {x for several in pairs for x in several}
        assert work.since.weights == sum(sizes[x] for x in used)


def test_prices_grow_with_what_was_touched_between():
    """A product takes longest from memory, and what lies in a cache as long as it stays there."""
    found = plan("xk-xc-ck", {"x": 784, "k": 128, "c": 96}, MACHINE, dtype="float32", cache=False)
    steps = (0.0, 1e5, 1e6, 1e7, 1e8, inf)
    times = [found.solution.score_after((size, size, size)) for size in steps]
    assert times == sorted(times)
    assert times[0] < times[-1] <= found.seconds * (1 + 1e-9)
    weights = [found.solution.score_after((0.0, 0.0, size)) for size in steps]
    assert weights == sorted(weights)
    assert times[0] == weights[0] < weights[-1] < times[-1]


def test_statements_are_priced_for_what_others_touched():
    """What was never touched comes from memory; what was just touched is as near as can be."""
    found = nest("o[y,x] = A[y,x] + A[y,x+1]", {"y": 300, "x": 300}, "float32", machine=MACHINE)
    near, half, far = (found.solution.seconds_after(dict.fromkeys(x, 0.0)) for x in ("oA", "A", ""))
    assert near < half < far
    assert near <= found.solution.computing_seconds < far
    assert far == found.solution.seconds_after(dict.fromkeys("oA", inf))
