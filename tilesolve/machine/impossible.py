"""Measured microkernels that the arithmetic peak of the same file rules out.

The computer was busy when they were measured. Plans would choose such a register tile for
everything, as all are compared with the fastest. See
``docs/decisions/044-probes-of-microkernels.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilesolve.kernels.dtypes import real_of
from tilesolve.kernels.microkernel_costs import Catalogue, product_cycles
from tilesolve.machine.level import Peak


def peak_of(peaks: Iterable[Peak], dtype: str, bits: int) -> float:
    """Return the flop/s of one core for a dtype and vectors of a width; 0 where none are known.

    Examples
    --------
    >>> peak_of([Peak("float64", 256, 64e9)], "complex128", 256)
    64000000000.0
    """
    wanted = real_of(dtype), bits
    return max((one.flops for one in peaks if (one.dtype, one.bits) == wanted), default=0.0)


def describe_impossible(catalogue: Catalogue, product: float) -> str:
    """Return what is said of a catalogue with tiles faster than the peak; nothing without any.

    Examples
    --------
    >>> from tilesolve.kernels.microkernel_costs import RegisterTile
    >>> tiles = RegisterTile(3, 8, 24.3, 50.0), RegisterTile(1, 7, 6.86, 0.0)
    >>> describe_impossible(Catalogue("float32", 512, 32, tiles), 1.0)
    'float32, tile 1x7: 6.86 cycles a step, 7 at the peak'
    """
    found = [tile for tile in catalogue.tiles if not tile.is_possible(product)]
    if not found:
        return ""
    worst = min(found, key=lambda tile: tile.step / (tile.vectors * tile.columns))
    least = worst.vectors * worst.columns * product
    others = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"{catalogue.dtype}, tile {worst.vectors}x{worst.columns}: {worst.step:.4g} cycles a "
        f"step, {least:.4g} at the peak{others}"
    )


def split_catalogues(
    catalogues: Sequence[Catalogue], peaks: Sequence[Peak], frequency: float
) -> tuple[tuple[Catalogue, ...], tuple[str, ...]]:
    """Return the catalogues that a measured peak allows, and what is said of the others.

    One impossible figure shows that the clock was misread, for the other tiles of the dtype too.
    """
    told = []
    for one in catalogues:
        peak = peak_of(peaks, one.dtype, one.bits)
        cycles = product_cycles(one.dtype, one.bits, frequency, peak) if peak else 0.0
        told.append(describe_impossible(one, cycles))
    kept = tuple(one for one, text in zip(catalogues, told, strict=True) if not text)
    return kept, tuple(filter(None, told))
