"""Sines, cosines, tangents and angles in LLVM IR, on numbers and on vectors.

Tangents of single angles, and sines and cosines of large ones, are computed in double precision.
An angle is so many quarter turns and a rest, by a half of one at most, with more digits than a
double has: the quarter turn is split so that its multiples are exact (Cody and Waite 1980), and
beyond these, multiples of four quarters are left out of the product with its inverse (Payne and
Hanek 1983). The series are those of Sun's fdlibm and of Moshier's Cephes.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import inf, pi

from llvmlite import ir

from tilesolve.kernels.ir.doubled import (
    Doubled,
    exact_product,
    exact_sum,
    ordered_sum,
    split_constant,
)
from tilesolve.kernels.ir.exponentials import format_of, polynomial
from tilesolve.kernels.ir.masking import gather
from tilesolve.kernels.ir.reals import Real, Rounded
from tilesolve.kernels.ir.vectors import INT64, broadcast, constant, reduce, retype

_PI_DIGITS = (1 << 1280, 300)
"""The unit of pi's digits here, and terms of the series that find them."""

_QUARTER_BITS = (33, 66, 99)
"""Where the parts of the quarter turn end whose multiples are exact."""

_FAR = 2.0**20
"""From here on angles take more digits of pi."""

_STEP = 16
"""Powers of two between the entries of the table of inverses."""

_WHOLE = 2.0**60
"""Doubles beyond it are multiples of four."""

_ENTRIES = 61
"""Entries for all exponents of doubles."""

_SMALL = 2.0**-27
"""Below it a number is its sine and its tangent."""

_SINGLE_BITS, _SINGLE_FAR, _SINGLE_SMALL = (11, 23, 35), 2.0**12, 2.0**-12
"""The same of single precision, from where on doubles are used, and where a number is its sine."""

_SINGLE_SINES = [-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4]
_SINGLE_COSINES = [4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5]
_SINES = [
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
]
_COSINES = [
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
]
_ARCS = [
    -6.485021904942025371773e1,
    -1.228866684490136173410e2,
    -7.500855792314704667340e1,
    -1.615753718733365076637e1,
    -8.750608600031904122785e-1,
]
_ARC_DIVISORS = [
    1.945506571482613964425e2,
    4.853903996359136964868e2,
    4.328810604912902668951e2,
    1.650270098316988542046e2,
    2.485846490142306297962e1,
    1.0,
]
_SINGLE_ARCS = [-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2]
_ARC_END, _SINGLE_ARC_END = 0.66, 0.414
"""Ratios beyond it are turned back by an eighth of a turn."""


def sine(x: Real) -> Real:
    """Return the sine of an angle."""
    return _sine_after(x, 0)


def cosine(x: Real) -> Real:
    """Return the cosine of an angle."""
    return _sine_after(x, 1)


def tangent(x: Real) -> Real:
    """Return the tangent of an angle."""
    quarters, sines, cosines, wide = _take_sides(x)
    odd = _bit(x.builder, quarters, 0)
    found = wide.choose(odd, -cosines, sines) / wide.choose(odd, sines, cosines)
    return wide.choose(abs(wide) < _SMALL, wide, found).cast(x.element)


def arctan2(y: Real, x: Real) -> Real:
    """Return the angle of a point with the coordinates x and y, from -pi to pi."""
    builder, sizes, form = x.builder, (abs(y), abs(x)), format_of(x.value.type)
    single = x.element == ir.FloatType()
    steep = sizes[0] > sizes[1]
    most, least = x.choose(steep, *sizes), x.choose(steep, *reversed(sizes))
    limit = 2.0 ** (form.bias - form.fraction)
    huge, tiny = most > limit, most < 1 / limit
    unit = most.choose(huge, 2.0**-60, most.choose(tiny, 2.0**60, 1))
    most, least = most * unit, least * unit
    endless = least.equals(inf)
    far = builder.or_(endless, least > most * (_SINGLE_ARC_END if single else _ARC_END))
    ratio = x.choose(far, least - most, least) / x.choose(far, least + most, most)
    ratio = x.choose(builder.or_(endless, most.equals(0)), 0, ratio)
    square = ratio * ratio
    if single:
        share = square * polynomial(_SINGLE_ARCS, square)
    else:
        share = square * polynomial(_ARCS, square) / polynomial(_ARC_DIVISORS, square)
    arc = ratio + ratio * share
    eighths = x.choose(far, 1, 0)
    bits = builder.bitcast(x.value, retype(x.value.type, ir.IntType(form.bits)))
    negative = builder.icmp_signed("<", bits, constant(bits.type, 0))
    for turns, back in ((2, steep), (4, negative)):
        eighths = x.choose(back, turns - eighths, eighths)
        arc = x.choose(back, -arc, arc)
    high, low = split_constant(_pi() / 4, (form.fraction - 4,))
    found = (eighths * high + (arc + eighths * low)).call("copysign", y)
    unknown = builder.fcmp_unordered("uno", x.value, y.value)
    return x.choose(unknown, x + y, found)


def hypotenuse(x: Real, y: Real) -> Real:
    """Return the distance of a point from zero."""
    kind, first, second = x.element, abs(x), abs(y)
    if kind == ir.FloatType():
        wide = [one.cast(ir.DoubleType()) for one in (first, second)]
        found = (wide[0] * wide[0] + wide[1] * wide[1]).call("sqrt").cast(kind)
    else:
        most = first.choose(first > second, first, second)
        small, large = most < 2.0**-500, most > 2.0**500
        unit = most.choose(small, 2.0**600, most.choose(large, 2.0**-600, 1))
        back = most.choose(small, 2.0**-600, most.choose(large, 2.0**600, 1))
        first, second = first * unit, second * unit
        found = (first * first + second * second).call("sqrt") * back
    endless = x.builder.or_(abs(x).equals(inf), abs(y).equals(inf))
    return found.choose(endless, inf, found)


def _sine_after(x: Real, shift: int) -> Real:
    """Return the sine of an angle and so many quarter turns, none or one."""
    if x.element == ir.FloatType():
        return _single_sine_after(x, shift)
    quarters, sines, cosines, _ = _take_sides(x)
    found = _of_quarter(quarters, shift, sines, cosines)
    return found if shift else x.choose(abs(x) < _SMALL, x, found)


def _single_sine_after(x: Real, shift: int) -> Real:
    """Return the same in single precision; of large angles it is computed in double precision."""
    builder, rounder = x.builder, format_of(x.value.type).rounder
    turned = x * (2 / pi) + rounder
    turns, rest = turned - rounder, x
    for part in split_constant(_pi() / 2, _SINGLE_BITS):
        rest = rest - turns * part
    z = rest * rest
    sines = rest + rest * z * polynomial(_SINGLE_SINES, z)
    cosines = 1 - (0.5 * z - z * z * polynomial(_SINGLE_COSINES, z))
    quarters = builder.bitcast(turned.value, retype(x.value.type, ir.IntType(32)))
    found = _of_quarter(quarters, shift, sines, cosines)
    found = found if shift else x.choose(abs(x) < _SINGLE_SMALL, x, found)
    far = builder.not_(abs(x) < _SINGLE_FAR)

    def emit_far() -> list[ir.Value]:
        wide = _sine_after(x.cast(ir.DoubleType()), shift).cast(x.element)
        return [x.choose(far, wide, found).value]

    return x.of(_where_some(builder, far, [found.value], emit_far)[0])


def _take_sides(x: Real) -> tuple[ir.Value, Real, Real, Real]:
    """Return the quarter turns in an angle, sine and cosine of the rest, and it as a double."""
    wide = x.cast(ir.DoubleType())
    quarters, rest = _reduce(wide)
    high, low = (Real(x.builder, one.value) for one in (rest.high, rest.low))
    z = high * high
    r, v = polynomial(_SINES[1:], z), z * high
    sines = high - ((z * (0.5 * low - v * r) - low) - v * _SINES[0])
    half = 0.5 * z
    w = 1 - half
    r = z * polynomial(_COSINES, z)
    cosines = w + (((1 - w) - half) + (z * r - high * low))
    return quarters, sines, cosines, wide


def _of_quarter(quarters: ir.Value, shift: int, sines: Real, cosines: Real) -> Real:
    """Return the sine of a rest so many quarter turns on."""
    builder = sines.builder
    turned = builder.add(quarters, constant(quarters.type, shift))
    found = sines.choose(_bit(builder, turned, 0), cosines, sines)
    return found.choose(_bit(builder, turned, 1), -found, found)


def _bit(builder: ir.IRBuilder, whole: ir.Value, at: int) -> ir.Value:
    """Return a bit of an integer."""
    found = builder.and_(whole, constant(whole.type, 1 << at))
    return builder.icmp_unsigned("!=", found, constant(whole.type, 0))


def _reduce(x: Real) -> tuple[ir.Value, Doubled]:
    """Return the quarter turns in an angle, of which two bits are right, and the rest."""
    builder = x.builder
    form = format_of(x.value.type)
    first, second, third, last = split_constant(_pi() / 2, _QUARTER_BITS)
    single = Rounded(builder, x.value)
    turned = single * (2 / pi) + form.rounder
    turns = turned - form.rounder
    near = exact_sum(single - turns * first, -(turns * second))
    after = exact_sum(near.high, -(turns * third))
    rest = ordered_sum(after.high, (near.low + after.low) - turns * last)
    quarters = builder.bitcast(turned.value, retype(x.value.type, INT64))
    far = builder.not_(abs(x) < _FAR)

    def reduce_far() -> list[ir.Value]:
        found, others = _reduce_far(single)
        large = (found, others.high.value, others.low.value)
        return [builder.select(far, *pair) for pair in zip(large, usual, strict=True)]

    usual = [quarters, rest.high.value, rest.low.value]
    quarters, high, low = _where_some(builder, far, usual, reduce_far)
    return quarters, Doubled(single.of(high), single.of(low))


def _where_some(
    builder: ir.IRBuilder,
    some: ir.Value,
    values: list[ir.Value],
    emit: Callable[[], list[ir.Value]],
) -> list[ir.Value]:
    """Return what code gives that runs where a bit is set, in any lane, and values elsewhere."""
    some = reduce(builder, "or", some) if isinstance(some.type, ir.VectorType) else some
    before, inside, after = (builder.block, *map(builder.append_basic_block, ("far", "near")))
    builder.cbranch(some, inside, after)
    builder.position_at_end(inside)
    others, end = emit(), builder.block
    builder.branch(after)
    builder.position_at_end(after)
    found = []
    for value, other in zip(values, others, strict=True):
        found.append(builder.phi(value.type))
        found[-1].add_incoming(value, before)
        found[-1].add_incoming(other, end)
    return found


def _reduce_far(x: Rounded) -> tuple[ir.Value, Doubled]:
    """Return the quarter turns in an angle of any size, and the rest."""
    builder, kind, form = x.builder, x.value.type, format_of(x.value.type)
    whole = retype(kind, INT64)
    bits = builder.bitcast(x.value, whole)
    exponent = builder.and_(
        builder.lshr(bits, constant(whole, form.fraction)), constant(whole, 2 * form.bias + 1)
    )
    beyond = builder.sub(exponent, constant(whole, form.bias + form.fraction))
    steps = builder.ashr(beyond, constant(whole, _STEP.bit_length() - 1))
    steps = builder.select(
        builder.icmp_signed("<", steps, constant(whole, 0)), constant(whole, 0), steps
    )
    moved = builder.mul(steps, constant(whole, _STEP << form.fraction))
    scaled = x.of(builder.bitcast(builder.sub(bits, moved), kind))
    inverse = [x.of(one) for one in _read_table(builder, steps, kind)]
    products = [exact_product(scaled, one) for one in inverse]
    first = exact_sum(_wrap(products[0].high), _wrap(products[0].low))
    second = exact_sum(first.high, _wrap(products[1].high))
    turned = second.high + form.rounder
    rest = Doubled(second.high - (turned - form.rounder), second.low)
    for small in (first.low, products[1].low, products[2].high, products[2].low, products[3].high):
        rest = rest + small
    rest = rest + x * 0  # nothing, or no number
    high, low = split_constant(_pi() / 2, (52,))
    rest = rest * Doubled(x.number(high), x.number(low))
    return builder.bitcast(turned.value, whole), rest


def _wrap(x: Rounded) -> Rounded:
    """Return a number without a multiple of four; one beyond `_WHOLE` is such a multiple."""
    rounder = format_of(x.value.type).rounder
    x = x.choose(abs(x) < _WHOLE, x, 0)
    for unit in (2.0**12, 4.0):
        x = x - unit * ((x * (1 / unit) + rounder) - rounder)
    return x


def _read_table(builder: ir.IRBuilder, at: ir.Value, kind: ir.Type) -> list[ir.Value]:
    """Return the parts of two over pi times a power of two, but for multiples of four."""
    name, parts = "inverse_quarters", 4
    table = builder.module.globals.get(name)
    if table is None:
        numbers = [part for entry in _list_inverses(parts) for part in entry]
        row = ir.ArrayType(ir.DoubleType(), len(numbers))
        # GPUs have their tables in global memory, which has a number.
        space = 1 if builder.module.triple.startswith(("nvptx", "spirv")) else 0
        table = ir.GlobalVariable(builder.module, row, name, addrspace=space)
        table.linkage, table.global_constant = "internal", True
        table.initializer = row([ir.DoubleType()(number) for number in numbers])
    if not isinstance(kind, ir.VectorType):
        first = builder.mul(at, INT64(parts))
        places = [builder.add(first, INT64(part)) for part in range(parts)]
        origin = ir.FormattedConstant(
            ir.PointerType(addrspace=table.addrspace), table.get_reference()
        )
        addresses = [builder.gep(origin, [one], source_etype=kind) for one in places]
        return [builder.load(one, typ=kind) for one in addresses]
    origin, size = builder.ptrtoint(table, INT64), 8
    offsets = builder.mul(at, constant(at.type, parts * size))
    found = []
    for part in range(parts):
        place = builder.add(origin, INT64(part * size))
        address = builder.add(broadcast(builder, place, at.type), offsets)
        places = builder.inttoptr(address, ir.VectorType(ir.PointerType(), kind.count))
        found.append(gather(builder, places, kind, constant(retype(kind, ir.IntType(1)), 1)))
    return found


def _list_inverses(parts: int) -> list[list[float]]:
    """Return the rows of the table: each part has the next digits."""
    found = []
    for entry in range(_ENTRIES):
        rest = 2 ** (_STEP * entry) * 2 / _pi() % 4
        row: list[float] = []
        for _ in range(parts):
            part = Fraction(float(rest))
            row.append(float(part))
            rest -= part
        found.append(row)
    return found


@cache
def _pi() -> Fraction:
    """Return pi with the digits that the largest double takes (Machin's formula)."""
    unit, terms = _PI_DIGITS

    def arc(divisor: int) -> int:
        powers = (unit // divisor ** (2 * at + 1) for at in range(terms))
        return sum((-1) ** at * one // (2 * at + 1) for at, one in enumerate(powers))

    return Fraction(4 * (4 * arc(5) - arc(239)), unit)
