"""The file format of machines: TOML, as people write it and `Machine.to_toml` does."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import tomli_w

from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.catalogue import Catalogue, RegisterTile
from tilesolve.level import Level, Peak

if TYPE_CHECKING:
    from tilesolve.machine import Machine

FORMAT = 1
"""Version of the TOML format; a file of another version is refused."""

BESIDE = ("placed", "crowded", "asked", "streams")
"""Fields of a catalogue that may not have been measured."""

_ENTRIES = frozenset(
    (
        "format",
        "name",
        "fingerprint",
        "cores",
        "frequency",
        "vector",
        "level",
        "peak",
        "kernels",
        "sources",
    )
)
_VECTOR = frozenset(("bits", "registers", "fma_latency", "fma_rate"))


def written(machine: Machine) -> str:
    """Return a machine as TOML.

    Examples
    --------
    >>> from tilesolve.machine import Machine
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
            "sources": dict(machine.sources),
        }
    )


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
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers and nesting have limits, too
        raise MachineError(f"{origin}: not valid TOML: {error}") from None
    if data.get("format") != FORMAT:
        raise MachineError(
            f"{origin}: format is {data.get('format')!r}, this version reads {FORMAT}"
        )
    return data


def _table(value: Level | Peak) -> dict[str, Any]:
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


def _catalogue(table: Mapping[str, Any]) -> Catalogue:
    tiles = []
    for text in table["tiles"].split(", "):
        sides, step, call = text.split(" ")
        vectors, columns = sides.split("x")
        tiles.append(RegisterTile(int(vectors), int(columns), float(step), float(call)))
    known = table["dtype"], table["bits"], table["registers"]
    return Catalogue(*known, tuple(tiles), *(table.get(name) for name in BESIDE))


def arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Machine` that a document holds.

    Raises
    ------
    MachineError
        If an entry is unknown. One that is missing is a `KeyError`.

    Examples
    --------
    >>> from tilesolve.machine import Machine
    >>> machine = Machine.load("i7-6700k")
    >>> Machine(**arguments(document(written(machine), "written"))) == machine
    True
    """
    vector = data["vector"]
    unknown = (set(data) - _ENTRIES) | {f"vector.{name}" for name in set(vector) - _VECTOR}
    if unknown:
        raise MachineError(f"unknown entries: {', '.join(sorted(unknown))}")
    return {
        "name": data["name"],
        "levels": tuple(Level(**{"capacity": None, **table}) for table in data["level"]),
        "cores": data["cores"],
        "frequency": data["frequency"],
        "vector_bits": vector["bits"],
        "vector_registers": vector["registers"],
        "fma_latency": vector["fma_latency"],
        "fma_rate": vector["fma_rate"],
        "peaks": tuple(Peak(**table) for table in data["peak"]),
        "fingerprint": data.get("fingerprint", ""),
        "catalogues": tuple(_catalogue(table) for table in data.get("kernels", ())),
        "sources": tuple(data.get("sources", {}).items()),
    }
