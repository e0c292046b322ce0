"""Catalogues: measuring all microkernels of this computer, as a table and as a picture.

The heat map is that of Fig. 7 of the TTile paper (hal-03149553): how close each register tile comes
to the peak.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilesolve.code_store import family_of, kernels
from tilesolve.contractions.errors import MachineError
from tilesolve.contractions.problem import DTYPES
from tilesolve.kernels.catalogue import Catalogue
from tilesolve.kernels.dtypes import real_of
from tilesolve.kernels.progress import Progress, silent
from tilesolve.kernels.timing import measure
from tilesolve.machine import Machine
from tilesolve.pace import pace
from tilesolve.pictures import check_picture, save
from tilesolve.tables import table

if TYPE_CHECKING:
    from rich.table import Table

SUMS = (24, 256)
"""Lengths of sums that are shown: a short one, where calls cost, and a usual one."""


TURN, TURNS = 2e-4, 5
"""Seconds of one turn in which the arithmetic peak is measured, and how many there are."""


def catalogued(
    machine: Machine,
    dtypes: Sequence[str] = DTYPES,
    progress: Progress = silent,
) -> Machine:
    """Return a machine with the microkernels of some dtypes measured on this computer.

    Parameters
    ----------
    machine
        This computer, perhaps with narrower vectors than it has; catalogues of other dtypes are
        kept.
    dtypes
        What to measure.
    progress
        Told the fraction that is done, and what is being done.

    Raises
    ------
    MachineError
        If the machine was measured on another CPU, or has wider vectors than this one.

    Examples
    --------
    >>> [found.dtype for found in catalogued(Machine.detect(), ["float32"]).catalogues]
    ['float32']
    """
    here = Machine.detect()
    if machine.fingerprint != here.fingerprint:
        raise MachineError(f"machine {machine.name!r} is not this computer: measure it there")
    if machine.vector_bits > here.vector_bits:
        raise MachineError(
            f"machine {machine.name!r} has vectors of {machine.vector_bits} bits, this computer "
            f"of {here.vector_bits}"
        )
    found = {kept.dtype: kept for kept in machine.catalogues}
    for number, dtype in enumerate(dtypes):

        def report(fraction: float, what: str, number: int = number) -> None:
            progress((number + fraction) / len(dtypes), what)

        report(0.0, f"{dtype}, compiling")
        family = family_of(dtype, machine)
        speed = _speed(machine, dtype)
        found[dtype] = measure(family, kernels(family), machine.frequency, report, speed)
    progress(1.0, "done")
    return machine.replace(catalogues=tuple(found.values()))


def _speed(machine: Machine, dtype: str) -> Callable[[], float]:
    """Return what tells how much of its measured peak a core reaches, one where none was measured.

    The best of some short turns counts, as others were disturbed.
    """
    wanted = real_of(dtype), machine.vector_bits
    peaks = [found.flops for found in machine.peaks if (found.dtype, found.bits) == wanted]
    if not peaks or machine.source("peak") != "measured":
        return lambda: 1.0
    measured = pace(machine, dtype, 1)
    return lambda: max(measured(TURN) for _ in range(TURNS)) / max(peaks)


def catalogue_table(catalogue: Catalogue) -> Table:
    """Return the speed of all register tiles, in percent of the fastest one's rate.

    Examples
    --------
    >>> from tilesolve.kernels.catalogue import RegisterTile
    >>> tiles = RegisterTile(1, 1, 4.0, 20.0), RegisterTile(1, 2, 4.0, 20.0)
    >>> catalogue_table(Catalogue("float64", 256, 16, tiles)).row_count
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
    if catalogue.placed is not None:
        caption += f"; rows read in place take {catalogue.placed:g} times as long"
    if catalogue.streams is not None:
        caption += f"; columns {catalogue.streams:g} times"
    if catalogue.crowded is not None:
        caption += (
            f"; lines of C at one place in pages, past the caches, {catalogue.crowded:g} times"
        )
    if catalogue.asked is not None:
        caption += f"; asking for the next rows before that takes {catalogue.asked:g} times as long"
    title = f"{catalogue.dtype}, vectors of {catalogue.bits} bits"
    return table(title, columns, rows, caption=caption)


def draw_catalogues(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Draw the speed of all register tiles as heat maps, one for each dtype.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tilesolve.kernels.catalogue import RegisterTile
    >>> measured = Catalogue("float64", 256, 16, (RegisterTile(2, 6, 6.0, 20.0),))
    >>> machine = Machine.load("i7-6700k").replace(catalogues=(measured,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_catalogues(machine, Path(folder) / "kernels.svg")
    """
    check_picture(path)
    from matplotlib.figure import Figure

    count = max(1, len(machine.catalogues))
    figure = Figure(figsize=(10.5, 1.2 + 2.2 * count), layout="constrained")
    for number, catalogue in enumerate(machine.catalogues, 1):
        axes = figure.add_subplot(count, 1, number)
        high = max(tile.vectors for tile in catalogue.tiles)
        wide = max(tile.columns for tile in catalogue.tiles)
        shares = [[float("nan")] * wide for _ in range(high)]
        for tile in catalogue.tiles:
            share = 100 * catalogue.share(tile, SUMS[-1])
            shares[tile.vectors - 1][tile.columns - 1] = share
            place = (tile.columns, tile.vectors)
            axes.annotate(f"{share:.0f}", place, ha="center", va="center", fontsize=7)
        edges = (0.5, wide + 0.5, 0.5, high + 0.5)
        axes.imshow(
            shares, origin="lower", extent=edges, aspect="auto", cmap="YlGn", vmin=0, vmax=110
        )
        axes.set_xticks(range(1, wide + 1))
        axes.set_yticks(range(1, high + 1))
        axes.set_xlabel("columns")
        axes.set_ylabel("vectors of rows")
        axes.set_title(
            f"{machine.name}, {catalogue.dtype} at {catalogue.bits} bits: percent of the fastest "
            f"rate, summing {SUMS[-1]} products",
            fontsize=10,
        )
    save(figure, path)


def _height(vectors: int) -> str:
    return "1 vector" if vectors == 1 else f"{vectors} vectors"
