"""Measured microkernels as a table and as a picture.

The heat map is that of Fig. 7 of the TTile paper (hal-03149553): how close each register tile comes
to the peak.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tilesolve.kernels.microkernel_costs import Catalogue
from tilesolve.machine.model import Machine
from tilesolve.show.console_tables import text_table
from tilesolve.show.pictures import check_picture, save

if TYPE_CHECKING:
    from rich.table import Table

SUMS = (24, 256)
"""Lengths of sums that are shown: a short one, where calls cost, and a usual one."""


def catalogue_table(catalogue: Catalogue) -> Table:
    """Return the speed of all register tiles, in percent of the fastest one's rate.

    Examples
    --------
    >>> from tilesolve.kernels.microkernel_costs import RegisterTile
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
    return text_table(title, columns, rows, caption=caption)


def draw_catalogues(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Draw the speed of all register tiles as heat maps, one for each dtype.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tilesolve.kernels.microkernel_costs import RegisterTile
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
