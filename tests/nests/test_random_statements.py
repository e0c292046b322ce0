"""Statements drawn at random, through the front door, against their evaluation.

Calls are drawn, too: arrays by position and by name, of any strides, byte order and alignment, and
results that lie between the elements of an input or in a larger array.
"""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support import guard_pages
from tilesolve.contractions.errors import DtypeError, PlanError, TilesolveError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages

DTYPES = ("bool", "int8", "int32", "int64", "uint8", "uint16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int8", "int64", "uint8", "uint32", "uint64")
EXTENTS = (1, 1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 33)
AXES = {"A": 2, "B": 1, "C": 2, "E": 3, "v": 1, "T": 1}
PLACES = 5
"""Elements of an array whose positions are computed."""


def draw_position(rng, letters):
    """A subscript: a letter, mostly with a factor, an offset or a division."""
    letter, other = str(rng.choice(letters)), str(rng.choice(letters))
    forms = [letter] * 5 + [f"{letter}+{rng.integers(1, 4)}", f"2*{letter}", f"{letter}//3"]
    forms += [f"33-{letter}", letter if other == letter else f"{letter}+{other}", "2"]
    return str(rng.choice(forms))


def draw_leaf(rng, letters):
    """An element, a number, a parameter or a letter."""
    name = str(rng.choice(["A", "B", "C", "E"]))
    read = f"{name}[{','.join(draw_position(rng, letters) for _ in range(AXES[name]))}]"
    gather = f"T[v[{draw_position(rng, letters)}]]"
    numbers = [str(rng.integers(9)), "1.5", "a", str(rng.choice(letters))]
    return str(rng.choice([read] * 7 + [gather] * 2 + numbers))


def draw_term(rng, letters, depth):
    """A term of leaves, operations, choices and functions."""
    if depth == 0 or rng.random() < 0.2:
        return draw_leaf(rng, letters)
    one, two, three, four = (draw_term(rng, letters, depth - 1) for _ in range(4))
    operation = rng.choice(["+", "-", "*", "+", "-", "*", "//", "%", "/", "&", "|", "^"])
    comparison = rng.choice(["<", "<=", ">", "==", "!="])
    forms = [f"({one} {operation} {two})"] * 6 + [f"{rng.choice(['min', 'max'])}({one}, {two})"]
    forms += [f"where({one} {comparison} {two}, {three}, {four})", f"abs({one})", f"float32({one})"]
    forms += [f"({three} if {one} {comparison} {two} else {four})"]
    forms += [f"{rng.choice(['real', 'imag', 'conj'])}({one})"]
    return str(rng.choice(forms))


def draw_statement(rng):
    """A statement and its region."""
    output = [str(x) for x in rng.permutation(["i", "j"])[: rng.integers(1, 3)]]
    target, outer = f"o[{','.join(output)}]", draw_term(rng, output, 1)
    term, other = (draw_term(rng, [*output, letter], rng.integers(1, 3)) for letter in "km")
    run, sign = rng.choice(["sum", "prod", "max", "min"]), rng.choice(["+", "+", "*", "|"])
    texts = [f"{target} {sign}= {term}", f"{target} = {run}({term}, k)"]
    texts += [f"o[v[{output[0]}]] {sign}= {term}"]
    texts += [f"{target} = {outer} - {run}({term}, k) * min({other})"]
    texts += [f"{target} = {outer}", f"{target} = {outer} + {target}"]
    at = int(rng.integers(len(texts)))
    first, second = (str(x) for x in rng.choice([*output, "k"] if at < 4 else output, 2))
    where = f"{first} {rng.choice(['<', '>='])} {second} {rng.choice(['+ 0', '+ 1', '- 2'])}"
    return texts[at], where if rng.random() < 0.4 else ""


def draw_values(rng, shape, dtype, name=""):
    """Small numbers of a dtype; positions where subscripts are read from the array."""
    kind = np.dtype(dtype).kind
    low = 0 if kind in "ub" or name == "v" else -9
    high = PLACES if name == "v" else 2 if kind == "b" else 10
    found = rng.integers(low, high, shape) / (4 if kind in "fc" else 1)
    if kind == "c":
        found = found + 0.25j * rng.integers(low, high, shape)
    return found.astype(dtype)


def draw_computation(rng):
    """A statement at some extents, its text, dtypes and sizes; None where it is refused."""
    text, where = draw_statement(rng)
    extents = {letter: int(rng.choice(EXTENTS)) for letter in "ijkm"}
    base = str(rng.choice([*DTYPES, *COMPLEX]))
    kinds = {x: base if rng.random() < 0.7 else str(rng.choice(DTYPES)) for x in (*AXES, "a", "o")}
    kinds |= {"a": "float32"} if kinds["a"] in COMPLEX else {}
    kinds["v"] = str(rng.choice(INTEGERS))
    try:
        (stage,) = parse_stages(text, where or ())
        names = {*(read.array for read in stage.reads), *stage.params}
        shapes = {x: (PLACES,) for x in "oT" if x in names or (x == "o" and stage.update)}
        shapes = {} if stage.in_place else shapes
        sizes = {letter: extents[letter] for letter in stage.letters}
        kinds = {x: kinds[x] for x in kinds if x in names}
        return bind_stages((stage,), sizes, kinds, shapes), text, kinds, {**sizes, **shapes}
    except TilesolveError:  # a position below 0, an operation that a dtype lacks, …
        return None


def place_oddly(values):
    """The same values at an odd address."""
    room = np.zeros(values.nbytes + 1, np.uint8)
    found = room[1:].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


def place_apart(rng, shape, dtype, values):
    """An array for the result: amid its own memory, between elements of an input, or larger.

    Returns it with that input, if there is one, and the memory around it.
    """
    form = rng.choice(["alone", "between", "larger"])
    if form == "between" and values is not None and values.dtype == dtype:
        room = np.ones(2 * max(int(np.prod(shape)), values.size), dtype)
        given = room[::2][: values.size].reshape(values.shape)
        given[...] = values
        return room[1::2][: int(np.prod(shape))].reshape(shape), given, room
    if form == "larger":
        room = np.ones([n + int(rng.integers(3)) for n in shape], dtype)
        return room, None, room
    room = np.ones(int(np.prod(shape)) + 40, dtype)
    return room[20:-20].reshape(shape), None, room


def compare(found, expected, computation, text):
    """Raise an error unless a result is right, to rounding."""
    dtype = computation.output.dtype
    if not dtype.startswith(("float", "complex")):
        np.testing.assert_array_equal(found, expected.astype(dtype), err_msg=text)
        return
    fits = np.isfinite(expected) & (np.abs(expected) < 1e30)
    if "prod(" in text or "*=" in text:  # what overflows meets a zero
        fits &= np.isfinite(found)
    used = [*computation.dtypes.values(), text]
    narrow = any(one in kind for one in ("float32", "complex64") for kind in used)
    scale = (1e-4 if narrow else 1e-9) * (1 + np.abs(expected[fits]).max(initial=0))
    np.testing.assert_allclose(found[fits], expected[fits], rtol=0, atol=scale, err_msg=text)


@examples(10, 40)
@given(st.integers(0, 10**6))
@example(11668)  # a region without points
@example(9574)  # a choice that leaves an argument unread
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_any_statement_is_computed_or_refused(seed):
    """On one and two threads, in each mode; nothing outside of ``out`` or of inputs is touched."""
    rng = np.random.default_rng(seed)
    drawn = draw_computation(rng)
    if drawn is None:
        return
    computation, text, kinds, sizes = drawn
    values = {
        name: draw_values(rng, computation.array(name).shape, computation.dtypes[name], name)
        for name in computation.inputs
    }
    params = {name: draw_values(rng, (), kind).item() for name, kind in computation.params}
    plan = tilesolve.nest(
        computation.stages,
        sizes,
        kinds,
        mode=str(rng.choice(["default", "thesis", "untiled", "plain"])),
        threads=int(rng.integers(1, 3)),
    )
    order = dict.fromkeys(re.findall(r"(\w)\[", text)[1:])
    assert plan.inputs == tuple(order), text
    info = computation.output
    beside = str(rng.choice([x for x in plan.inputs if x != "o"] or [""]))
    out, between, room = place_apart(rng, info.shape, info.dtype, values.get(beside))
    part = out[tuple(map(slice, info.shape))]
    part[...] = 0
    touched = room.copy()
    expected = np.asarray(evaluate(computation, values, params, part.copy()))
    given = {x: guard_pages.give(one, rng) for x, one in values.items()}
    given |= {x: place_oddly(values[x]) for x in values if rng.random() < 0.2}
    given |= {} if between is None else {beside: between}
    first = int(rng.integers(len(given) + 1))
    named = {x: given[x] for x in rng.permutation(plan.inputs[first:]).tolist()}
    ordered = [given[x] for x in plan.inputs[:first]]
    assert plan(*ordered, out=out, **named, **params) is out
    compare(part, expected, computation, text)
    part[...] = 0
    np.testing.assert_array_equal(room, touched)
    refuse_others(rng, plan, given, params, out)


def refuse_others(rng, plan, given, params, out):
    """Inputs of another byte order are, and those that share an element with the result."""
    before = out.copy()
    for name in given:
        other = given[name].astype(given[name].dtype.newbyteorder())
        if other.dtype != given[name].dtype:
            with pytest.raises(DtypeError, match=name):
                plan(**{**given, name: other}, **params, out=out)
    name = str(rng.choice([x for x in given if x != "o"] or [""]))
    if name and given[name].size and given[name].dtype.itemsize <= out.dtype.itemsize and out.size:
        memory = np.zeros(out.nbytes + given[name].nbytes, np.uint8)
        target = memory[: out.nbytes].view(out.dtype).reshape(out.shape)
        shared = memory[out.nbytes - given[name].itemsize :][: given[name].nbytes]
        shared = shared.view(given[name].dtype).reshape(given[name].shape)
        if target.shape == plan.computation.output.shape:
            with pytest.raises(PlanError, match=name):
                plan(**{**given, name: shared}, **params, out=target)
            assert not memory.any()
    np.testing.assert_array_equal(out, before)


@examples(6, 25)
@given(
    st.sampled_from([*DTYPES, "int16", "uint32", "uint64"]),
    st.sampled_from(["sum", "prod", "min", "max", "mean", "count", "+=", "*="]),
    st.sampled_from([1, 7, 8, 33]),
    st.sampled_from([1, 16, 65, 300]),
)
def test_sums_promote_as_numpys_do(dtype, run, rows, columns):
    """``sum`` and ``prod`` are as wide as numpy's; ``+=`` keeps the dtype, as einsum does."""
    text, right = {
        "mean": (f"o[i] = sum(A[i,k], k) / {columns}", lambda A: A.mean(axis=1, dtype=float)),
        "count": ("o[i] = sum(A[i,k] > 1, k)", lambda A: (A > 1).sum(axis=1)),
        "+=": ("o[i] += A[i,k]", lambda A: np.einsum("ik->i", A)),
        "*=": ("o[i] *= A[i,k]", lambda A: np.prod(A, axis=1, dtype=A.dtype)),
    }.get(run, (f"o[i] = {run}(A[i,k], k)", lambda A: getattr(np, run)(A, axis=1)))
    rng = np.random.default_rng([rows, columns])
    ends = (0, 2) if dtype == "bool" else (100, 127)
    A = rng.integers(*ends, (rows, columns)).astype(dtype)
    A = A / 127 if dtype == "float64" else A
    with np.errstate(over="ignore"):
        expected = right(A)
    found = tilesolve.nest(text, {"A": A})(A)
    if dtype != "float32":  # whose means are of float32
        assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "float32" else 1e-13)
