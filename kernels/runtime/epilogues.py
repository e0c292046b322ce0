"""Epilogues: passes over tiles of C once their last products are added, while they are near.

`s` is a state (`state`), a program has `epilogue_fields`. A pass goes along runs: indices of rows,
or of columns, that are side by side in C and at one distance in each operand.
"""

from __future__ import annotations

from math import erf, exp, sqrt, tanh
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilesolve.kernels.runtime import epilogue_fields as fields
from tilesolve.kernels.runtime import state
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    REAL,
    address,
    as_pointer,
    compiled,
    inlined,
    renew,
)
from tilesolve.packing import table_fields as table
from tilesolve.packing.sizes import WORD_BYTES

_intrinsic: Any = intrinsic  # numba's types do not describe it well

_HALF_ROOT, _TANH_SCALE, _CUBE = sqrt(0.5), sqrt(2 / 3.141592653589793), 0.044715


def _pointer_to(kind: Any) -> Any:
    """Return what turns an address into a pointer to numbers of a type."""

    @_intrinsic
    def pointer(_context, place):
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(place), generate

    return pointer


_to_singles, _to_doubles = _pointer_to(types.float32), _pointer_to(types.float64)
_to_complex_singles = _pointer_to(types.complex64)
_to_complex_doubles = _pointer_to(types.complex128)


@_intrinsic
def _double(_context, bits):
    """Return the double that has some bits."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        return builder.bitcast(args[0], ir.DoubleType())

    return REAL(bits), generate


@_intrinsic
def _at(_context, place, like):
    """Return an address as a pointer of the type of another one."""

    def generate(context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        return builder.inttoptr(args[0], context.get_value_type(like))

    return like(place, like), generate


@_intrinsic
def _real_like(_context, value, like):
    """Return a double as a real number of the size that a pointer's numbers have."""
    element = getattr(like.dtype, "underlying_float", like.dtype)

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        single = element == types.float32
        return builder.fptrunc(args[0], ir.FloatType()) if single else args[0]

    return element(value, like), generate


@inlined
def _scale(p, count, place, distance, size):
    """Multiply a run by an operand."""
    q = _at(place, p)
    if distance == size:
        for at in range(count):
            p[at] *= q[at]
    elif distance == 0:
        factor = q[0]
        for at in range(count):
            p[at] *= factor
    else:
        for at in range(count):
            p[at] *= _at(place + at * distance, p)[0]


@inlined
def _add(p, count, place, distance, size):
    """Add an operand to a run."""
    q = _at(place, p)
    if distance == size:
        for at in range(count):
            p[at] += q[at]
    elif distance == 0:
        summand = q[0]
        for at in range(count):
            p[at] += summand
    else:
        for at in range(count):
            p[at] += _at(place + at * distance, p)[0]


@inlined
def _limit(p, count, code, first, second):
    """Apply what compares numbers with limits; what is no number stays so."""
    low, high = _real_like(first, p), _real_like(second, p)
    if code == fields.RELU:
        zero = _real_like(0.0, p)
        for at in range(count):
            x = p[at].real
            x = zero if x <= zero else x
            p[at] = high if x > high else x
    elif code == fields.CLIP:
        for at in range(count):
            x = p[at].real
            x = low if x < low else x
            p[at] = high if x > high else x
    else:
        zero = _real_like(0.0, p)
        for at in range(count):
            x = p[at].real
            p[at] = x * low if x < zero else x


@inlined
def _curve(p, count, code):
    """Apply a smooth function, computed in doubles."""
    for at in range(count):
        x = float(p[at].real)
        if code == fields.TANH:
            y = tanh(x)
        elif code == fields.SIGMOID:
            y = 1 / (1 + exp(-x))
        elif code == fields.SILU:
            y = x / (1 + exp(-x))
        elif code == fields.GELU:
            y = x * (1 + erf(x * _HALF_ROOT)) / 2
        else:
            y = x * (1 + tanh(_TANH_SCALE * (x + _CUBE * x * x * x))) / 2
        p[at] = _real_like(y, p)


@inlined
def _run_program(s, p, count, x, y, b, down, size):
    """Apply all steps to a run of C that begins at an index along it and one across it."""
    program = s[state.EPILOGUE_PROGRAM]
    for number in range(as_pointer(program)[fields.STEPS]):
        step = as_pointer(program + WORD_BYTES * (fields.SIZE + fields.STEP_WORDS * number))
        code = step[fields.CODE]
        if code <= fields.ADD:
            operand = step[fields.OPERAND]
            told = s[state.BOX_OPERANDS] + WORD_BYTES * fields.OPERAND_WORDS * operand
            known = as_pointer(told)
            along = as_pointer(known[fields.ROWS if down else fields.COLUMNS])
            across = as_pointer(known[fields.COLUMNS if down else fields.ROWS])
            place = as_pointer(s[state.OPERANDS])[operand] + known[fields.BEGIN] + along[x]
            place += across[y] + as_pointer(known[fields.BATCHES])[b]
            distance = along[x + 1] - along[x] if count > 1 else 0
            if code == fields.SCALE:
                _scale(p, count, place, distance, size)
            else:
                _add(p, count, place, distance, size)
        elif code <= fields.LEAKY:
            first, second = _double(step[fields.FIRST_NUMBER]), _double(step[fields.SECOND_NUMBER])
            _limit(p, count, code, first, second)
        else:
            _curve(p, count, code)


@inlined
def _steady_run(s, x, most, operands, down, X, size):
    """Return how many indices from one on are side by side in C and steady in each operand."""
    count = min(X[X[table.STEADY] + x], most)
    offsets = X[table.OFFSETS]
    if count > 1 and X[offsets + x + 1] - X[offsets + x] != size:
        return 1
    for operand in range(operands):
        told = s[state.BOX_OPERANDS] + WORD_BYTES * fields.OPERAND_WORDS * operand
        steady = fields.ROWS_STEADY if down else fields.COLUMNS_STEADY
        count = min(count, as_pointer(as_pointer(told)[steady])[x])
    return count


@inlined
def _pass_over(s, r, n, k, b, R, N, K, B, like, size):
    """Go over what a segment of the first level has of C, if it has the last of all sums."""
    sums = _find_indices(K, k)
    if not s[state.HAS_LAST_SUM] or sums[1] < s[state.SUM_COUNT]:
        return
    r0, r1 = _find_indices(R, r)
    n0, n1 = _find_indices(N, n)
    b0, b1 = _find_indices(B, b)
    operands = s[state.OPERAND_COUNT]
    down = _steady_run(s, r0, r1 - r0, operands, True, R, size)
    across = _steady_run(s, n0, n1 - n0, operands, False, N, size)
    goes_down = down >= across
    X, x0, x1, Y, y0, y1 = N, n0, n1, R, r0, r1
    if goes_down:
        X, x0, x1, Y, y0, y1 = R, r0, r1, N, n0, n1
    for batch in range(b0, b1):
        out = s[state.OUTPUT] + B[B[table.OFFSETS] + batch]
        for y in range(y0, y1):
            line = out + Y[Y[table.OFFSETS] + y]
            x = x0
            while x < x1:
                count = _steady_run(s, x, x1 - x, operands, goes_down, X, size)
                p = _at(line + X[X[table.OFFSETS] + x], like)
                _run_program(s, p, count, x, y, batch, goes_down, size)
                x += count


@inlined
def _find_indices(X, segment):
    """Return the range of indices of a segment of the first level."""
    bounds = X[table.BOUNDS + 1] + segment
    return X[X[table.BOUNDS] + X[bounds]], X[X[table.BOUNDS] + X[bounds + 1]]


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def _pass_singles(s, r, n, k, b, R, N, K, B):
    _pass_over(s, r, n, k, b, R, N, K, B, _to_singles(0), 4)


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def _pass_doubles(s, r, n, k, b, R, N, K, B):
    _pass_over(s, r, n, k, b, R, N, K, B, _to_doubles(0), 8)


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def _pass_complex_singles(s, r, n, k, b, R, N, K, B):
    _pass_over(s, r, n, k, b, R, N, K, B, _to_complex_singles(0), 8)


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def _pass_complex_doubles(s, r, n, k, b, R, N, K, B):
    _pass_over(s, r, n, k, b, R, N, K, B, _to_complex_doubles(0), 16)


renew(__name__)

ADDRESSES = {
    "float32": address(_pass_singles),
    "float64": address(_pass_doubles),
    "complex64": address(_pass_complex_singles),
    "complex128": address(_pass_complex_doubles),
}
"""Where the pass of each dtype is."""
