"""The file format of machines: fields of `Machine` from TOML and to TOML.

``[costs]`` holds the costs that differ from their default or have a source, so that a default is
still one when a file is read again. A cost that a file gives without a source is ``"given"``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import tomli_w

from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile
from tilesolve.machine.costs import COST_NAMES, DEFAULT_COSTS, Costs, changed_costs
from tilesolve.machine.impossible import split_catalogues
from tilesolve.machine.level import (
    ASSUMED,
    Level,
    Peak,
    Source,
    check_count,
    check_name,
    check_positive,
)
from tilesolve.machine.places import machine_file
from tilesolve.system.checksums import checksum_of
from tilesolve.system.files import (
    remove_leftovers,
    warn_once,
    write_atomically,
)

FORMAT = 1
"""Version of the TOML format; a file of another version is refused."""

_SEAL = "# checksum {}: remove this line if you change the file by hand\n"
"""Last line of a file that was measured."""

EARLIER_NAMES = {
    "placed": "in_place_rows_slowdown",
    "crowded": "aliased_store_slowdown",
    "asked": "prefetch_gain_ratio",
    "streams": "in_place_columns_slowdown",
}
"""Entries of a catalogue that may not have been measured, by the names that older files give them.
"""

EARLIER_FIGURES = ("lines", "strided")
"""Figures of levels that older files have, and that nothing reads any more."""

EARLIER_COSTS = frozenset(
    [
        "aliased_pages_ratio",
        "aliased_store_limit",
        "aliased_store_lines",
        "einsum_batch_extent",
        "einsum_kernel_flops",
        "einsum_layout_flops",
        "einsum_loop_products",
        "einsum_plan_flops",
        "einsum_transpose_bytes",
        "feeding_ratio",
        "kernel_overlap",
        "near_l3_l2_ratio",
        "near_l3_memory_ratio",
        "prefetch_gain_limit",
        "prefetch_least_share",
        "prefetch_lines_per_page",
        "scattered_line_share",
        "scattered_store_slowdown",
        "transpose_aliased_lines",
        "transpose_block_lines",
        "transpose_element_bytes",
        "transpose_group_bytes",
        "transpose_last_share",
        "transpose_long_run_bytes",
        "transpose_near_share",
        "transpose_run_bytes",
        "transpose_source_bytes",
        "transpose_staging_bytes",
        "transpose_tile_bytes",
        "whole_vector_fmas",
    ]
)
"""Entries of ``[costs]`` that older files may have and that count no more: most are cut-offs, the
same on every machine (`tilesolve.constants.policy`)."""

_VECTOR = {
    "bits": "vector_bits",
    "registers": "vector_registers",
    "fma_latency": "fma_latency",
    "fma_rate": "fma_rate",
}
"""Entries of ``[vector]``, and the machine's fields that hold them."""

_SINGLE = ("cores", "threads_per_core", "frequency", *_VECTOR.values())
"""Figures that a machine has once, beside its peaks."""

_FIRST = ("name", "fingerprint", "cores", "threads_per_core", "frequency")
"""Entries that a file begins with, each a field of the machine."""


def save_machine(path: Path, text: str) -> None:
    """Write a measured machine, as TOML, after its checksum, so that a file cut short is told.

    Raises
    ------
    FileAccessError
        If the file cannot be written.
    """
    seal = _SEAL.format(checksum_of(tomllib.loads(text)))
    write_atomically(path, f"{seal}{text}", mode=0o644)
    if path == machine_file():
        remove_leftovers(path.parent)


def was_changed(text: str) -> bool:
    r"""Return whether a machine file says something else than its checksum.

    A file that has none, as one written by hand, was not.

    Examples
    --------
    >>> was_changed("format = 1\n"), was_changed("format = 1\n# checksum 0123456789abcdef: ...")
    (False, True)
    """
    begin = _SEAL.partition("{")[0]
    said = [
        line.removeprefix(begin).partition(":")[0]
        for line in text.splitlines()
        if line.startswith(begin)
    ]
    return bool(said) and said[-1] != checksum_of(tomllib.loads(text))


def write_toml(values: Mapping[str, Any]) -> str:
    """Return the fields of a machine as TOML."""
    sources = dict(values["sources"])
    costs = {
        name: getattr(values["costs"], name)
        for name in COST_NAMES
        if name in changed_costs(values["costs"]) or f"costs.{name}" in sources
    }
    return tomli_w.dumps(
        {
            "format": FORMAT,
            **{name: values[name] for name in _FIRST},
            "vector": {name: values[field] for name, field in _VECTOR.items()},
            "level": [_table(level) for level in values["levels"]],
            "peak": [_table(peak) for peak in values["peaks"]],
            "kernels": [_tiles(catalogue) for catalogue in values["catalogues"]],
            **({"costs": costs} if costs else {}),
            "sources": sources,
        }
    )


def known_figures(levels: Sequence[Level]) -> tuple[str, ...]:
    """Return the names of all figures that have a source."""
    of_levels = [f"{level.name}.{field.name}" for level in levels for field in fields(Level)]
    return (*_SINGLE, "peak", *of_levels, *(f"costs.{name}" for name in COST_NAMES))


def _document(text: str, origin: str) -> dict[str, Any]:
    """Return what a TOML text of this format says; errors begin with its origin."""
    text = text.removeprefix("\ufeff")  # some editors begin a file with that mark
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers and nesting have limits, too
        raise MachineError(f"{origin}: not valid TOML: {error}") from None
    if data.get("format") != FORMAT:
        raise MachineError(
            f"{origin}: format is {data.get('format')!r}, this version reads {FORMAT}"
        )
    if was_changed(text):
        warn_once(
            f"{origin} was changed after it was measured: remove its line '# checksum' if "
            "you changed it by hand; else measure again with 'tilesolve calibrate'"
        )
    _leave_out_earlier(data, origin)
    return data


def _leave_out_earlier(data: dict[str, Any], origin: str) -> None:
    """Take out of a document what older files have and nothing reads any more."""
    levels, sources, costs = (data.get(key) for key in ("level", "sources", "costs"))
    for table in levels if isinstance(levels, list) else ():
        if isinstance(table, dict):
            for figure in EARLIER_FIGURES:
                table.pop(figure, None)
    if isinstance(sources, dict):
        for figure in [*sources]:
            owner, _, name = figure.partition(".")
            if name in EARLIER_FIGURES or (owner == "costs" and name in EARLIER_COSTS):
                del sources[figure]
    if isinstance(costs, dict) and (gone := sorted(EARLIER_COSTS & costs.keys())):
        for name in gone:
            del costs[name]
        warn_once(
            f"{origin}: {', '.join(gone)} in [costs] count no more, as nothing is priced by them: "
            "remove them"
        )


def _table(value: Level | Peak) -> dict[str, Any]:
    """Return a value's fields as a TOML table; what is not known, or assumed, is left out."""
    items = {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if field.name not in ASSUMED or getattr(value, field.name) != field.default
    }
    return {name: item for name, item in items.items() if item not in (None, ())}


def _tiles(catalogue: Catalogue) -> dict[str, Any]:
    """Return a catalogue as a TOML table, its tiles as one text, which parses ten times faster."""
    tiles = ", ".join(
        f"{tile.vectors}x{tile.columns} {tile.step!r} {tile.call!r}" for tile in catalogue.tiles
    )
    ratios = {name: getattr(catalogue, name) for name in EARLIER_NAMES.values()}
    measured = {name: ratio for name, ratio in ratios.items() if ratio is not None}
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


def _level(table: dict[str, Any]) -> Level:
    """Return the level that a table states."""
    return Level(**{"capacity": None, **table})


def _titled(data: Mapping[str, Any], key: str) -> Iterator[tuple[str, object]]:
    """Yield what stands in a list of tables, each with what an error calls it."""
    tables = data.get(key, ())
    if not isinstance(tables, list | tuple):
        raise MachineError(f"{key} must be a list of tables, each with [[{key}]] above it")
    for number, table in enumerate(tables, start=1):
        yield f"[[{key}]] number {number}", table


def _catalogue(title: str, found: object) -> Catalogue:
    needed, names = ("dtype", "bits", "registers", "tiles"), tuple(EARLIER_NAMES.values())
    given = _checked(found, title, needed, (*names, *EARLIER_NAMES))
    table = {EARLIER_NAMES.get(key, key): value for key, value in given.items()}
    check_name(title, "dtype", table["dtype"])
    for key in ("bits", "registers"):
        check_count(title, key, table[key])
    optional = {key: table[key] for key in names if key in table}
    for key, ratio in optional.items():
        check_positive(title, key, ratio)
    tiles = tuple(_tile(title, text) for text in str(table["tiles"]).split(", "))
    return Catalogue(table["dtype"], table["bits"], table["registers"], tiles, **optional)


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


def _costs(data: Mapping[str, Any], sources: dict[str, Source]) -> Costs:
    """Return the costs that a file gives; those equal to their default become ``"given"``."""
    table = _checked(data.get("costs", {}), "[costs]", (), COST_NAMES)
    costs = Costs(**table)
    changed = changed_costs(costs)
    for name in table.keys() - changed.keys():
        sources.setdefault(f"costs.{name}", "given")
    return costs if changed else DEFAULT_COSTS  # one value is compared at once


def read_toml(text: str, origin: str) -> dict[str, Any]:
    """Return the fields of the machine that a TOML text describes.

    Errors begin with `origin`.

    Raises
    ------
    MachineError
        If the text is no TOML, or an entry is unknown, missing or impossible.

    Examples
    --------
    >>> read_toml("format = 2", "mine.toml")
    Traceback (most recent call last):
    tilesolve.contractions.errors.MachineError: mine.toml: format is 2, this version reads 1
    """
    data = _document(text, origin)
    try:
        found = _machine_fields(data)
    except MachineError as error:
        raise MachineError(f"{origin}: {error}") from None
    found["catalogues"], impossible = _possible_catalogues(found)
    for told in impossible:
        warn_once(
            f"{origin}: kernels are not used that seem faster than the arithmetic peak ({told}): "
            "measure again with 'tilesolve kernels' while nothing else runs"
        )
    return found


def impossible_kernels(text: str) -> tuple[str, ...]:
    """Return what is said of kernels of a machine file that are faster than its measured peak."""
    return _possible_catalogues(_machine_fields(tomllib.loads(text)))[1]


def _possible_catalogues(
    found: Mapping[str, Any],
) -> tuple[tuple[Catalogue, ...], tuple[str, ...]]:
    """Return the catalogues among a machine's fields that can be, and what is said of others."""
    catalogues = found["catalogues"]
    if dict(found["sources"]).get("peak") != "measured":
        return catalogues, ()
    return split_catalogues(catalogues, found["peaks"], found["frequency"])


def _machine_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    needed = ("format", "name", "cores", "frequency", "vector", "level", "peak")
    others = ("fingerprint", "threads_per_core", "kernels", "costs", "sources")
    _checked(data, "the file", needed, others)
    vector = _checked(data["vector"], "[vector]", _VECTOR)
    levels = tuple(_level(table) for table in _every(data, "level", Level))
    sources = dict(_checked(data.get("sources", {}), "[sources]", (), known_figures(levels)))
    return {
        "name": data["name"],
        "levels": levels,
        "cores": data["cores"],
        "threads_per_core": data.get("threads_per_core", 1),
        "frequency": data["frequency"],
        **{field: vector[name] for name, field in _VECTOR.items()},
        "peaks": tuple(Peak(**table) for table in _every(data, "peak", Peak)),
        "fingerprint": data.get("fingerprint", ""),
        "catalogues": tuple(_catalogue(*found) for found in _titled(data, "kernels")),
        "costs": _costs(data, sources),
        "sources": tuple(sources.items()),
    }
