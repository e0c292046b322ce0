"""Pictures, drawn with matplotlib (extra ``plot``) without any display."""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilesolve.contractions.errors import FileAccessError, PictureError
from tilesolve.system.files import check_writable, write_atomically
from tilesolve.system.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tilesolve.calibration.calibrate import Calibration
    from tilesolve.machine.level import Level
    from tilesolve.machine.model import Machine

FORMATS = ("eps", "jpeg", "jpg", "pdf", "png", "ps", "svg", "svgz", "tif", "tiff", "webp")
"""File name endings of the pictures that can be written."""

WIDE_RANGE = 12.0
"""Rates that differ by more than this factor are drawn on a logarithmic axis."""

BLUE, GREEN, ORANGE, RED = "#1f5fa8", "#3a8f4f", "#c2641a", "#a02c2c"
GREY, INK = "#8a8f98", "#22262b"


def check_picture(path: str | os.PathLike[str]) -> None:
    """Refuse a picture that could not be drawn or written, before anyone works for it.

    Raises
    ------
    PictureError
        If `check_drawing` raises it, or the file's name ends in no known format.
    FileAccessError
        If there is no such folder, or `check_writable` refuses the file.

    Examples
    --------
    >>> check_picture("curve.docx")
    Traceback (most recent call last):
    tilesolve.contractions.errors.PictureError: cannot draw curve.docx: the name must end in \
.eps, .jpeg, .jpg, .pdf, .png, .ps, .svg, .svgz, .tif, .tiff, .webp
    """
    target = Path(path)
    check_drawing(target)
    if target.suffix.lower().removeprefix(".") not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise PictureError(f"cannot draw {target}: the name must end in {endings}")
    folder = target.absolute().parent
    if not folder.is_dir():
        raise FileAccessError(f"cannot write {target}: there is no folder {folder}")
    check_writable(target)


def check_drawing(path: str | os.PathLike[str]) -> None:
    """Refuse a file with pictures in it where none can be drawn.

    Raises
    ------
    PictureError
        If matplotlib is not installed, or does not work.

    Examples
    --------
    >>> check_drawing("page.html")
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise PictureError(
            f"cannot draw {Path(path)}: matplotlib is not installed; "
            "install it with: pip install 'tilesolve[plot]'"
        )
    try:
        importlib.import_module("matplotlib.figure")
    except Exception as error:  # a broken extension module can raise anything
        raise PictureError(
            f"cannot draw {Path(path)}: matplotlib cannot be imported: {error}"
        ) from error


def draw_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Draw bandwidth against block size, with the levels and their measured bandwidths.

    Parameters
    ----------
    calibration
        What to draw.
    path
        The picture; the ending of its name says the format.

    Raises
    ------
    PictureError, FileAccessError
        As `check_picture` does.

    Examples
    --------
    >>> import tempfile
    >>> from tilesolve.calibration.calibrate import calibrate
    >>> found = calibrate(quick=True, seconds=0.1, max_bytes=3 * 2**14)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_calibration(found, Path(folder) / "curve.png")
    """
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 6.3), layout="constrained")
    axes = figure.add_subplot()
    _frame(axes, calibration)
    _levels(axes, calibration)
    _curves(axes, calibration)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    save(figure, path)


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file, all of it or nothing.

    Examples
    --------
    >>> import tempfile
    >>> from matplotlib.figure import Figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Figure(), Path(folder) / "empty.svg")
    """
    picture = io.BytesIO()
    figure.savefig(picture, format=Path(path).suffix.removeprefix(".").lower(), dpi=150)
    write_atomically(path, picture.getvalue())


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element for a page: text stays text, and nothing is fetched.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> svg(Figure())[:4], "http://purl.org" in svg(Figure())
    ('<svg', False)
    """
    from matplotlib import rc_context

    picture = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(picture, format="svg", metadata=nothing)
    text = picture.getvalue()
    return text[text.index("<svg") :]


def _frame(axes: Axes, calibration: Calibration) -> None:
    """Draw the axes, whose ranges show every sample, and say what the picture is of."""
    from matplotlib.ticker import LogLocator, NullLocator

    machine = calibration.machine
    samples = [sample for curve in calibration.curves for sample in curve.samples]
    blocks, rates = [s.block for s in samples], [s.best / 1e9 for s in samples]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(blocks) / 1.1, max(blocks) * 1.1)
    ticks = [2**n for n in range(min(blocks).bit_length(), max(blocks).bit_length())]
    ticks = ticks[:: 1 + len(ticks) // 16]
    axes.set_xticks(ticks, [format_size(tick) for tick in ticks], fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("block that each core sweeps again and again")
    axes.set_ylabel("GB/s, bytes loaded and stored together")
    if max(rates) > WIDE_RANGE * min(rates):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(min(rates) / 1.5, max(rates) * 4.5)
    else:
        axes.set_ylim(0, max(rates) * 1.45)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
    peaks = ", ".join(
        f"{dtype} {machine.peak(dtype) / 1e9:.4g} GFLOP/s" for dtype in ("float64", "float32")
    )
    axes.set_title(
        f"Memory bandwidth of {machine.name}", loc="left", fontsize=14, color=INK, pad=24
    )
    axes.text(
        0,
        1.02,
        f"{machine.cores} cores at {machine.frequency / 1e9:.3g} GHz, {machine.vector_bits}-bit "
        f"vectors; one core's peak: {peaks}",
        transform=axes.transAxes,
        fontsize=9,
        color=GREY,
    )


def _curves(axes: Axes, calibration: Calibration) -> None:
    """Draw every curve by its best rounds, and how far the median round of one stays behind."""
    cores = calibration.machine.cores
    sweep = "load, FMA, store"
    lines: list[tuple[str, int, str, dict[str, Any]]] = [
        ("sweep", 1, f"{sweep}: one core", {"color": BLUE, "marker": "o", "lw": 2.2}),
        ("read", 1, "loads only: one core", {"color": GREEN, "marker": "s", "lw": 1.3}),
        ("stream", 1, "streaming stores: one core", {"color": ORANGE, "marker": "v", "lw": 1.3}),
    ]
    if cores > 1:
        style: dict[str, Any] = {"color": BLUE, "marker": "o", "lw": 1.2, "ls": ":", "mfc": "white"}
        lines.insert(0, ("sweep", cores, f"{sweep}: all {cores} cores together", style))
    for kernel, count, label, look in lines:
        curve = calibration.curve(kernel, count)
        if curve is None:
            continue
        blocks = [sample.block for sample in curve.samples]
        best = [sample.best / 1e9 for sample in curve.samples]
        axes.plot(blocks, best, label=label, ms=3.5, zorder=3, **look)
        if (kernel, count) == ("sweep", 1):
            usual = [sample.best * (1 - sample.spread) / 1e9 for sample in curve.samples]
            label = "its median to its best round"
            axes.fill_between(blocks, usual, best, label=label, color=BLUE, alpha=0.25, lw=0)
    axes.plot([], [], color=INK, lw=1.4, ls="--", label="bandwidth taken for the level")
    axes.plot([], [], color=RED, lw=1.2, ls=(0, (4, 3)), label="where the level stops serving")


def _levels(axes: Axes, calibration: Calibration) -> None:
    """Mark each level: its stretch, where it ends, where it stops serving, its bandwidth."""
    machine = calibration.machine
    start, right = axes.get_xlim()
    top = axes.get_xaxis_transform()  # blocks across, fractions of the axes upwards
    head: dict[str, Any] = {"ha": "center", "va": "top", "transform": top}
    for number, level in enumerate(machine.levels):
        end = min(level.capacity or right, right)
        if end <= start:
            continue
        if number % 2 == 0:
            axes.axvspan(start, end, color=GREY, alpha=0.12, lw=0, zorder=0)
        middle = math.sqrt(start * end)
        name = (
            level.name if level.capacity is None else f"{level.name}, {format_size(level.capacity)}"
        )
        axes.text(middle, 0.985, name, fontsize=11, weight="bold", color=INK, **head)
        note = (
            f"{level.bandwidth / 1e9:.4g} GB/s\n{level.bandwidth / machine.frequency:.3g} B/cycle"
        )
        note += " (assumed)" if _assumed(machine, level, "bandwidth") else ""
        axes.text(middle, 0.935, note, fontsize=9, color=INK, **head)
        axes.hlines(level.bandwidth / 1e9, start, end, color=INK, lw=1.4, ls="--", zorder=4)
        if level.usable is not None and level.usable < right:
            note = f"serves up to\n{format_size(level.usable)} ({level.effective:.0%})"
            note += " (assumed)" if _assumed(machine, level, "effective") else ""
            axes.axvline(level.usable, color=RED, lw=1.2, ls=(0, (4, 3)), zorder=1)
            axes.text(middle, 0.82, note, fontsize=8.5, color=RED, **head)
        start = end


def _assumed(machine: Machine, level: Level, figure: str) -> bool:
    return machine.source(f"{level.name}.{figure}") == "assumed"
