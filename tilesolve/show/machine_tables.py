"""What ``tilesolve machine`` shows: levels, bandwidths, peaks and costs, each with its source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tilesolve.machine.costs import CostDescription, describe_costs, measured_costs
from tilesolve.machine.model import Machine
from tilesolve.system.tables import Table
from tilesolve.system.units import format_duration, format_rate, format_size


def list_machine_tables(machine: Machine) -> list[Table]:
    """Return tables of a machine's levels, bandwidths, vector units and costs, with sources.

    Examples
    --------
    >>> [len(part.rows) for part in list_machine_tables(Machine.load("i7-6700k"))][:3]
    [4, 4, 9]
    """
    counts = dict.fromkeys(("capacity", "usable", "line", "ways", "shared by"), "right")
    levels = [
        (
            level.name,
            format_size(level.capacity),
            format_size(level.usable),
            str(level.line),
            str(level.ways or "-"),
            str(level.shared_by),
            "yes" if level.inclusive else "no",
            machine.source(f"{level.name}.capacity") if level.capacity else "",
        )
        for level in machine.levels
    ]
    kinds = {
        "bandwidth": "bandwidth",
        "read": "read only",
        "stream": "non-temporal store",
        "bandwidth_all": "all cores",
    }
    known = [kind for kind in kinds if any(getattr(level, kind) for level in machine.levels)]
    waits = {"latency": "latency", "start": "start of a run", "part": "run amid lines"}
    timed = [kind for kind in waits if any(getattr(level, kind) for level in machine.levels)]
    rates = [
        (
            level.name,
            *(format_rate(getattr(level, kind), machine.frequency) for kind in known),
            *(describe_wait(getattr(level, kind), machine.frequency) for kind in timed),
            machine.source(f"{level.name}.bandwidth"),
        )
        for level in machine.levels
    ]
    titles = [*(kinds[kind] for kind in known), *(waits[kind] for kind in timed)]
    speeds = dict.fromkeys(titles, "right")
    return [
        Table(
            f"Machine {machine.name}",
            {"level": "left", **counts, "inclusive": "left", "source": "left"},
            levels,
        ),
        Table("", {"level": "left", **speeds, "source": "left"}, rates),
        Table("", dict.fromkeys(("figure", "value", "source"), "left"), machine_facts(machine)),
        cost_table(machine),
    ]


def describe_wait(seconds: float | None, frequency: float) -> str:
    """Return what a load waits, in seconds and in cycles; a dash where it is not known.

    Examples
    --------
    >>> describe_wait(1e-9, 4e9), describe_wait(None, 4e9)
    ('1 ns (4 cycles)', '-')
    """
    if seconds is None:
        return "-"
    return f"{format_duration(seconds)} ({seconds * frequency:.3g} cycles)"


def cost_table(machine: Machine) -> Table:
    """Return all costs of a machine: value, unit, source, what measures it, and meaning."""
    rows = [
        (
            cost.name,
            cost_text(machine, cost),
            cost.unit,
            machine.source(f"costs.{cost.name}"),
            f"tilesolve {cost.probe}" if cost.probe else "-",
            cost.meaning,
        )
        for cost in describe_costs(machine.costs)
    ]
    columns = {"cost": "left", "value": "right"}
    others = dict.fromkeys(("unit", "source", "measured by", "meaning"), "left")
    return Table("Costs", columns | others, rows)


def cost_text(machine: Machine, cost: CostDescription) -> str:
    """Return a cost as text: its value, or the range of what was measured for all dtypes.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> cost_text(machine, describe_costs(machine.costs)[0])
    '60'
    """
    found = measured_costs(machine.catalogues, cost.name).values() or (cost.value,)
    low, high = (f"{end:.4g}" if end < 1e4 else f"{end:.0f}" for end in (min(found), max(found)))
    return low if low == high else f"{low} to {high}"


def machine_dict(machine: Machine) -> dict[str, Any]:
    """Return a machine as plain data, for JSON: as its file has it, and each cost with its source.

    Examples
    --------
    >>> machine_dict(Machine.load("i7-6700k"))["costs"]["pack_cycles"]["source"]
    'assumed'
    """
    costs = {
        cost.name: {
            "value": cost.value,
            "unit": cost.unit,
            "meaning": cost.meaning,
            "source": machine.source(f"costs.{cost.name}"),
            "probe": cost.probe,
            "measured": measured_costs(machine.catalogues, cost.name),
        }
        for cost in describe_costs(machine.costs)
    }
    return asdict(machine) | {"sources": dict(machine.sources), "costs": costs}


def machine_facts(machine: Machine) -> list[tuple[str, str, str]]:
    """Return a machine's figures beside its levels: what, how much, and where it is from.

    Examples
    --------
    >>> machine_facts(Machine.load("i7-6700k"))[-1]
    ('peak float32, 256 bits', '134.4 GFLOP/s', 'published')
    """
    facts = {
        "cores": str(machine.cores),
        "threads_per_core": str(machine.threads_per_core),
        "frequency": f"{machine.frequency / 1e9:.4g} GHz",
        "vector_bits": str(machine.vector_bits),
        "vector_registers": str(machine.vector_registers),
        "fma_latency": f"{machine.fma_latency} cycles",
        "fma_rate": f"{machine.fma_rate:.4g} per cycle",
    }
    found: list[tuple[str, str, str]] = [
        (name.replace("_", " "), text, machine.source(name)) for name, text in facts.items()
    ]
    for peak in machine.peaks:
        every = f", all cores {peak.flops_all / 1e9:.4g} GFLOP/s" if peak.flops_all else ""
        text = f"{peak.flops / 1e9:.4g} GFLOP/s{every}"
        found.append((f"peak {peak.dtype}, {peak.bits} bits", text, machine.source("peak")))
    return found
