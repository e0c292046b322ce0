"""Pixels: vectors of a channel, taken out of elements that take turns, and put back."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.vectors import INT64


def choose_lanes(
    builder: ir.IRBuilder,
    loaded: Sequence[ir.Value],
    begins: Sequence[int],
    wanted: Sequence[int],
) -> ir.Value:
    """Return a vector of elements that lie in some vectors, by where they lie."""
    count = len(wanted)
    if len(loaded) == 1 and list(wanted) == list(range(count)):
        return loaded[0]
    found = loaded[0]
    order = [where if where < count else 0 for where in wanted]
    if len(loaded) == 1:
        return vectors.shuffle(builder, found, found, order)
    for at, (piece, begin) in enumerate(zip(loaded[1:], begins[1:], strict=True)):
        before = order if at == 0 else list(range(count))
        mixed = [
            count + where - begin if begin <= where < begin + count and where >= count else keep
            for where, keep in zip(wanted, before, strict=True)
        ]
        found = vectors.shuffle(builder, found, piece, mixed)
    return found


def load_pixels(
    builder: ir.IRBuilder,
    where: ir.Value,
    kind: ir.VectorType,
    channel: tuple[int, int | None],
    mask: ir.Value | None,
) -> ir.Value:
    """Load a channel of as many pixels as a vector has lanes.

    Where the channel is known, whole pixels are loaded, which other channels share.

    Parameters
    ----------
    builder
        Where to write.
    where
        The first pixel; or its element, if the channel is not known.
    kind
        Of the vector.
    channel
        How many channels there are, and which is wanted; None if that is not known.
    mask
        The pixels that are there; None for all.

    Examples
    --------
    >>> builder, address = vectors.example_function()
    >>> where = vectors.to_pointer(builder, address)
    >>> print(load_pixels(builder, where, ir.VectorType(ir.IntType(8), 16), (3, 1), None).type)
    <16 x i8>
    """
    count, (channels, wanted) = kind.count, channel
    span = channels * (count - 1) + 1 if wanted is None else channels * count
    begins = [min(begin, span - count) for begin in range(0, span, count)]
    first = wanted or 0
    loaded = []
    for begin in begins:
        place = builder.gep(where, [INT64(begin)], source_etype=kind.element)
        if mask is None:
            loaded.append(vectors.load(builder, place, kind, 1))
            continue
        back = channels - 1 if wanted is None else 0
        lanes = [(at + back) // channels for at in range(begin, begin + count)]
        there = vectors.shuffle(builder, mask, mask, lanes)
        loaded.append(masking.load_masked(builder, place, kind, there))
    return choose_lanes(builder, loaded, begins, [first + channels * lane for lane in range(count)])


def store_pixels(
    builder: ir.IRBuilder, values: Sequence[ir.Value], where: ir.Value, mask: ir.Value | None
) -> None:
    """Store vectors of all channels, so that the elements of a pixel lie side by side.

    Examples
    --------
    >>> builder, address = vectors.example_function()
    >>> where = vectors.to_pointer(builder, address)
    >>> channel = load_pixels(builder, where, ir.VectorType(ir.IntType(8), 16), (3, 1), None)
    >>> store_pixels(builder, [channel] * 3, where, None)
    >>> print(builder.block.instructions[-1].operands[0].type)
    <16 x i8>
    """
    kind, channels = values[0].type, len(values)
    for begin in range(0, channels * kind.count, kind.count):
        places = range(begin, begin + kind.count)
        lanes = [at // channels for at in places]
        found = vectors.shuffle(builder, values[0], values[0], lanes)
        for channel, value in enumerate(values[1:], 1):
            order = [
                kind.count + at // channels if at % channels == channel else at - begin
                for at in places
            ]
            found = vectors.shuffle(builder, found, value, order)
        place = builder.gep(where, [INT64(begin)], source_etype=kind.element)
        if mask is None:
            vectors.store(builder, found, place, 1)
        else:
            there = vectors.shuffle(builder, mask, mask, lanes)
            masking.store_masked(builder, found, place, there)
