"""The microkernel that plans count with: a register tile and what using it costs on a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesolve.kernels.dtypes import lanes
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
        """Return the same where packing and reading in place cost a share of what they do.

        Examples
        --------
        >>> Microkernel(rows=24, columns=8).scale_reading(0.4).pack_cycles
        1.0
        """
        return replace(
            self,
            pack_cycles=share * self.pack_cycles,
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


def _least_rows_slowdown(machine: Machine) -> float:
    """Return how many times as long steps take at least that read rows in place.

    With few registers tiles are small, and addresses take as many loads as elements.
    """
    few = machine.vector_registers < MANY_REGISTERS
    return machine.costs.in_place_rows_slowdown if few else 1.0
