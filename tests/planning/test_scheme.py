"""Schemes: what TTile's paper writes, read, printed and measured."""

from dataclasses import replace

import pytest

from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.planning.composition.scheme import (
    Scheme,
    Sequence,
    Tile,
    Unrolled,
    print_specifier,
)

LAYER = "[T16,k,T1,h,λseqh β.[(2,11),(1,12)],T17,w,T1,h,T1,h,T3,s,T3,r,T2,w,T256,c,Uβ,h,U2,k,Vk]"
PAPER = (
    "[Ri,Rj,Rk]",
    "[Rj,Rk,Ri,T8,j,T12,i,T64,k,U6,i,U2,j,Vj]",
    "[Rj,λseqi α.[(12,6),(8,7)],T64,k,Uα,i,U2,j,Vj]",
    "[T512,c,U8,h,U2,k,Vk]",
    "[T512,c,U3,s,U8,h,U2,k,Vk]",
    "[T512,c,U3,r,U8,h,U2,k,Vk]",
    "[T512,c,U3,r,U3,s,U8,h,U2,k,Vk]",
    LAYER,
)


@pytest.mark.parametrize("text", PAPER)
def test_round_trip(text):
    """What is printed is read as the same value, with and without spaces."""
    scheme = Scheme.of(text)
    assert Scheme.of(str(scheme)) == scheme
    assert Scheme.of(str(scheme).replace(",", ", ")) == scheme
    assert str(scheme).replace("λh ", "λseqh ").replace("λi ", "λseqi ") == text


def test_the_layer_of_the_paper_is_covered_exactly():
    """Section 5.3: sizes multiply out to the layer, with vectors of 16."""
    sizes = {"k": 512, "h": 34, "w": 34, "c": 256, "r": 3, "s": 3}
    assert Scheme.of(LAYER).covered(sizes, 16) == sizes
    for letter in sizes:
        with pytest.raises(SizeError, match=f"of '{letter}', whose extent is {sizes[letter] + 1}"):
            Scheme.of(LAYER).covered({**sizes, letter: sizes[letter] + 1}, 16)


def expand(loops):
    """A scheme's text with sequences of loops in place of λ (section 6.1)."""
    for at, one in enumerate(loops):
        if isinstance(one, Sequence):
            branches = []
            for trips, size in one.loops:
                inner = [
                    replace(loop, trips=size)
                    if isinstance(loop, Unrolled) and loop.trips == one.name
                    else loop
                    for loop in loops[at + 1 :]
                ]
                branches.append(expand([Tile(trips, one.letter), *inner]))
            return write([*loops[:at], f"Seq({','.join(branches)})"])
    return write(loops)


def write(loops):
    return f"[{','.join(one if isinstance(one, str) else print_specifier(one) for one in loops)}]"


def test_the_product_of_the_paper_is_covered_exactly():
    """Figure 5: 128 rows are 12 times 6 and 8 times 7, and each has a branch of its own."""
    scheme = Scheme.of(PAPER[2])
    sizes = {"i": 128, "j": 128, "k": 64}
    assert scheme.covered(sizes, 8) == sizes
    assert expand(scheme.specifiers) == (
        "[Rj,Seq([T12,i,T64,k,U6,i,U2,j,Vj],[T8,i,T64,k,U7,i,U2,j,Vj])]"
    )
    with pytest.raises(SizeError, match="no letter of the spec"):
        scheme.covered({"i": 128, "j": 128}, 8)


def test_a_rest_is_a_whole_number_of_tiles():
    """No partial tiles: 130 columns are not tiles of 16."""
    with pytest.raises(SizeError, match="covers 128 of 'j', whose extent is 130"):
        Scheme.of("[Rj,U2,j,Vj]").covered({"j": 130}, 8)


@pytest.mark.parametrize(
    "text",
    [
        "Ri",
        "[Ri,]",
        "[X2,i]",
        "[T,i]",
        "[Vj,Ri]",
        "[Vi,Vj]",
        "[Ri,Ri]",
        "[T0,i]",
        "[Uα,i]",
        "[Uα,i,λi α.[(1,2),(1,3)]]",
        "[λi α.[(1,2),(1,3)],Uα,j]",
        "[λi α.[(1,2),(1,3)],Uα,i,Uα,i]",
        "[λi α.[(1,2),(1,3)],Ri]",
        "[λi α.[(1,2)],Uα,i]",
        "[RiRj]",
    ],
)
def test_what_is_no_scheme_is_refused(text):
    """Errors are documented ones, not those of the parser's tools."""
    with pytest.raises(PlanError, match="scheme"):
        Scheme.of(text)
