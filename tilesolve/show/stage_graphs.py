"""Pictures of stages: which run together, what each reads, and where it is computed and kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tilesolve.show.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, check_picture, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Keeping = Literal["array", "ring", "tile", "nowhere", "given"]
"""Where what a stage computes is kept; of an array that a call gives, that."""

COLOURS: dict[Keeping, str] = {
    "array": BLUE,
    "ring": GREEN,
    "tile": ORANGE,
    "nowhere": GREY,
    "given": INK,
}

NAMES: dict[Keeping, str] = {
    "array": "an array",
    "ring": "a ring of rows",
    "tile": "for each tile",
    "nowhere": "computed where it is read",
    "given": "given",
}

SHELF = 9
"""How many boxes stand side by side before the next groups lie below."""

WIDE, HIGH = 2.2, 1.15
"""Inches of a box, with what is around."""

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A stage, or an array that a call gives.

    Parameters
    ----------
    name
        Of the array.
    kept
        Where it is.
    lines
        What stands below the name.
    reads
        The arrays that it is computed from.
    """

    name: str
    kept: Keeping
    lines: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """Stages that run together, each after those that it reads."""

    title: str
    boxes: tuple[Box, ...]

    def rows(self) -> list[list[Box]]:
        """Return the boxes, each below those that it reads.

        Examples
        --------
        >>> boxes = Box("a", "ring"), Box("b", "array", (), ("a",)), Box("c", "ring")
        >>> [[box.name for box in row] for row in Frame("", boxes).rows()]
        [['a', 'c'], ['b']]
        """
        depths: dict[str, int] = {}
        for box in self.boxes:
            depths[box.name] = max((depths[x] + 1 for x in box.reads if x in depths), default=0)
        found: list[list[Box]] = [[] for _ in range(1 + max(depths.values(), default=0))]
        for box in self.boxes:
            found[depths[box.name]].append(box)
        return found


def draw_stages(title: str, frames: Sequence[Frame], path: str | os.PathLike[str]) -> None:
    """Draw frames one beside the other, their boxes, and an arrow for each that is read.

    Raises
    ------
    PictureError, FileAccessError
        As `check_picture` does.
    """
    check_picture(path)
    from matplotlib.figure import Figure

    corners = list(_lay_out(frames))
    width = max(left + _span(one) for (left, _), one in zip(corners, frames, strict=True))
    depth = max(top + len(one.rows()) + 0.5 for (_, top), one in zip(corners, frames, strict=True))
    figure = Figure(figsize=(WIDE * width + 0.4, HIGH * depth + 1.1), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(-0.1, width + 0.1)
    axes.set_ylim(depth, -0.1)
    axes.axis("off")
    places: dict[str, Place] = {}
    for corner, frame in zip(corners, frames, strict=True):
        places |= _draw_frame(axes, corner, frame)
    for box in (box for frame in frames for box in frame.boxes):
        for name in dict.fromkeys(box.reads):
            if name in places:
                _draw_arrow(axes, places[name], places[box.name])
    kinds = dict.fromkeys(box.kept for frame in frames for box in frame.boxes)
    for kept in kinds:
        axes.plot([], [], "s", mfc="white", mec=COLOURS[kept], label=NAMES[kept])
    figure.suptitle(title, fontsize=11, color=INK)
    figure.legend(loc="outside lower center", ncols=5, fontsize=9, frameon=False)
    save(figure, path)


def _span(frame: Frame) -> int:
    return max(len(row) for row in frame.rows())


def _lay_out(frames: Sequence[Frame]) -> Iterator[Place]:
    """Yield where each frame begins: in shelves from left to right."""
    left = top = height = 0.0
    for frame in frames:
        if left and left + _span(frame) > SHELF:
            left, top, height = 0.0, top + height, 0.0
        yield left, top
        left += _span(frame) + 0.1
        height = max(height, len(frame.rows()) + 0.6)


def _draw_frame(axes: Axes, corner: Place, frame: Frame) -> dict[str, Place]:
    """Draw a frame and its boxes, and return where these are."""
    from matplotlib.patches import FancyBboxPatch

    left, top = corner
    wide, found = _span(frame), dict[str, Place]()
    ground: dict[str, Any] = {"fc": GREY, "alpha": 0.1, "ec": "none", "zorder": 0}
    style = "round,pad=0,rounding_size=0.08"
    size = wide - 0.1, len(frame.rows()) + 0.3
    axes.add_patch(FancyBboxPatch((left + 0.05, top + 0.1), *size, boxstyle=style, **ground))
    axes.text(left + 0.1, top + 0.25, frame.title, fontsize=8.5, weight="bold", color=INK)
    text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": INK}
    for down, row in enumerate(frame.rows()):
        for along, box in enumerate(row):
            place = left + (along + 0.5) * wide / len(row), top + down + 0.9
            found[box.name] = place
            border = {"boxstyle": "round", "fc": "white", "ec": COLOURS[box.kept], "lw": 1.6}
            axes.text(*place, "\n".join((box.name, *box.lines)), bbox=border, zorder=3, **text)
    return found


def _draw_arrow(axes: Axes, start: Place, end: Place) -> None:
    style = {"arrowstyle": "-|>", "color": RED, "alpha": 0.5, "shrinkA": 22, "shrinkB": 22}
    axes.annotate("", end, start, arrowprops=style, zorder=2)
