"""The printed expressions: Table 1 of the paper, and equality with the price."""

from itertools import pairwise, product
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import specs
from turns import examples

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.model.access import touched_bytes
from tilesolve.model.formulas import (
    complete_orders,
    listing,
    name_tile,
    output_stationary_order,
    write_formulas,
)
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import tree_of
from tilesolve.model.nest import Nest
from tilesolve.model.traffic import count_traffic

# Rows i2 of Table 1: which tiles equal their extent, and the amounts of A, B and C.
TABLE_1 = {
    (False, False, False): ("Ni*Nk*Nj/Tj", "Nj*Nk*Ni/Ti", "Ni*Nj"),
    (False, False, True): ("Ni*Tk", "Nj*Tk*Ni/Ti", "Ni*Nj"),
    (False, True, False): ("Ni*Nk*Nj/Tj", "Tj*Nk*Ni/Ti", "Ni*Tj"),
    (False, True, True): ("Ni*Tk", "Tj*Tk", "Ni*Tj"),
    (True, False, False): ("Ti*Nk*Nj/Tj", "Nj*Nk*Ni/Ti", "Ti*Nj"),
    (True, False, True): ("Ti*Tk", "Nj*Tk*Ni/Ti", "Ti*Nj"),
    (True, True, False): ("Ti*Nk*Nj/Tj", "Tj*Nk*Ni/Ti", "Ti*Tj"),
    (True, True, True): ("Ti*Tk", "Tj*Tk", "Ti*Tj"),
}


@pytest.mark.parametrize("whole", TABLE_1)
def test_one_level_matrix_product_is_table_1(whole):
    """All eight fits of the one-level matrix product have the paper's amounts."""
    extents = {"i": 60, "j": 84, "k": 132}
    tiles = {i: extents[i] if w else extents[i] // 12 for i, w in zip("ijk", whole, strict=True)}
    values = {f"N_{i}": n for i, n in extents.items()} | {f"T1_{i}": t for i, t in tiles.items()}
    names = {f"N{i}": n for i, n in extents.items()} | {f"T{i}": t for i, t in tiles.items()}
    found = {e.tensor: e.at(values) for e in write_formulas("ij-ik-kj", ["kji"])}
    expected = [eval(amount, {}, names) for amount in TABLE_1[whole]]
    assert [found["A"], found["B"], found["C"]] == expected


def test_the_listing_has_a_row_for_each_fit():
    """The printed table of one level has the eight rows of Table 1, in its order."""
    rows = listing("ij-ik-kj", ["kji"]).splitlines()
    assert len(rows) == 9
    assert rows[1].startswith("T1_i < N_i, T1_j < N_j, T1_k < N_k")
    assert rows[8].split() == [
        *["T1_i", "=", "N_i,", "T1_j", "=", "N_j,", "T1_k", "=", "N_k"],
        "T1_i·T1_j",
        "T1_i·T1_k",
        "T1_j·T1_k",
    ]


def test_the_usual_order_keeps_the_output():
    """Summed letters come innermost, the output's first letter outermost."""
    assert output_stationary_order(Spec.parse("ab-cad-dcb")) == "cdba"


def test_just_one_case_holds():
    """The guards of an expression split all fits among its cases."""
    for expression in write_formulas("hk-[2h+r]c-rck", ["ck", "hr"]):
        symbols = [(f"T1_{i}", f"T2_{i}", f"N_{i}") for i in "hkrc"]
        for fits in product([False, True], repeat=8):
            values = {}
            for (t1, t2, n), (first, second) in zip(
                symbols, zip(fits[::2], fits[1::2], strict=True), strict=True
            ):
                values |= {n: 8, t2: 8 if second else 4}
                values[t1] = values[t2] if first else values[t2] // 2
            held = [all(g.holds(values) for g in guards) for guards, _ in expression.cases]
            assert sum(held) == 1


@st.composite
def tilings(draw, spec):
    """Draw a problem, loop orders, and tiles of one to three levels that divide each other."""
    levels = draw(st.integers(1, 3))
    around = ["".join(draw(st.permutations(spec.letters))) for _ in range(levels)]
    sizes, tiles = {}, [{} for _ in range(levels)]
    for letter in spec.letters:
        size = draw(st.integers(2, 3))
        for level in range(levels):
            tiles[level][letter] = size
            size *= draw(st.sampled_from([1, 6, 7, 8]))
        sizes[letter] = size
    return Problem.of(spec, sizes), around, tiles


plain = specs(operands=(1, 3), letters="abcde", affine=False, diagonal=False, max_order=3)
affine = specs(operands=(1, 3), letters="abcd", affine=True, diagonal=False, max_order=2)


def priced(problem, around, tiles):
    """Return what each level takes in by the price.

    Levels have room for their tile and what its next loop brings, but for no larger tile.
    """
    stores = [LevelView("none", 1.0, 1, "", 1.0)]
    boxes = [*tiles, dict(problem.sizes)]
    for at, (box, outer) in enumerate(pairwise(boxes), start=1):
        room = 2 * sum(touched_bytes(problem, box))
        order = output_stationary_order(problem.spec) if at > len(around) else around[at - 1]
        first = next((i for i in order if outer[i] > box[i]), None)
        if first is not None:
            grown = {**box, first: outer[first]}
            assume(sum(touched_bytes(problem, grown)) > room)
        elif at < len(tiles):
            assume(False)
        stores.append(LevelView(f"L{at}", room, 1, "", 1.0))
    bands = [("L1", output_stationary_order(problem.spec), tiles[0])]
    for level, order in enumerate(around, start=1):
        outer = tiles[level] if level < len(tiles) else dict(problem.sizes)
        bands.append((f"L{level + 1}", order, outer))
    found = count_traffic(tree_of(problem, Nest.of(problem, bands)), stores)
    return [[size / problem.itemsize for size in level] for level in found.moved[1:]]


def symbolic(problem, around, tiles):
    """Return the same by the expressions."""
    values = {f"N_{i}": n for i, n in problem.sizes.items()}
    for level, box in enumerate(tiles, start=1):
        values |= {name_tile(level, i, len(tiles)): size for i, size in box.items()}
    found = write_formulas(problem.spec, around)
    tensors = len(problem.spec.tensors)
    return [
        [e.at(values) for e in found[at : at + tensors]] for at in range(0, len(found), tensors)
    ]


@given(st.data())
@examples(50, 150)
def test_expressions_are_the_price_of_contractions(data):
    """For tiles that fill their levels the expressions give what `price` does."""
    problem, around, tiles = data.draw(tilings(data.draw(plain)))
    assert symbolic(problem, around, tiles) == [
        pytest.approx(level) for level in priced(problem, around, tiles)
    ]


@given(st.data())
@examples(50, 150)
def test_expressions_are_the_price_of_convolutions(data):
    """With affine subscripts too, unless a stride or a repeated letter leaves gaps, not counted."""
    problem, around, tiles = data.draw(tilings(data.draw(affine)))
    exact = priced(problem, around, tiles)
    boxes = [*tiles, problem.sizes]
    twice = any(
        sum(len(s.terms) for s in t.subscripts) > len(t.letters) for t in problem.spec.tensors
    )
    gaps = twice or any(
        len(s.terms) > 1
        and 1 + sum(c * (box[i] - 1) for c, i in s.terms) > prod(box[i] for i in s.letters)
        for tensor in problem.spec.tensors
        for s in tensor.subscripts
        for box in boxes
    )
    for found, expected in zip(symbolic(problem, around, tiles), exact, strict=True):
        if gaps:
            assert all(a >= b * (1 - 1e-12) for a, b in zip(found, expected, strict=True))
        else:
            assert found == pytest.approx(expected)


def test_orders_are_completed():
    """Letters that an order leaves out follow in the spec's order."""
    assert complete_orders(Spec.parse("ij-ik-kj"), ["k", "ij"]) == ["kij", "ijk"]
