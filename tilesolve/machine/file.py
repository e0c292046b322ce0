"""The file format of machines: TOML, as people write it and `Machine.to_toml` does."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile
from tilesolve.machine.costs import Costs
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.level import Level, Peak, check_count, check_name, check_positive
from tilesolve.system.files import config_dir

if TYPE_CHECKING:
    from tilesolve.machine.model import Machine

FORMAT = 1
"""Version of the TOML format; a file of another version is refused."""

BESIDE = ("placed", "crowded", "asked", "streams")
"""Fields of a catalogue that may not have been measured."""

_VECTOR = ("bits", "registers", "fma_latency", "fma_rate")
_SINGLE = ("cores", "frequency", "vector_bits", "vector_registers", "fma_latency", "fma_rate")
"""Figures that a machine has once, beside its peaks."""


def machine_file() -> Path:
    """Return the path of this CPU's calibrated machine file, which need not exist yet.

    The name carries the CPU's fingerprint, so that a home directory shared by different
    computers keeps one file for each.

    Examples
    --------
    >>> machine_file().suffix
    '.toml'
    """
    here = detect_cpu()
    return config_dir() / "machines" / f"{here.name}-{here.fingerprint}.toml"


def written(machine: Machine) -> str:
    """Return a machine as TOML.

    Examples
    --------
    >>> from tilesolve.machine.model import Machine
    >>> written(Machine.load("i7-6700k")).splitlines()[:2]
    ['format = 1', 'name = "i7-6700k"']
    """
    return tomli_w.dumps(
        {
            "format": FORMAT,
            "name": machine.name,
            "fingerprint": machine.fingerprint,
            "cores": machine.cores,
            "frequency": machine.frequency,
            "vector": {
                "bits": machine.vector_bits,
                "registers": machine.vector_registers,
                "fma_latency": machine.fma_latency,
                "fma_rate": machine.fma_rate,
            },
            "level": [_table(level) for level in machine.levels],
            "peak": [_table(peak) for peak in machine.peaks],
            "kernels": [_tiles(catalogue) for catalogue in machine.catalogues],
            "costs": _table(machine.costs),
            # Of levels that a machine was left without, nothing is said.
            "sources": {
                figure: source
                for figure, source in machine.sources
                if figure in _figures(machine.levels)
            },
        }
    )


def _figures(levels: Sequence[Level]) -> tuple[str, ...]:
    """Return the names of all figures that have a source."""
    of_levels = [f"{level.name}.{field.name}" for level in levels for field in fields(Level)]
    of_costs = [f"costs.{name}" for name in _names(Costs)]
    return (*_SINGLE, "peak", *of_levels, *of_costs)


def _names(kind: type[Costs]) -> list[str]:
    return [field.name for field in fields(kind)]


def document(text: str, origin: str) -> dict[str, Any]:
    """Return what a TOML text of this format says.

    Raises
    ------
    MachineError
        If it is no TOML, or of another format; the message begins with the origin.

    Examples
    --------
    >>> document("format = 1", "mine.toml")
    {'format': 1}
    """
    try:
        data = tomllib.loads(
            text.removeprefix("\ufeff")
        )  # some editors begin a file with that mark
    except (ValueError, RecursionError) as error:  # numbers and nesting have limits, too
        raise MachineError(f"{origin}: not valid TOML: {error}") from None
    if data.get("format") != FORMAT:
        raise MachineError(
            f"{origin}: format is {data.get('format')!r}, this version reads {FORMAT}"
        )
    return data


def _table(value: Level | Peak | Costs) -> dict[str, Any]:
    """Return a value's fields as a TOML table; TOML has no null, so None is left out."""
    items = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: item for name, item in items.items() if item is not None}


def _tiles(catalogue: Catalogue) -> dict[str, Any]:
    """Return a catalogue as a TOML table, its tiles as one text, which is read ten times faster."""
    tiles = ", ".join(
        f"{tile.vectors}x{tile.columns} {tile.step!r} {tile.call!r}" for tile in catalogue.tiles
    )
    beside = {name: getattr(catalogue, name) for name in BESIDE}
    measured = {name: times for name, times in beside.items() if times is not None}
    return {
        "dtype": catalogue.dtype,
        "bits": catalogue.bits,
        "registers": catalogue.registers,
        **measured,
        "tiles": tiles,
    }


def _checked(
    table: object, title: str, needed: Iterable[str], others: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a table of the document; refuse other values, and missing or unknown keys."""
    if not isinstance(table, dict):
        raise MachineError(f"{title} must be one table")
    if unknown := set(table) - {*needed, *others}:
        raise MachineError(f"unknown entries: {', '.join(sorted(unknown))} in {title}")
    for key in needed:
        if key not in table:
            raise MachineError(f"the entry {key!r} is missing in {title}")
    return table


def _every(data: Mapping[str, Any], key: str, kind: type[Level | Peak]) -> Iterator[dict[str, Any]]:
    """Yield the tables of levels, or of peaks."""
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    optional = [field.name for field in fields(kind) if field.default is not MISSING]
    if kind is Level:  # TOML has no null: memory's capacity is left out
        needed.remove("capacity")
        optional.append("capacity")
    for title, table in _titled(data, key):
        yield _checked(table, title, needed, optional)


def _titled(data: Mapping[str, Any], key: str) -> Iterator[tuple[str, object]]:
    """Yield what stands in a list of tables, each with what an error calls it."""
    tables = data.get(key, ())
    if not isinstance(tables, list | tuple):
        raise MachineError(f"{key} must be a list of tables, each with [[{key}]] above it")
    for number, table in enumerate(tables, start=1):
        yield f"[[{key}]] number {number}", table


def _catalogue(title: str, found: object) -> Catalogue:
    table = _checked(found, title, ("dtype", "bits", "registers", "tiles"), BESIDE)
    check_name(title, "dtype", table["dtype"])
    for key in ("bits", "registers"):
        check_count(title, key, table[key])
    for key in BESIDE:
        if key in table:
            check_positive(title, key, table[key])
    tiles = tuple(_tile(title, text) for text in str(table["tiles"]).split(", "))
    return Catalogue(**{**table, "tiles": tiles})


def _tile(title: str, text: str) -> RegisterTile:
    try:
        sides, step, call = text.split(" ")
        vectors, columns = sides.split("x")
        return RegisterTile(int(vectors), int(columns), float(step), float(call))
    except MachineError as error:
        raise MachineError(f"{title}: {error}") from None
    except ValueError:
        raise MachineError(
            f"{title}: tiles must be written as '3x8 24.0 48.0', with commas between, got {text!r}"
        ) from None


def arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Machine` that a document holds.

    Raises
    ------
    MachineError
        If an entry is unknown or missing, or holds what is impossible.

    Examples
    --------
    >>> from tilesolve.machine.model import Machine
    >>> machine = Machine.load("i7-6700k")
    >>> Machine(**arguments(document(written(machine), "written"))) == machine
    True
    """
    needed = ("format", "name", "cores", "frequency", "vector", "level", "peak")
    _checked(data, "the file", needed, ("fingerprint", "kernels", "costs", "sources"))
    vector = _checked(data["vector"], "[vector]", _VECTOR)
    levels = tuple(Level(**{"capacity": None, **table}) for table in _every(data, "level", Level))
    sources = _checked(data.get("sources", {}), "[sources]", (), _figures(levels))
    return {
        "name": data["name"],
        "levels": levels,
        "cores": data["cores"],
        "frequency": data["frequency"],
        "vector_bits": vector["bits"],
        "vector_registers": vector["registers"],
        "fma_latency": vector["fma_latency"],
        "fma_rate": vector["fma_rate"],
        "peaks": tuple(Peak(**table) for table in _every(data, "peak", Peak)),
        "fingerprint": data.get("fingerprint", ""),
        "catalogues": tuple(_catalogue(*found) for found in _titled(data, "kernels")),
        "costs": Costs(**_checked(data.get("costs", {}), "[costs]", (), _names(Costs))),
        "sources": tuple(sources.items()),
    }
