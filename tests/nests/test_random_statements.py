"""Statements drawn at random, through the front door, against their evaluation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesolve
from tests.support import guard_pages
from tilesolve.contractions.errors import TilesolveError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages

DTYPES = ("bool", "int8", "int32", "int64", "uint8", "uint16", "float32", "float64")
EXTENTS = (1, 1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 33)
AXES = {"A": 2, "B": 1, "C": 2, "E": 3}


def draw_position(rng, letters):
    """A subscript: a letter, mostly with a factor, an offset or a division."""
    letter, other = str(rng.choice(letters)), str(rng.choice(letters))
    forms = [letter] * 5 + [f"{letter}+{rng.integers(1, 4)}", f"2*{letter}", f"{letter}//3"]
    forms += [f"33-{letter}", letter if other == letter else f"{letter}+{other}", "2"]
    return str(rng.choice(forms))


def draw_term(rng, letters, depth):
    """A term of reads, numbers, letters, operations, choices and functions."""
    if depth == 0 or rng.random() < 0.2:
        name = str(rng.choice(list(AXES)))
        read = f"{name}[{','.join(draw_position(rng, letters) for _ in range(AXES[name]))}]"
        return str(rng.choice([read] * 7 + [str(rng.integers(9)), "1.5", str(rng.choice(letters))]))
    one, two, three, four = (draw_term(rng, letters, depth - 1) for _ in range(4))
    operation = rng.choice(["+", "-", "*", "+", "-", "*", "//", "%", "/", "&", "|", "^"])
    comparison = rng.choice(["<", "<=", ">", "==", "!="])
    forms = [f"({one} {operation} {two})"] * 6 + [f"{rng.choice(['min', 'max'])}({one}, {two})"]
    forms += [f"where({one} {comparison} {two}, {three}, {four})", f"abs({one})", f"float32({one})"]
    return str(rng.choice(forms))


def draw_statement(rng):
    """A statement and its region."""
    output = [str(x) for x in rng.permutation(["i", "j"])[: rng.integers(1, 3)]]
    target, outer = f"o[{','.join(output)}]", draw_term(rng, output, 1)
    term, other = (draw_term(rng, [*output, letter], rng.integers(1, 3)) for letter in "km")
    letters = [*output, "k"]
    texts = [f"{target} += {term}", f"{target} *= {term}", f"{target} = max({term})"]
    texts += [f"{target} = {outer} - sum({term}, k) * min({other})", f"{target} = {outer}"]
    at = int(rng.integers(len(texts)))
    first, second = (str(x) for x in rng.choice(letters if at < 4 else output, 2))
    where = f"{first} {rng.choice(['<', '>='])} {second} {rng.choice(['+ 0', '+ 1', '- 2'])}"
    return texts[at], where if rng.random() < 0.4 else ""


def draw_values(rng, shape, dtype):
    """Small numbers of a dtype."""
    kind = np.dtype(dtype).kind
    low = 0 if kind in "ub" else -9
    return (rng.integers(low, 2 if kind == "b" else 10, shape) / (4 if kind == "f" else 1)).astype(
        dtype
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_any_statement_is_computed_or_refused(seed):
    """On one and two threads, in each mode; nothing outside of ``out`` or of inputs is touched."""
    rng = np.random.default_rng(seed)
    text, where = draw_statement(rng)
    sizes = {letter: int(rng.choice(EXTENTS)) for letter in "ijkm"}
    base = str(rng.choice(DTYPES))
    kinds = {name: base if rng.random() < 0.7 else str(rng.choice(DTYPES)) for name in AXES}
    try:
        (stage,) = parse_stages(text, where or ())
        sizes = {letter: sizes[letter] for letter in stage.letters}
        kinds = {read.array: kinds[read.array] for read in stage.reads}
        computation = bind_stages((stage,), sizes, kinds)
    except TilesolveError:  # a position below 0, an operation that a dtype lacks, …
        return
    values = {a.name: draw_values(rng, a.shape, a.dtype) for a in computation.arrays[:-1]}
    info = computation.output
    room = np.ones(int(np.prod(info.shape)) + 40, info.dtype)
    out = room[20:-20].reshape(info.shape)
    out[...] = 0
    expected = np.asarray(evaluate(computation, values, out=out))
    plan = tilesolve.nest(
        (stage,),
        sizes,
        kinds,
        mode=str(rng.choice(["default", "thesis", "untiled", "plain"])),
        threads=int(rng.integers(1, 3)),
    )
    plan(*(guard_pages.give(values[name], rng) for name in computation.inputs), out=out)
    if info.dtype.startswith("float"):
        fits = np.isfinite(expected) & (np.abs(expected) < 1e30)
        tolerance = 1e-4 if "float32" in computation.dtypes.values() or "float32" in text else 1e-9
        scale = tolerance * (1 + np.abs(expected[fits]).max(initial=0))
        np.testing.assert_allclose(out[fits], expected[fits], rtol=0, atol=scale, err_msg=text)
    else:
        np.testing.assert_array_equal(out, expected.astype(info.dtype), err_msg=text)
    assert (room[:20] == 1).all()
    assert (room[-20:] == 1).all()
