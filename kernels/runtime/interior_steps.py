"""Newton's steps of the interior point: what `tilesolve.solver.interior` does again and again.

`f` are its fields (`interior_fields`). Matrices lie row by row, a column for each of `n` variables.
"""

from __future__ import annotations

from math import inf

from tilesolve.kernels.codegen.scalars import REALS
from tilesolve.kernels.ir.intrinsics import external, intrinsic
from tilesolve.kernels.ir.vectors import call_alike
from tilesolve.kernels.runtime import interior_fields as fields
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    REAL,
    as_pointer,
    as_real,
    as_reals,
    compiled,
    inlined,
)
from tilesolve.packing.sizes import WORD_BYTES

exponential = external("exp", REAL)
logarithm = external("log", REAL)

UNROLL = False
"""Its loops are short: unrolled they run no faster, and LLVM takes twice as long."""


@intrinsic
def magnitude(builder, value):
    """Return a double without its sign."""
    return call_alike(builder, "fabs", value)


@inlined
def _row(f, field, number):
    """Return a row of an array, of which each has a number for each variable."""
    return as_reals(f[field] + WORD_BYTES * f[fields.VARIABLES] * number)


@inlined
def _all(f, field):
    """Return an array of doubles."""
    return as_reals(f[field])


@compiled(REALS, INT, inner=True)
def _clear(array, count):
    """Set doubles to 0."""
    for at in range(count):
        array[at] = 0.0


@compiled(REALS, INT, REAL, REALS, inner=True)
def _add_square(matrix, n, weight, row):
    """Add to a matrix a weight times the product of a row with itself."""
    for i in range(n):
        part = weight * row[i]
        if part != 0.0:
            for j in range(n):
                matrix[i * n + j] += part * row[j]


@compiled(REALS, REALS, INT, returns=REAL, inner=True)
def _dot(one, other, count):
    """Return the sum of products of two rows."""
    total = 0.0
    for at in range(count):
        total += one[at] * other[at]
    return total


@compiled(POINTER, inner=True)
def _add_up(f):
    """Find each sum, the gradient of its logarithm, and each term's share of it."""
    n, of, x = f[fields.VARIABLES], as_pointer(f[fields.SUM_OF]), _all(f, fields.X)
    logs, totals, shares = _all(f, fields.LOGS), _all(f, fields.TOTALS), _all(f, fields.SHARES)
    _clear(totals, f[fields.SUMS])
    _clear(_all(f, fields.SLOPES), n * f[fields.SUMS])
    for term in range(f[fields.TERMS]):
        shares[term] = exponential(logs[term] + _dot(_row(f, fields.POWERS, term), x, n))
        totals[of[term]] += shares[term]
    for term in range(f[fields.TERMS]):
        powers, slopes = _row(f, fields.POWERS, term), _row(f, fields.SLOPES, of[term])
        shares[term] = shares[term] / totals[of[term]]
        for i in range(n):
            slopes[i] += shares[term] * powers[i]


@compiled(POINTER, REAL, REAL, returns=REAL, inner=True)
def _curve(f, time, scale):
    """Find the objective's gradient, and the Hessian as if bounds were fixed; return what is added.

    That is a scale times the sums that are minimised. Each is bounded by the time.
    """
    n, of = f[fields.VARIABLES], as_pointer(f[fields.SUM_OF])
    totals, opens, extra = _all(f, fields.TOTALS), _all(f, fields.OPENS), _all(f, fields.EXTRA)
    weights, room, bounds = _all(f, fields.WEIGHTS), _all(f, fields.ROOM), _all(f, fields.BOUNDS)
    gradient, hessian = _all(f, fields.GRADIENT), _all(f, fields.HESSIAN)
    shares, added = _all(f, fields.SHARES), 0.0
    _clear(gradient, n)
    _clear(hessian, n * n)
    for s in range(f[fields.SUMS]):
        slopes = _row(f, fields.SLOPES, s)
        room[s] = bounds[s] + opens[s] * time
        extra[s] = scale * opens[s] * totals[s]
        added += extra[s]
        for i in range(n):
            gradient[i] += extra[s] * slopes[i]
        _add_square(hessian, n, -weights[s], slopes)
    for term in range(f[fields.TERMS]):
        weight = (weights[of[term]] + extra[of[term]]) * shares[term]
        _add_square(hessian, n, weight, _row(f, fields.POWERS, term))
    return added


@compiled(POINTER, REAL, returns=REAL, inner=True)
def _take_off(f, scale):
    """Count what sums take off in what bounds them, and in the objective; return that part."""
    n, of, x = f[fields.VARIABLES], as_pointer(f[fields.LESS_OF]), _all(f, fields.X)
    logs, room, opens = _all(f, fields.LESS_LOGS), _all(f, fields.ROOM), _all(f, fields.OPENS)
    parts, gradient, saved = _all(f, fields.PARTS), _all(f, fields.GRADIENT), 0.0
    _clear(_all(f, fields.FALLS), n * f[fields.SUMS])
    for term in range(f[fields.LESS]):
        powers, falls = _row(f, fields.LESS_POWERS, term), _row(f, fields.FALLS, of[term])
        parts[term] = exponential(logs[term] + _dot(powers, x, n))
        room[of[term]] += parts[term]
        part = scale * opens[of[term]] * parts[term]
        saved += part
        for i in range(n):
            falls[i] += parts[term] * powers[i]
            gradient[i] -= part * powers[i]
    return saved


@compiled(POINTER, REAL, inner=True)
def _move_bounds(f, scale):
    """Count that bounds change with the time and with what sums take off."""
    n, of, opens = f[fields.VARIABLES], as_pointer(f[fields.LESS_OF]), _all(f, fields.OPENS)
    weights, room, parts = _all(f, fields.WEIGHTS), _all(f, fields.ROOM), _all(f, fields.PARTS)
    hessian, concave = _all(f, fields.HESSIAN), _all(f, fields.CONCAVE)
    for s in range(f[fields.SUMS]):
        falls, slopes = _row(f, fields.FALLS, s), _row(f, fields.SLOPES, s)
        falls[n - 1] = opens[s]
        for i in range(n):
            falls[i] = falls[i] / room[s]
            slopes[i] -= falls[i]
        _add_square(hessian, n, weights[s], falls)
    _clear(concave, n * n)
    for term in range(f[fields.LESS]):
        weight = weights[of[term]] / room[of[term]] + scale * opens[of[term]]
        _add_square(concave, n, -weight * parts[term], _row(f, fields.LESS_POWERS, term))


@compiled(POINTER, returns=REAL, inner=True)
def _look(f):
    """Find what the program is like at the present point; return what is minimised."""
    n, x, sums, rows = f[fields.VARIABLES], _all(f, fields.X), f[fields.SUMS], f[fields.ROWS]
    totals, opens, weights = _all(f, fields.TOTALS), _all(f, fields.OPENS), _all(f, fields.WEIGHTS)
    row_sums, duals = as_pointer(f[fields.ROW_SUMS]), _all(f, fields.DUALS)
    _add_up(f)
    _clear(weights, sums)
    for at in range(rows):
        weights[row_sums[at]] = duals[at]
    if f[fields.TIMED]:
        scale = _all(f, fields.OPTIONS)[fields.SCALE]
        objective = x[n - 1] + _curve(f, x[n - 1], scale)
        objective -= _take_off(f, scale)
        _all(f, fields.GRADIENT)[n - 1] = 1.0
        _move_bounds(f, scale)
    else:  # the logarithm of their sum is minimised
        _curve(f, 1.0, 1.0 / _dot(opens, totals, sums))
        _add_square(_all(f, fields.HESSIAN), n, -1.0, _all(f, fields.GRADIENT))
        objective = 1.0
    limits, ends, room = _all(f, fields.LIMITS), _all(f, fields.ENDS), _all(f, fields.ROOM)
    for at in range(rows):
        slopes, own = _row(f, fields.LIMIT_SLOPES, at), _row(f, fields.SLOPES, row_sums[at])
        limits[at] = logarithm(totals[row_sums[at]] / room[row_sums[at]])
        for i in range(n):
            slopes[i] = own[i]
    for at in range(f[fields.LINES]):
        limits[rows + at] = _dot(_row(f, fields.LIMIT_SLOPES, rows + at), x, n) - ends[at]
    return objective


@compiled(POINTER, REAL, REAL, returns=INT, inner=True)
def _is_optimal(f, gap, objective):
    """Return whether the equations hold at the point that was looked at."""
    n, options, count = f[fields.VARIABLES], _all(f, fields.OPTIONS), f[fields.ROWS]
    limits, slacks, duals = _all(f, fields.LIMITS), _all(f, fields.SLACKS), _all(f, fields.DUALS)
    gradient, missed, most = _all(f, fields.GRADIENT), _all(f, fields.MISSED), 0.0
    count += f[fields.LINES]
    least = options[fields.RESIDUAL]
    if objective < 1.0:
        objective = 1.0
    holds = 1 if gap <= options[fields.GAP] * objective else 0
    for at in range(count):
        missed[at] = limits[at] + slacks[at]
        if not magnitude(missed[at]) <= least:
            holds = 0
    if not holds:
        return 0
    for i in range(n):
        if magnitude(gradient[i]) > most:
            most = magnitude(gradient[i])
    for i in range(n):
        wrong = gradient[i]
        for at in range(count):
            wrong += duals[at] * _row(f, fields.LIMIT_SLOPES, at)[i]
        if not magnitude(wrong) <= least * (1.0 + most):
            return 0
    return 1


@compiled(REALS, INT, returns=INT, inner=True)
def _is_convex(matrix, n):
    """Return whether a matrix is positive definite; its lower part is not kept."""
    for i in range(n):
        for j in range(i + 1):
            part = matrix[i * n + j]
            for k in range(j):
                part -= matrix[i * n + k] * matrix[j * n + k] * matrix[k * n + k]
            if i == j and not part > 0.0:
                return 0
            matrix[i * n + j] = part if i == j else part / matrix[j * n + j]
    return 1


@compiled(REALS, REALS, INT, returns=INT, inner=True)
def _solve(matrix, side, n):
    """Solve linear equations in place of their right side; return whether they have a solution."""
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if magnitude(matrix[i * n + k]) > magnitude(matrix[pivot * n + k]):
                pivot = i
        if matrix[pivot * n + k] == 0.0:
            return 0
        for j in range(k, n):
            above = matrix[k * n + j]
            matrix[k * n + j] = matrix[pivot * n + j]
            matrix[pivot * n + j] = above
        above = side[k]
        side[k] = side[pivot]
        side[pivot] = above
        for i in range(k + 1, n):
            factor = matrix[i * n + k] / matrix[k * n + k]
            for j in range(k + 1, n):
                matrix[i * n + j] -= factor * matrix[k * n + j]
            side[i] -= factor * side[k]
    for back in range(n):
        k = n - 1 - back
        for j in range(k + 1, n):
            side[k] -= matrix[k * n + j] * side[j]
        side[k] = side[k] / matrix[k * n + k]
        if not magnitude(side[k]) < inf:
            return 0
    return 1


@compiled(POINTER, INT, inner=True)
def _copy_hessian(f, concave):
    """Begin the matrix of Newton's equations: with the Hessian, and its concave part or not."""
    matrix, hessian = _all(f, fields.MATRIX), _all(f, fields.HESSIAN)
    less = _all(f, fields.CONCAVE)
    for at in range(f[fields.VARIABLES] * f[fields.VARIABLES]):
        matrix[at] = hessian[at] + less[at] if concave else hessian[at]


@compiled(POINTER, INT, inner=True)
def _add_limits(f, concave):
    """Find the matrix of Newton's equations, with what is concave or without it."""
    slacks, duals, matrix = _all(f, fields.SLACKS), _all(f, fields.DUALS), _all(f, fields.MATRIX)
    _copy_hessian(f, concave)
    for at in range(f[fields.ROWS] + f[fields.LINES]):
        slopes = _row(f, fields.LIMIT_SLOPES, at)
        _add_square(matrix, f[fields.VARIABLES], duals[at] / slacks[at], slopes)


@compiled(POINTER, REAL, returns=INT, inner=True)
def _find_move(f, aim):
    """Solve Newton's equations for the variables; return whether they have a solution.

    What is concave is left out of them where it would lead to no minimum.
    """
    n, matrix, move = f[fields.VARIABLES], _all(f, fields.MATRIX), _all(f, fields.MOVE)
    slacks, duals, missed = _all(f, fields.SLACKS), _all(f, fields.DUALS), _all(f, fields.MISSED)
    gradient, convex = _all(f, fields.GRADIENT), 0
    for i in range(n):
        move[i] = -gradient[i]
    for at in range(f[fields.ROWS] + f[fields.LINES]):
        slopes = _row(f, fields.LIMIT_SLOPES, at)
        part = (aim + duals[at] * missed[at]) / slacks[at]
        for i in range(n):
            move[i] -= part * slopes[i]
    if f[fields.LESS]:
        _add_limits(f, 1)
        convex = _is_convex(matrix, n)
    _add_limits(f, convex)
    return _solve(matrix, move, n)


@compiled(REALS, REALS, INT, REAL, returns=REAL, inner=True)
def _reach(values, steps, count, most):
    """Return the share of steps, one at most, that leaves all values some of what they have."""
    worst = 0.0
    for at in range(count):
        if -steps[at] > worst * values[at]:
            worst = -steps[at] / values[at]
    return most / worst if most < worst else 1.0


@compiled(POINTER, REAL, returns=REAL, inner=True)
def _go(f, aim):
    """Move as far as all stays positive; return the share of the step."""
    n, count, x, move = f[fields.VARIABLES], f[fields.ROWS], _all(f, fields.X), _all(f, fields.MOVE)
    slacks, duals, missed = _all(f, fields.SLACKS), _all(f, fields.DUALS), _all(f, fields.MISSED)
    nearer, other = _all(f, fields.SLACK_MOVES), _all(f, fields.DUAL_MOVES)
    reach = _all(f, fields.OPTIONS)[fields.REACH]
    count += f[fields.LINES]
    for at in range(count):
        nearer[at] = -missed[at] - _dot(_row(f, fields.LIMIT_SLOPES, at), move, n)
        other[at] = (aim - duals[at] * nearer[at]) / slacks[at] - duals[at]
    far, dual = _reach(slacks, nearer, count, reach), _reach(duals, other, count, reach)
    for i in range(n):
        x[i] += far * move[i]
    for at in range(count):
        slacks[at] += far * nearer[at]
        duals[at] += dual * other[at]
    return far if far < dual else dual


@compiled(INT)
def look(address):
    """Find what the program is like at the present point, given the address of the fields."""
    _look(as_pointer(address))


@compiled(INT, INT, returns=INT)
def take_steps(address, last):
    """Make steps until the equations hold, or up to one of some number.

    Returns 1 where they hold, 0 where they do not yet, and -1 where there is no further step. What
    is worked out is that of the present point.

    Parameters
    ----------
    address
        Of the fields.
    last
        How many steps there may have been in all.
    """
    f = as_pointer(address)
    slacks, duals, options = _all(f, fields.SLACKS), _all(f, fields.DUALS), _all(f, fields.OPTIONS)
    share, count = _all(f, fields.SHARE), f[fields.ROWS] + f[fields.LINES]
    while 1:
        objective, gap = _look(f), _dot(slacks, duals, count)
        if _is_optimal(f, gap, objective):
            return 1
        if f[fields.STEP] == last:
            return 0
        # A gap that closes before limits are met would hold back all further steps.
        aim = share[0] * gap
        if not aim > options[fields.LEAST_GAP]:
            aim = options[fields.LEAST_GAP]
        aim = aim / as_real(count)
        if not _find_move(f, aim):
            return -1
        whole = _go(f, aim) >= options[fields.WHOLE_STEP]
        share[0] = options[fields.NEAR_SHARE] if whole else options[fields.FAR_SHARE]
        f[fields.STEP] += 1
    return -1
