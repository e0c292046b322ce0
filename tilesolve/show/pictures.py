"""Files of pictures, which matplotlib (extra ``plot``) draws without any display."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tilesolve.contractions.errors import FileAccessError, PictureError
from tilesolve.system.files import check_writable, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("eps", "jpeg", "jpg", "pdf", "png", "ps", "svg", "svgz", "tif", "tiff", "webp")
"""File name endings of the pictures that can be written."""

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


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file, all of it or nothing."""
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
