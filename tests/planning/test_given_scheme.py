"""Schemes that are given run, equal to NumPy; what kernels cannot run is an error that says why."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_cases import make_machine
from strategies import draw_whole_numbers
from turns import examples

from tilesolve import Plan, Problem, plan
from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.reference import reference
from tilesolve.kernels.dtypes import lanes
from tilesolve.model.nest import tile_counts
from tilesolve.packing.cover import CellSequence
from tilesolve.planning.composition.scheme import Scheme
from tilesolve.running.execution import Layout

WIDE, NARROW = make_machine(512, 32), make_machine(256, 16)
LAYER = "[T4,k,T1,h,λseqh β.[(2,11),(1,12)],T17,w,T1,h,T1,h,T3,s,T3,r,T2,w,T5,c,Uβ,h,U2,k,Vk]"
SIZES = "k=128 h=34 w=34 c=5 r=3 s=3"
PAPER = {
    "Figure 2": ("khw-kc-chw", "k=64 h=136 w=136 c=16", "[R,k,T4,h,λh β.[(1,8),(2,13)],"
                 "T136,w,T16,c,Uβ,h,U2,k,Vk]"),
    "Figure 5": ("ij-ik-kj", "i=128 j=128 k=64", "[Rj,λi α.[(12,6),(8,7)],T64,k,Uα,i,U2,j,Vj]"),
    "BLIS": ("ij-ik-kj", "i=144 j=512 k=128", "[Rj,Rk,Ri,T8,j,T12,i,T64,k,U6,i,U2,j,Vj]"),
    "naive": ("ij-ik-kj", "i=6 j=9 k=7", "[Ri,Rj,Rk]"),
    "NCHW": ("khw-kcrs-c[h+r][w+s]", SIZES, LAYER),
    "NHWC": ("hwk-[h+r][w+s]c-rsck", SIZES, LAYER),
    "stencils": ("khw-kcrs-c[h+r][w+s]", "k=32 h=8 w=4 c=16 r=3 s=3",
                 "[Rw,T16,c,U3,r,U3,s,U8,h,U2,k,Vk]"),
}  # fmt: skip


def check(spec, sizes, scheme, machine=WIDE, dtype="float32", **options):
    """Return a plan by a scheme whose result is the reference's."""
    found = plan(spec, sizes, machine, dtype=dtype, scheme=scheme, cache=False, **options)
    operands = draw_whole_numbers(found.problem)
    assert np.array_equal(found(*operands), reference(found.problem, *operands))
    assert found.scheme == Scheme.of(scheme)
    assert Plan.from_json(found.to_json()) == found
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PAPER)
def test_the_papers_schemes_run(name, threads):
    """Sections 4 and 5.3, in both layouts; two threads divide an outermost loop."""
    check(*PAPER[name], threads=threads)


def test_cells_of_a_sequence_are_what_is_called():
    """The register tiles have the sizes of the λ, in its order, and no others."""
    found = check("ij-ik-kj", "i=68 j=32 k=8", "[Rj,λi α.[(2,11),(1,12)],T4,k,T2,i,T2,k,Uα,i,Vj]")
    layout = Layout.of(found.solution, *draw_whole_numbers(found.problem), None)
    bounds = layout.tasks[0].boxes.tables[0].axes[1].bounds[0]
    assert np.diff(bounds).tolist() == [11, 11, 11, 11, 12, 12]
    assert found.price.calls == 6 * 2 * 4


@examples(15, 40)
@given(st.data())
def test_drawn_schemes_equal_the_reference(data):
    """Loops in any order and number, with a λ anywhere."""
    sizes = dict.fromkeys("ijk", 1)
    specifiers = []
    low = data.draw(st.integers(1, 5))
    pairs = data.draw(
        st.none()
        | st.lists(
            st.tuples(st.integers(1, 2), st.sampled_from((low, low + 1))), min_size=2, max_size=3
        )
    )
    loops = data.draw(st.lists(st.tuples(st.sampled_from("ijk"), st.integers(1, 3)), max_size=5))
    for letter, trips in loops:
        specifiers.append(f"T{trips},{letter}")
        sizes[letter] *= trips
    if pairs:
        text = f"λi α.[{','.join(f'({n},{size})' for n, size in pairs)}]"
        specifiers.insert(data.draw(st.integers(0, len(loops))), text)
        specifiers.append("Uα,i")
        sizes["i"] *= sum(n * size for n, size in pairs)
    if data.draw(st.booleans()):
        specifiers.append("Vj")
        sizes["j"] *= lanes("float64", 256)
    check("ij-ik-kj", sizes, f"[{','.join(specifiers)}]", NARROW, "float64")


@given(st.data())
def test_cells_are_counted_and_cut_as_drawn(data):
    """Tiles of all bands are whole cells, as many as are counted; equal cells are as usual."""
    cells = tuple(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4)))
    inner, outer = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    sizes = tuple(cell for cell in cells for _ in range(inner))
    whole = sum(sizes)
    sides = (max(cells), max(cells) * inner, whole, whole * outer)
    sequence = CellSequence(sizes, sides)
    sequence.check()
    tiles, counts = [sides[-1]], [1]
    for band in range(len(sides) - 1, 0, -1):
        tiles = [part for tile in tiles for part in sequence.cut(band, tile)]
        counts.append(len(tiles))
    assert tuple(tiles) == sizes * outer
    assert sequence.counts == counts[::-1]
    if len(set(cells)) == 1:
        assert counts[::-1] == tile_counts(sides)


@pytest.mark.parametrize(
    ("spec", "scheme", "message"),
    [
        ("ij-ik-kj", "[Ri,Rj,Rk,Vk]", "'k' is summed, vectors lie along a letter of C"),
        ("ijl-ik-kjl", "[Ri,Rk,Rl,Rj,Vj]", "beside 'j' rows have 'l', along which vectors lie"),
        ("bij-bik-bkj", "[Ri,Rk,Rj,Rb,Vb]", "'b' is in all tensors: each index is a call"),
        ("ij-ik-kj", "[Rk,Ri,Rj,U16,i,U2,j,Vj]", "no microkernel has 2 vectors of rows by 16"),
        ("ij-ik-kj", "[Ri,Rk,Rj,U8,j,Vj]", "no microkernel has 8 vectors.*at most 4 vectors"),
    ],
)
def test_what_no_kernel_runs_is_an_error(spec, scheme, message):
    """It says why."""
    with pytest.raises(PlanError, match=message):
        plan(spec, 64, NARROW, scheme=scheme, cache=False)


def test_a_scheme_has_to_cover_the_problem():
    """Extents, letters and threads are checked."""
    with pytest.raises(SizeError, match="covers 48 of 'i', whose extent is 64"):
        plan("ij-ik-kj", 64, NARROW, scheme="[Rk,Rj,T8,i,U6,i,Vj]", cache=False)
    for cache in (True, False):
        with pytest.raises(SizeError, match="x is no letter"):
            plan("ij-ik-kj", 64, NARROW, scheme="[Rx,Rk]", cache=cache)
    with pytest.raises(PlanError, match="3 threads divide the iterations of no outermost loop"):
        plan("ij-ik-kj", 64, NARROW, scheme="[Ri,Rj,Rk]", threads=3, cache=False)
    with pytest.raises(PlanError, match="no strategy 'best'; there are solver"):
        plan("ij-ik-kj", 64, NARROW, strategy="best", cache=False)


def test_plans_by_schemes_are_kept_apart():
    """The scheme is part of a plan's key, in the letters of whoever asks."""
    schemes = ("[Rj,Rk,Ri,U6,i,Vj]", "[Rj,Ri,Rk,U6,i,Vj]")
    found = [plan("ij-ik-kj", "i=24 j=32 k=9", NARROW, scheme=scheme) for scheme in schemes]
    assert found[0] != found[1] != plan("ij-ik-kj", "i=24 j=32 k=9", NARROW)
    other = plan("ab-ac-cb", "a=24 b=32 c=9", NARROW, scheme="[Rb,Rc,Ra,U6,a,Vb]")
    assert str(other.scheme) == "[Rb,Rc,Ra,U6,a,Vb]"
    assert other.nest.bands[0].box == (("a", 6), ("b", 4), ("c", 1))
    assert found[0].whatif(compute=2.0).scheme == found[0].scheme
    with pytest.raises(PlanError, match="made by 'scheme', not by the solver"):
        assert found[0].setting


def test_vectors_lie_along_the_given_letter():
    """Another letter than C's last one: C is written across its rows."""
    assert check("ji-ik-kj", 32, "[Rk,Ri,Rj,U4,i,Vj]").solution.vector == "j"
    assert Problem.of("ji-ik-kj", 32).spec.output.letters[-1] == "i"
