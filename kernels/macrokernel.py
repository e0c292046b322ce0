"""The macrokernel: walks a nest, packs what is new, and calls a microkernel for each tile.

It is compiled once. Everything that a plan decides reaches it as data: a *state*, an array of
integers laid out by `S`, and a table per role. Numba's globals are constants of the compiled
code, so the fields are spelled out as plain integers below.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tilesolve.kernels import microkernel, packers
from tilesolve.kernels.code import MOST_COLUMNS, MOST_VECTORS
from tilesolve.kernels.microkernel import Mode
from tilesolve.packing.tables import Field

_intrinsic: Any = intrinsic
_njit: Any = njit  # numba's types describe neither of the two well
LEVELS = 8
"""Levels of a nest at most, the cells included."""

ROWS, COLUMNS, SUMS, BATCHES = range(4)
"""The roles of indices."""


class S(IntEnum):
    """Fields of a state; those of operands are pairs, of the rows' and the columns' operand.

    Examples
    --------
    >>> S.PACKER - S.FRAME >= len(microkernel.FIELDS)
    True
    """

    FRAME = 0
    """The microkernel's frame: `microkernel.FIELDS`."""
    PACKER = 24
    """The packing kernels' frame: `packers.FIELDS`."""
    TOP = 40
    """The outermost level that this state walks."""
    ORDERS = 41
    """For each level its four roles, innermost loop first."""
    SCRATCH = ORDERS + 4 * LEVELS
    """For each level the ends and the current segment of each role."""
    LEVEL = SCRATCH + 8 * LEVELS
    """At which level the operand is packed; 0: never."""
    WAY = LEVEL + 2
    """Which packing kernel: a number of `packers.KINDS`."""
    SOURCE = WAY + 2
    """Address of the operand."""
    BUFFER = SOURCE + 2
    """Address of its packed copy."""
    STEP = BUFFER + 2
    """Bytes of one k of a strip."""
    STRIP = STEP + 2
    """Bytes of a strip."""
    GROUP = STRIP + 2
    """Indices of a group."""
    HELD = GROUP + 2
    """What the copy is of: segment of rows or columns, of sums, of batches; -1 at first."""
    ORIGIN = HELD + 6
    """First group and first k of the copy."""
    BATCH = ORIGIN + 4
    """First batch of the copy."""
    PLANE = BATCH + 2
    """Bytes of one batch of the copy."""
    PLACED_ROWS = PLANE + 2
    """Address of a table of offsets of packed rows or columns, for kernels that read in place."""
    PLACED_SUMS = PLACED_ROWS + 2
    """Address of a table of offsets of packed k."""
    PACKERS = PLACED_SUMS + 2
    """Addresses of the packing kernels of both operands."""
    OUTPUT = PACKERS + 8
    """Address of the output."""
    FIRST = OUTPUT + 1
    """Whether this box has the first k of all."""
    MODE = FIRST + 1
    """How C is written the first time: vectors, elements."""
    LATER = MODE + 2
    """The same for all further times."""
    BETA = LATER + 2
    """Two words of beta, for the first time; two words of one for later."""
    ALIGNED = BETA + 4
    """Whether streaming stores may be used."""
    TABLES = ALIGNED + 1
    """Addresses of the roles' tables."""
    CALLS = TABLES + 4
    """Calls of the microkernel so far."""
    PACKED = CALLS + 1
    """Groups packed so far, times their k."""
    CELLS = PACKED + 2
    """How many cells of rows and of columns there are."""
    SELF = CELLS + 2
    """Address of the state."""
    TRACING = SELF + 1
    """Where the trace begins; 0 if calls are not traced."""
    KERNELS = TRACING + 1
    """Addresses of the kernels that read strips, then of those that read in place."""
    SIZE = KERNELS + 2 * MOST_VECTORS * MOST_COLUMNS


TRACE = 9
"""Integers of one traced call: first index and count of rows, columns and sums, the batch, the
way of writing, the kind of kernel."""

_F = {name: S.FRAME + at for at, name in enumerate(microkernel.FIELDS)}
_A, _B, _K = _F["a"], _F["b"], _F["k"]
_A_STEP, _B_STEP = _F["a_step"], _F["b_step"]
_ROWS_A, _COLUMNS_B = _F["rows_a"], _F["columns_b"]
_SUMS_A, _SUMS_B = _F["sums_a"], _F["sums_b"]
_A_AHEAD, _B_AHEAD = _F["a_ahead"], _F["b_ahead"]
_C, _ROWS_C, _COLUMNS_C = _F["c"], _F["rows_c"], _F["columns_c"]
_COUNT, _MODE, _BETA = _F["rows"], _F["mode"], _F["beta"]
_P = {name: S.PACKER + at for at, name in enumerate(packers.FIELDS)}
_P_SOURCE, _P_TARGET, _P_STRIP = _P["source"], _P["target"], _P["strip"]
_P_ROWS, _P_GROUPS, _P_SUMS = _P["rows"], _P["groups"], _P["sums"]
_P_STEPS, _P_FIRST, _P_COUNT, _P_LANES = _P["steps"], _P["first"], _P["count"], _P["lanes"]
_PACKER = int(S.PACKER)
_TOP, _ORDERS, _SCRATCH = int(S.TOP), int(S.ORDERS), int(S.SCRATCH)
_LEVEL, _WAY, _SOURCE, _BUFFER = int(S.LEVEL), int(S.WAY), int(S.SOURCE), int(S.BUFFER)
_STEP, _STRIP, _GROUP, _HELD = int(S.STEP), int(S.STRIP), int(S.GROUP), int(S.HELD)
_ORIGIN, _PLACED_ROWS, _PLACED_SUMS = int(S.ORIGIN), int(S.PLACED_ROWS), int(S.PLACED_SUMS)
_PACKERS, _OUTPUT, _FIRST = int(S.PACKERS), int(S.OUTPUT), int(S.FIRST)
_WRITE, _LATER, _BETAS, _TABLES = int(S.MODE), int(S.LATER), int(S.BETA), int(S.TABLES)
_SELF, _TRACING = int(S.SELF), int(S.TRACING)
_CELLS, _BATCH, _PLANE = int(S.CELLS), int(S.BATCH), int(S.PLANE)
_CALLS, _PACKED, _KERNELS = int(S.CALLS), int(S.PACKED), int(S.KERNELS)
_BOUNDS, _OFFSETS, _PLACES = int(Field.BOUNDS), int(Field.OFFSETS), int(Field.PLACES)
_FIRSTS, _STARTS, _COUNTS = int(Field.FIRSTS), int(Field.STARTS), int(Field.COUNTS)
_WHOLE, _STORED, _BLOCKS = int(Field.WHOLE), int(Field.STORED), int(Field.BLOCKS)
_COUNTING = int(Field.COUNTING)
_COPY, _TURN_SUMS, _TURN_ROWS, _GATHER = (
    packers.KINDS.index(kind) for kind in ("copy", "turn_sums", "turn_rows", "gather")
)
_STREAM = int(Mode.STREAM)
_STORE = int(Mode.STORE)

WIDEST = 64
"""Indices whose packed offsets are tabulated: more than any tile has."""
_MOST_VECTORS, _MOST_COLUMNS = MOST_VECTORS, MOST_COLUMNS
_ARRAY = types.Array(types.int64, 1, "C")
_STATE = types.CPointer(types.int64)  # type: ignore[no-untyped-call] # which, unlike an array, has no index from the end to check
_TRACED = types.Array(types.int64, 2, "C")
_INT = types.int64


@_intrinsic
def _invoke(_context, address, frame):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Call the machine code at an address with the address of its frame."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> None:  # noqa: ANN401
        kind = ir.FunctionType(ir.VoidType(), (ir.IntType(64),))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])

    return types.void(address, frame), generate


@_intrinsic
def _pointer(_context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return an address as a pointer to integers."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:  # noqa: ANN401
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return _STATE(address), generate


_functions: list[Any] = []


def _compiled(*signature: Any) -> Any:  # noqa: ANN401 - numba's types have none
    """Return a decorator that compiles at once, or takes what an earlier process compiled."""

    def decorate(function: Any) -> Any:  # noqa: ANN401
        kind = signature[0] if function.__name__ == "_layout" else types.void(*signature)
        options = {"nogil": True, "error_model": "numpy"}
        try:
            found = _njit(kind, cache=True, **options)(function)
        except RuntimeError:  # no folder for numba's cache can be written
            found = _njit(kind, **options)(function)
        _functions.append(found)
        return found

    return decorate


@_compiled(_INT, _INT, _INT, _INT)
def _offsets(table, group, step, strip):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Write where the indices of packed groups lie: for kernels that read in place."""
    found = _pointer(table)
    size = step // group
    for index in range(WIDEST):
        found[index] = index // group * strip + index % group * size


@_compiled(_STATE, _INT, _INT, _STATE, _INT, _STATE, _INT, _INT, _INT)
def _gather(s, side, origin, X, g, K, steps, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Pack one group element by element: the k in ``low:high`` of a table of them."""
    s[_P_TARGET] = origin + g * s[_STRIP + side]
    s[_P_ROWS] = s[_TABLES + side] + 8 * (X[_OFFSETS + 1 + side] + X[X[_STARTS] + g])
    s[_P_STEPS] = s[_TABLES + 2] + 8 * steps
    s[_P_FIRST] = low
    s[_P_COUNT] = high - low
    s[_P_LANES] = X[X[_COUNTS] + g]
    _invoke(s[_PACKERS + 4 * side + _GATHER], s[_SELF] + 8 * _PACKER)


@_compiled(_STATE, _INT, _INT, _INT, _INT, _INT, _INT, _INT, _INT, _STATE, _STATE)
def _fill(s, side, origin, x, k, g0, g1, k0, k1, X, K):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Pack one batch of a segment: groups ``g0:g1``, k ``k0:k1``."""
    group, strip = s[_GROUP + side], s[_STRIP + side]
    s[_P_SUMS] = s[_TABLES + 2] + 8 * K[_OFFSETS + 1 + side]
    frame = s[_SELF] + 8 * _PACKER
    way = s[_WAY + side]
    whole, everything = X[_WHOLE], K[_COUNTING]
    if way == _COPY:
        g = g0
        while g < g1:
            if X[whole + g]:
                end = g + 1
                while end < g1 and X[whole + end]:
                    end += 1
                s[_P_TARGET] = origin + g * strip
                s[_P_ROWS] = s[_TABLES + side] + 8 * (X[_FIRSTS] + g)
                s[_P_GROUPS] = end - g
                s[_P_FIRST], s[_P_COUNT] = k0, k1 - k0
                _invoke(s[_PACKERS + 4 * side + _COPY], frame)
                g = end
            else:
                _gather(s, side, origin, X, g, K, everything, k0, k1)
                g += 1
    elif way == _TURN_SUMS:
        table = _BLOCKS + 4 * side
        low, high = K[K[table] + k], K[K[table] + k + 1]
        rest_low, rest_high = K[K[table + 2] + k], K[K[table + 2] + k + 1]
        for g in range(g0, g1):
            if X[X[_COUNTS] + g] < group:
                _gather(s, side, origin, X, g, K, everything, k0, k1)
                continue
            s[_P_TARGET] = origin + g * strip
            s[_P_ROWS] = s[_TABLES + side] + 8 * (X[_OFFSETS + 1 + side] + X[X[_STARTS] + g])
            s[_P_STEPS] = s[_TABLES + 2] + 8 * K[table + 1]
            s[_P_FIRST], s[_P_COUNT] = low, high - low
            _invoke(s[_PACKERS + 4 * side + _TURN_SUMS], frame)
            if rest_high > rest_low:
                _gather(s, side, origin, X, g, K, K[table + 3], rest_low, rest_high)
    elif way == _TURN_ROWS:
        table = _BLOCKS + 4 * side
        for block in range(X[X[table] + x], X[X[table] + x + 1]):
            at = X[table + 1] + block * group
            g = X[at]
            s[_P_TARGET] = origin
            s[_P_ROWS] = s[_TABLES + side] + 8 * (X[_OFFSETS + 1 + side] + X[X[_STARTS] + g])
            s[_P_STEPS] = s[_TABLES + side] + 8 * at
            s[_P_FIRST], s[_P_COUNT] = k0, k1 - k0
            _invoke(s[_PACKERS + 4 * side + _TURN_ROWS], frame)
        for at in range(X[X[table + 2] + x], X[X[table + 2] + x + 1]):
            _gather(s, side, origin, X, X[X[table + 3] + at], K, everything, k0, k1)
    else:
        for g in range(g0, g1):
            _gather(s, side, origin, X, g, K, everything, k0, k1)


@_compiled(_STATE, _INT, _INT, _INT, _INT, _STATE, _STATE, _STATE)
def _pack(s, side, x, k, b, X, K, B):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Pack one segment of an operand, unless the copy holds it already."""
    held = _HELD + 3 * side
    if s[held] == x and s[held + 1] == k and s[held + 2] == b:
        return
    s[held], s[held + 1], s[held + 2] = x, k, b
    level = s[_LEVEL + side]
    first, last, k0, k1, b0, b1 = x, x + 1, k, k + 1, b, b + 1
    for at in range(level, 0, -1):
        first, last = X[X[_BOUNDS + at] + first], X[X[_BOUNDS + at] + last]
        k0, k1 = K[K[_BOUNDS + at] + k0], K[K[_BOUNDS + at] + k1]
        b0, b1 = B[B[_BOUNDS + at] + b0], B[B[_BOUNDS + at] + b1]
    g0, g1 = X[X[_PLACES] + first], X[X[_PLACES] + last]
    k0, k1 = K[K[_BOUNDS] + k0], K[K[_BOUNDS] + k1]
    b0, b1 = B[B[_BOUNDS] + b0], B[B[_BOUNDS] + b1]
    step = s[_STEP + side]
    strip = (k1 - k0) * step
    s[_STRIP + side] = strip
    s[_ORIGIN + 2 * side], s[_ORIGIN + 2 * side + 1] = g0, k0
    plane = (g1 - g0) * strip
    s[_BATCH + side], s[_PLANE + side] = b0, plane
    s[_PACKED + side] += (g1 - g0) * (k1 - k0) * (b1 - b0)
    group = s[_GROUP + side]
    _offsets(s[_PLACED_ROWS + side], group, step, strip)
    s[_P_STRIP] = strip
    for batch in range(b0, b1):
        s[_P_SOURCE] = s[_SOURCE + side] + B[B[_OFFSETS + 1 + side] + batch]
        # Where strip 0 and its first k of the whole table would be.
        origin = s[_BUFFER + side] + (batch - b0) * plane - g0 * strip - k0 * step
        _fill(s, side, origin, x, k, g0, g1, k0, k1, X, K)


@_compiled(_STATE, _INT, _INT, _INT, _INT, _STATE, _STATE, _STATE, _STATE)
def _tile(s, r, n, k, b, R, N, K, B):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Call the microkernel for one cell of each role."""
    r0, r1 = R[R[_BOUNDS] + r], R[R[_BOUNDS] + r + 1]
    n0, n1 = N[N[_BOUNDS] + n], N[N[_BOUNDS] + n + 1]
    k0, k1 = K[K[_BOUNDS] + k], K[K[_BOUNDS] + k + 1]
    place, beside = R[R[_PLACES] + r], N[N[_PLACES] + n]
    groups = R[R[_PLACES] + r + 1] - place
    kind = 0
    if s[_LEVEL]:
        s[_A] = (
            s[_BUFFER]
            + (place - s[_ORIGIN]) * s[_STRIP]
            + (k0 - s[_ORIGIN + 1]) * s[_STEP]
            + (b - s[_BATCH]) * s[_PLANE]
        )
    else:
        kind = 1
    if s[_LEVEL + 1]:
        s[_B] = (
            s[_BUFFER + 1]
            + (beside - s[_ORIGIN + 2]) * s[_STRIP + 1]
            + (k0 - s[_ORIGIN + 3]) * s[_STEP + 1]
            + (b - s[_BATCH + 1]) * s[_PLANE + 1]
        )
    else:
        kind = 1
    if kind:
        if s[_LEVEL]:
            s[_ROWS_A] = s[_PLACED_ROWS]
            s[_SUMS_A] = s[_PLACED_SUMS]
            s[_A_AHEAD] = 0
        else:
            at = R[_OFFSETS + 1]
            s[_A] = s[_SOURCE] + B[B[_OFFSETS + 1] + b]
            s[_ROWS_A] = s[_TABLES] + 8 * (at + r0)
            s[_SUMS_A] = s[_TABLES + 2] + 8 * (K[_OFFSETS + 1] + k0)
            more = r + 1 < s[_CELLS]
            s[_A_AHEAD] = R[at + r1] - R[at + r0] if more else 0
        if s[_LEVEL + 1]:
            s[_COLUMNS_B] = s[_PLACED_ROWS + 1]
            s[_SUMS_B] = s[_PLACED_SUMS + 1]
            s[_B_AHEAD] = 0
        else:
            at = N[_OFFSETS + 2]
            s[_B] = s[_SOURCE + 1] + B[B[_OFFSETS + 2] + b]
            s[_COLUMNS_B] = s[_TABLES + 1] + 8 * (at + n0)
            s[_SUMS_B] = s[_TABLES + 2] + 8 * (K[_OFFSETS + 2] + k0)
            more = n + 1 < s[_CELLS + 1]
            s[_B_AHEAD] = N[at + n1] - N[at + n0] if more else 0
    else:
        s[_A_STEP] = s[_STRIP]
        s[_B_STEP] = s[_STRIP + 1]
    s[_K] = k1 - k0
    s[_C] = s[_OUTPUT] + B[B[_OFFSETS] + b]
    s[_ROWS_C] = s[_TABLES] + 8 * (R[_OFFSETS] + r0)
    s[_COLUMNS_C] = s[_TABLES + 1] + 8 * (N[_OFFSETS] + n0)
    s[_COUNT] = r1 - r0
    scattered = 1 - R[R[_STORED] + r]
    if k0 == 0 and s[_FIRST]:
        s[_MODE] = s[_WRITE + scattered]
        s[_BETA], s[_BETA + 1] = s[_BETAS], s[_BETAS + 1]
    else:
        s[_MODE] = s[_LATER + scattered]
        s[_BETA], s[_BETA + 1] = s[_BETAS + 2], s[_BETAS + 3]
    if s[_TRACING]:
        trace = _pointer(s[_TRACING] + 8 * TRACE * s[_CALLS])
        trace[0], trace[1] = r0, r1 - r0
        trace[2], trace[3] = n0, n1 - n0
        trace[4], trace[5] = k0, k1 - k0
        trace[6], trace[7], trace[8] = b, s[_MODE], kind
    s[_CALLS] += 1
    number = (kind * _MOST_VECTORS + groups - 1) * _MOST_COLUMNS + n1 - n0 - 1
    _invoke(s[_KERNELS + number], s[_SELF])


@_compiled(_INT, _STATE, _INT, _INT, _INT, _INT, _STATE, _STATE, _STATE, _STATE)
def _descend(level, s, r, n, k, b, R, N, K, B):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Walk one segment of each role at a level: pack what lives there, then its loops."""
    if s[_LEVEL] == level:
        _pack(s, 0, r, k, b, R, K, B)
    if s[_LEVEL + 1] == level:
        _pack(s, 1, n, k, b, N, K, B)
    w = _SCRATCH + 8 * level
    at = R[_BOUNDS + level] + r
    s[w], s[w + 4] = R[at], R[at + 1]
    at = N[_BOUNDS + level] + n
    s[w + 1], s[w + 5] = N[at], N[at + 1]
    at = K[_BOUNDS + level] + k
    s[w + 2], s[w + 6] = K[at], K[at + 1]
    at = B[_BOUNDS + level] + b
    s[w + 3], s[w + 7] = B[at], B[at + 1]
    o = _ORDERS + 4 * level
    o0, o1, o2, o3 = w + s[o], w + s[o + 1], w + s[o + 2], w + s[o + 3]
    begin0, begin1, begin2 = s[o0], s[o1], s[o2]
    end0, end1, end2, end3 = s[o0 + 4], s[o1 + 4], s[o2 + 4], s[o3 + 4]
    while s[o3] < end3:
        s[o2] = begin2
        while s[o2] < end2:
            s[o1] = begin1
            while s[o1] < end1:
                s[o0] = begin0
                while s[o0] < end0:
                    if level == 1:
                        _tile(s, s[w], s[w + 1], s[w + 2], s[w + 3], R, N, K, B)
                    else:
                        _descend(
                            level - 1, s, s[w], s[w + 1], s[w + 2], s[w + 3], R, N, K, B
                        )
                    s[o0] += 1
                s[o1] += 1
            s[o2] += 1
        s[o3] += 1


@_compiled(_ARRAY, _ARRAY, _ARRAY, _ARRAY, _ARRAY, _TRACED)
def run(state, rows, columns, sums, batches, trace):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compute one box.

    Parameters
    ----------
    state
        See `S`; is changed.
    rows, columns, sums, batches
        Tables of the four roles; see `tables.table`.
    trace
        An array of `TRACE` columns that receives a row for each call of the microkernel; none if
        it has no rows.

    Examples
    --------
    It is called with the state and the tables that `tilesolve.execution` builds.

    >>> run.nopython_signatures[0].return_type
    none
    """
    state[_HELD : _HELD + 6] = -1
    address = state.ctypes.data
    state[_SELF] = address
    R, N = _pointer(rows.ctypes.data), _pointer(columns.ctypes.data)
    K, B = _pointer(sums.ctypes.data), _pointer(batches.ctypes.data)
    state[_TRACING] = trace.ctypes.data if trace.shape[0] else 0
    _descend(state[_TOP], _pointer(address), 0, 0, 0, 0, R, N, K, B)


_LAYOUT = zlib.crc32(repr([*map(list, (S, Field, Mode)), _F, _P, packers.KINDS]).encode())


@_compiled(_INT())
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for, by all compiled constants."""
    return _LAYOUT


# numba notices a change of this file, but not of those that lay the tables and frames out.
if _layout() != _LAYOUT:
    for _function in _functions:
        _function.recompile()
