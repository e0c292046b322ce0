"""Plans in the notation of schemes."""

from itertools import pairwise

from guessed_tiles import guess_plan
from hypothesis import given
from hypothesis import strategies as st
from running_cases import make_shallow_machine
from strategies import specs
from turns import examples

from tilesolve import Machine, Problem, plan
from tilesolve.kernels.dtypes import lanes
from tilesolve.planning.composition.scheme import Scheme

MACHINE = Machine.load("i7-6700k")
SHALLOW = make_shallow_machine(256, 16)
MATRICES = "ij-ik-kj"


@examples(10, 25)
@given(st.data())
def test_schemes_of_plans_are_read_back(data):
    """Whatever the letters, extents, tiles and threads are."""
    spec = data.draw(specs(operands=2, letters="abijéλα", diagonal=False))
    extents = st.sampled_from((1, 2, 3, 5, 7, 8, 11, 16, 24))
    sizes = {letter: data.draw(extents) for letter in spec.letters}
    problem = Problem.of(spec, sizes, data.draw(st.sampled_from(("float32", "complex128"))))
    machine = data.draw(st.sampled_from((SHALLOW, MACHINE)))
    threads, tiles = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 999))
    scheme = guess_plan(problem, tiles, machine=machine, threads=threads).scheme
    assert Scheme.of(str(scheme)) == scheme


@examples(10, 25)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 40), st.integers(1, 2))
def test_schemes_of_plans_cover_what_tiles_divide(rows, vectors, sums, threads):
    """Cells of two sizes stand under a λ; only a ragged tile of another level covers more."""
    found = plan(
        MATRICES, {"i": rows, "j": 4 * vectors, "k": sums}, MACHINE, threads=threads, cache=False
    )
    bands, share = found.nest.bands, found.share.sizes
    whole = all(
        outer[letter] % inner[letter] == 0
        for inner, outer in pairwise(bands[1:])
        for letter in share
    )
    parts = len(found.solution.parts)
    even = all(share[i] * parts == found.problem.sizes[i] for i in share if i == found.split)
    if whole and even and share["j"] % 4 == 0:
        group = lanes(found.problem.dtype, MACHINE.vector_bits)
        assert found.scheme.covered(found.problem.sizes, group) == dict(found.problem.sizes)


def test_a_report_shows_the_scheme():
    """The notation stands below the tiles."""
    found = plan(MATRICES, "i=11 j=32 k=64", MACHINE, cache=False)
    assert str(found.scheme) == "[λi α.[(1,6),(1,5)],Rj,T64,k,Uα,i,U2,j,Vj]"
    assert f"\nscheme {found.scheme}\n" in str(found)
