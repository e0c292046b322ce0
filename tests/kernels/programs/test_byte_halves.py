"""Bytes by 16-bit arithmetic: each element is what its statement says, whatever the vectors."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.nests.plan import nest

A, B = "A[y,x]", "B[y,x+1]"
LEAVES = st.sampled_from(
    [*(f"{dtype}({read})" for dtype in ("int16", "uint16") for read in (A, B)), "int16(7)"]
)


@st.composite
def terms(draw, depth=3):
    """A term of 16-bit numbers."""
    if not depth or draw(st.booleans()):
        return draw(LEAVES)
    one, other = (f"int16({draw(terms(depth=depth - 1))})" for _ in range(2))
    shapes = ["({} * 3 - {})", "max({}, {})", "min({}, {})", "(abs({}) & {})", "({} ^ -{})"]
    shapes += ["where({} > {}, A[y,x], 9)", "(({} >> 3) + ({} << 2))"]
    return draw(st.sampled_from(shapes)).format(one, other)


@examples(15, 100)
@given(
    terms(),
    st.sampled_from(["int8", "uint8"]),
    st.sampled_from(["int8", "uint8"]),
    st.integers(1, 3),
    st.sampled_from([1, 31, 33, 63, 64, 65, 127, 129, 200, 600]),
    st.integers(0, 65),
)
def test_bytes_are_what_each_of_them_is(term, kind, made, rows, columns, shift):
    """Behind whole vectors and before them, too; what is around stays as it was."""
    sizes, text = {"y": rows, "x": columns}, f"o[y,x] = {made}({term} + int16({A}))"
    computation = bind_stages(parse_stages(text), sizes, kind)
    rng = np.random.default_rng(columns)
    arrays = {
        name: rng.integers(0, 256, computation.array(name).shape).astype(kind)
        for name in computation.inputs
    }
    expected = evaluate(computation, arrays)
    room = np.full(expected.size + 99, 77, made)
    out = room[shift : shift + expected.size].reshape(expected.shape)
    nest(text, sizes, kind, threads=1)(**arrays, out=out)
    np.testing.assert_array_equal(out, expected)
    assert (room[:shift] == 77).all()
    assert (room[shift + expected.size :] == 77).all()


def test_a_choice_of_two_numbers_is_one_in_the_dtype_it_is_cast_to():
    """Numbers that do not fit wrap around, as NumPy's do."""
    A = np.arange(200, dtype="uint8")
    for kind in ("uint8", "int16", "float32", "bool"):
        found = nest(f"o[i] = {kind}(where(A[i] > 50, 300, -1))", {"A": A.shape}, "uint8")(A)
        np.testing.assert_array_equal(found, np.where(A > 50, 300, -1).astype(kind))
        assert found.dtype == kind
