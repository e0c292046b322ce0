"""The microkernel that plans count with: a register tile and what using it costs on a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from tilesolve.constants.tuning import MAX_COLUMNS_PER_PASS
from tilesolve.contractions.half_precision import summed_dtype
from tilesolve.kernels.dtypes import halves, lanes, real_of
from tilesolve.kernels.microkernel_costs import (
    MANY_REGISTERS,
    Catalogue,
    RegisterTile,
    default_tile,
)
from tilesolve.machine.costs import DEFAULT_COSTS
from tilesolve.machine.model import Machine


@dataclass(frozen=True, slots=True)
class Microkernel:
    """A register tile and the costs that plans count with.

    Parameters
    ----------
    rows, columns
        MR and NR: elements of the output that stay in registers over a call.
    efficiency
        Share of the machine's peak that its inner loop reaches.
    call_cycles
        Cycles that a call costs besides its arithmetic: entry, and C in and out.
    pack_cycles
        Cycles that packing one element costs.
    window_cycles
        Cycles that one element of a window copy costs.
    in_place_rows_cycles
        Cycles that an element of rows read in place costs each time it enters the second cache.
    in_place_columns_cycles
        Cycles that one of columns read in place costs each time it enters the first.
    in_place_rows_slowdown, in_place_columns_slowdown
        How many times as long the inner loop takes where rows, or columns, are read in place.
    """

    rows: int
    columns: int
    efficiency: float = 1.0
    call_cycles: float = DEFAULT_COSTS.call_cycles
    pack_cycles: float = DEFAULT_COSTS.pack_cycles
    window_cycles: float = DEFAULT_COSTS.window_cycles
    in_place_rows_cycles: float = DEFAULT_COSTS.in_place_rows_cycles
    in_place_columns_cycles: float = DEFAULT_COSTS.in_place_columns_cycles
    in_place_rows_slowdown: float = 1.0
    in_place_columns_slowdown: float = DEFAULT_COSTS.in_place_columns_slowdown

    def scale_reading(self, share: float) -> Microkernel:
        """Return the same where reading in place costs a share of what it does.

        Examples
        --------
        >>> Microkernel(rows=24, columns=8).scale_reading(0.4).in_place_rows_cycles
        0.5
        """
        return replace(
            self,
            in_place_rows_cycles=share * self.in_place_rows_cycles,
            in_place_columns_cycles=share * self.in_place_columns_cycles,
        )


def default_microkernel(machine: Machine, dtype: str) -> Microkernel:
    """Return the microkernel that holds where none has been measured; see `default_tile`.

    Raises
    ------
    MachineError
        If the registers hold no tile at all.
    """
    vectors, columns = default_tile(dtype, machine.vector_bits, machine.vector_registers)
    costs = machine.costs
    return Microkernel(
        vectors * lanes(dtype, machine.vector_bits),
        columns,
        call_cycles=costs.call_cycles,
        pack_cycles=costs.pack_cycles,
        window_cycles=costs.window_cycles,
        in_place_rows_cycles=costs.in_place_rows_cycles,
        in_place_columns_cycles=costs.in_place_columns_cycles,
        in_place_rows_slowdown=_least_rows_slowdown(machine),
        in_place_columns_slowdown=costs.in_place_columns_slowdown,
    )


def measured_microkernel(
    machine: Machine, catalogue: Catalogue, tile: RegisterTile, *, adds: bool = False
) -> Microkernel:
    """Return a measured register tile as plans count with it.

    Where the catalogue lacks a figure, the machine's costs hold. `adds` says whether calls may
    have to add to C.

    Examples
    --------
    >>> tile = RegisterTile(3, 8, step=24.0, call=48.0)
    >>> catalogue = Catalogue("float64", 256, 16, (tile,), in_place_rows_slowdown=1.5)
    >>> machine = Machine.load("i7-6700k")
    >>> found = measured_microkernel(machine, catalogue, tile)
    >>> found.call_cycles, found.in_place_rows_slowdown
    (53.0, 1.5)
    >>> measured_microkernel(machine, catalogue, tile, adds=True).call_cycles
    85.0
    """
    costs = machine.costs
    call = max(tile.call, costs.accumulate_cycles) if adds else tile.call
    return replace(
        default_microkernel(machine, catalogue.dtype),
        rows=tile.vectors * lanes(catalogue.dtype, catalogue.bits),
        columns=tile.columns,
        efficiency=tile.vectors * tile.columns * catalogue.rate / tile.step,
        call_cycles=call + costs.tile_cycles,
        in_place_rows_slowdown=max(
            _least_rows_slowdown(machine), catalogue.in_place_rows_slowdown or 1.0
        ),
        in_place_columns_slowdown=(
            catalogue.in_place_columns_slowdown or costs.in_place_columns_slowdown
        ),
    )


def uses_half_vectors(machine: Machine, dtype: str) -> bool:
    """Return whether kernels had better leave out half a vector that holds nothing.

    The FMAs of such a vector are priced by the peaks of both widths. Halves cost changes from whole
    vectors and back, too, in each pass over the columns of a tile. Where no peak of the half's
    width was measured, nothing is known to gain.

    Examples
    --------
    >>> from tilesolve.machine.level import Peak
    >>> machine = Machine.load("i7-6700k").replace(vector_bits=512)
    >>> peaks = Peak("float32", 512, 134.4e9), Peak("float32", 256, 134.4e9)
    >>> [uses_half_vectors(machine.replace(peaks=peaks[:n]), "float32") for n in (1, 2)]
    [False, True]
    """
    if not halves(dtype, machine.vector_bits):
        return False
    real, bits = real_of(summed_dtype(str(dtype))), machine.vector_bits
    rates = {peak.bits: peak.flops for peak in machine.peaks if peak.dtype == real}
    whole, half = rates.get(bits), rates.get(bits // 2)
    if whole is None or half is None:
        return False
    _, columns = default_tile(dtype, bits, machine.vector_registers)
    flops = 2 * columns * lanes(dtype, bits)
    changes = 2 * ceil(columns / MAX_COLUMNS_PER_PASS) * machine.costs.halved_change_cycles
    return flops / 2 / half + changes / machine.frequency < flops / whole


def _least_rows_slowdown(machine: Machine) -> float:
    """Return how many times as long steps take at least that read rows in place.

    With few registers tiles are small, and addresses take as many loads as elements.
    """
    few = machine.vector_registers < MANY_REGISTERS
    return machine.costs.in_place_rows_slowdown if few else 1.0
