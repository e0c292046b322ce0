"""What ``tilesolve calibrate`` and ``tilesolve kernels`` show: levels, peaks, register tiles."""

from __future__ import annotations

from tilesolve.calibration.calibrate import Calibration
from tilesolve.kernels.microkernel_costs import Catalogue
from tilesolve.machine.costs import COST_NAMES
from tilesolve.machine.model import Machine
from tilesolve.show.machine_tables import describe_wait
from tilesolve.system.tables import Table
from tilesolve.system.units import format_rate, format_size

LEVEL_COLUMNS = {
    "level": "left",
    "size": "right",
    "serves up to": "right",
    "load-FMA-store": "right",
    "read only": "right",
    "non-temporal store": "right",
    "all cores": "right",
    "latency": "right",
    "start of a run": "right",
    "spread": "right",
}

PEAK_COLUMNS = {
    "dtype": "left",
    "bits": "right",
    "one core": "right",
    "all cores": "right",
}


SUMS = (24, 256)
"""Lengths of sums in the table: a short one, which shows what calls cost, and a usual one."""


def list_calibration_tables(calibration: Calibration) -> list[Table]:
    """Return a calibration's levels, its arithmetic peaks per second and per cycle, and its costs.

    An assumed figure has a question mark. The best round counts; the spread says how far the
    median one stays behind it.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> [len(part.rows) for part in list_calibration_tables(Calibration(machine, (), (), (), 0.0))]
    [4, 2, 0]
    """
    machine = calibration.machine
    spreads = {p.name: f"{p.spread:.1%}" for p in calibration.plateaus if p.samples}
    levels = [
        (
            level.name,
            format_size(level.capacity) + _doubt(machine, f"{level.name}.capacity"),
            _served(machine, level.name),
            format_rate(level.bandwidth, machine.frequency)
            + _doubt(machine, f"{level.name}.bandwidth"),
            format_rate(level.read, machine.frequency),
            format_rate(level.stream, machine.frequency),
            format_rate(level.bandwidth_all, machine.frequency),
            describe_wait(level.latency, machine.frequency),
            describe_wait(level.start, machine.frequency),
            spreads.get(level.name, "-"),
        )
        for level in machine.levels
    ]
    peaks = [
        (
            peak.dtype,
            str(peak.bits),
            _flops(peak.flops, machine.frequency),
            _flops(peak.flops_all, machine.frequency),
        )
        for peak in machine.peaks
    ]
    clock = (
        f"{machine.cores} cores at {machine.frequency / 1e9:.3g} GHz, an FMA takes "
        f"{machine.fma_latency} cycles; ? is assumed"
    )
    return [
        Table(f"Machine {machine.name}", LEVEL_COLUMNS, levels),
        Table("Arithmetic peak", PEAK_COLUMNS, peaks, caption=clock),
        _cost_table(calibration),
    ]


def _cost_table(calibration: Calibration) -> Table:
    """Return what was measured of the costs that plans count with, and how many are assumed."""
    machine = calibration.machine
    rows = [
        (
            one.figure.removeprefix("costs."),
            f"{one.value:.4g}",
            f"{one.spread:.1%}",
            f"refused: {one.fault}" if one.fault else "measured",
        )
        for one in calibration.costs
    ]
    others = [name for name in COST_NAMES if machine.source(f"costs.{name}") == "assumed"]
    columns = {"cost": "left", "value": "right", "spread": "right", "source": "left"}
    caption = f"{len(others)} of {len(COST_NAMES)} costs are assumed: see 'tilesolve machine'"
    return Table("Costs", columns, rows, caption=caption)


def _doubt(machine: Machine, figure: str) -> str:
    return " ?" if machine.source(figure) == "assumed" else ""


def _served(machine: Machine, name: str) -> str:
    """Return the effective capacity of a level, and its share of the whole."""
    level = machine.level(name)
    if level.capacity is None:
        return "all"
    share = f"{format_size(level.usable)} ({level.effective:.0%})"
    return share + _doubt(machine, f"{name}.effective")


def _flops(flops: float | None, frequency: float) -> str:
    if flops is None:
        return "-"
    return f"{flops / 1e9:.4g} GFLOP/s ({flops / frequency:.3g} flop/cycle)"


def catalogue_table(catalogue: Catalogue) -> Table:
    """Return the speed of all register tiles, in percent of the fastest one's rate.

    Examples
    --------
    >>> from tilesolve.kernels.microkernel_costs import RegisterTile
    >>> tiles = RegisterTile(1, 1, 4.0, 20.0), RegisterTile(1, 2, 4.0, 20.0)
    >>> len(catalogue_table(Catalogue("float64", 256, 16, tiles)).rows)
    2
    """
    most = max(tile.vectors for tile in catalogue.tiles)
    found = {(tile.vectors, tile.columns): tile for tile in catalogue.tiles}
    columns = {"columns": "right"} | {_height(vectors): "right" for vectors in range(1, most + 1)}
    rows = []
    for wide in sorted({tile.columns for tile in catalogue.tiles}):
        row = [str(wide)]
        for vectors in range(1, most + 1):
            tile = found.get((vectors, wide))
            shares = [f"{catalogue.share(tile, sums):.0%}" for sums in SUMS] if tile else []
            row.append(" ".join(f"{share:>4}" for share in shares))
        rows.append(tuple(row))
    short, usual = SUMS
    caption = f"percent of the fastest rate, summing {short} and {usual} products"
    if catalogue.in_place_rows_slowdown is not None:
        caption += f"; rows read in place take {catalogue.in_place_rows_slowdown:g} times as long"
    if catalogue.in_place_columns_slowdown is not None:
        caption += f"; columns {catalogue.in_place_columns_slowdown:g} times"
    if catalogue.aliased_store_slowdown is not None:
        times = catalogue.aliased_store_slowdown
        caption += f"; aliased lines of C, with non-temporal stores, {times:g} times"
    if catalogue.prefetch_gain_ratio is not None:
        times = catalogue.prefetch_gain_ratio
        caption += f"; prefetching the next rows before these takes {times:g} times as long"
    title = f"{catalogue.dtype}, vectors of {catalogue.bits} bits"
    return Table(title, columns, rows, caption=caption)


def _height(vectors: int) -> str:
    return "1 vector" if vectors == 1 else f"{vectors} vectors"
