"""What ``tilesolve calibrate`` shows: tables of levels and of arithmetic peaks."""

from __future__ import annotations

from rich.table import Table

from tilesolve.calibration.calibrate import Calibration
from tilesolve.machine.model import Machine
from tilesolve.show.console_tables import text_table
from tilesolve.system.units import format_rate, format_size

LEVEL_COLUMNS = {
    "level": "left",
    "size": "right",
    "serves up to": "right",
    "load-FMA-store": "right",
    "read only": "right",
    "streaming store": "right",
    "all cores": "right",
    "spread": "right",
}

PEAK_COLUMNS = {
    "dtype": "left",
    "bits": "right",
    "one core": "right",
    "all cores": "right",
}


def calibration_tables(calibration: Calibration) -> list[Table]:
    """Return a calibration's levels and its arithmetic peaks, per second and per cycle.

    An assumed figure has a question mark; the spread is how far the median round stays behind the
    best, which is the one that counts.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> [part.row_count for part in calibration_tables(Calibration(machine, (), (), (), 0.0))]
    [4, 2]
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
    apart = machine.memory.lines
    lines = f"past the caches, single lines reach memory at {format_rate(apart, machine.frequency)}"
    return [
        text_table(
            f"Machine {machine.name}", LEVEL_COLUMNS, levels, caption=lines if apart else ""
        ),
        text_table("Arithmetic peak", PEAK_COLUMNS, peaks, caption=clock),
    ]


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
