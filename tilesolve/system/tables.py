"""A table as a value, and its forms: on a console, in Markdown, as CSV, HTML and aligned text."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as ConsoleTable


@dataclass(frozen=True, slots=True)
class Table:
    r"""A table of plain text; the console of `tilesolve.show.console_tables` prints it as it is.

    `title` and `caption` stand above and below on a console; an empty one is left out.
    `columns` has headers, each with ``"left"`` or ``"right"``.

    Examples
    --------
    >>> print(*Table("sizes", {"letter": "left", "extent": "right"}, [("a", "72")]).markdown(),
    ...       sep="\n")
    <BLANKLINE>
    | letter | extent |
    | --- | --: |
    | a | 72 |
    """

    title: str
    columns: Mapping[str, str]
    rows: Collection[Sequence[str]]
    caption: str = ""

    @classmethod
    def of_pairs(cls, title: str, pairs: Mapping[str, str]) -> Table:
        """Return a table of names and values; the title is the head of the names.

        Examples
        --------
        >>> Table.of_pairs("measured", {"CPU": "fast"}).columns
        {'measured': 'left', '': 'left'}
        """
        return cls("", {title: "left", "": "left"}, pairs.items())

    def __rich__(self) -> ConsoleTable:
        """Return what a console prints: cells fold where they do not fit, none is markup."""
        from rich import box
        from rich.table import Table as ConsoleTable
        from rich.text import Text

        found = ConsoleTable(
            title=Text(self.title) if self.title else None,
            caption=Text(self.caption) if self.caption else None,
            title_justify="left",
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        for header, side in self.columns.items():
            right = side == "right"
            found.add_column(header, justify="right" if right else "left", overflow="fold")
        for row in self.rows:
            found.add_row(*map(Text, row))
        return found

    def markdown(self) -> Iterator[str]:
        """Yield the lines of a table of Markdown, after an empty one."""
        yield ""
        sides = ["---" if side == "left" else "--:" for side in self.columns.values()]
        for row in ([*self.columns], sides, *self.rows):
            yield "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"


def align_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield lines of columns: the first column left, the others right aligned.

    Examples
    --------
    >>> list(align_columns([["a", "12"], ["bc", "3"]]))
    ['  a   12', '  bc   3']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield ("  " + "  ".join((first, *others))).rstrip()


def write_html(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table of HTML, whose first row is the head.

    Examples
    --------
    >>> print(*write_html([["a"], ["1 < 2"]]))
    <table> <tr><th>a</th></tr> <tr><td>1 &lt; 2</td></tr> </table>
    """
    yield "<table>"
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        yield "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
    yield "</table>"


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return cells as CSV, a line for the heads and one for each row.

    Examples
    --------
    >>> write_csv(["letter", "extent"], [("a", 72)])
    'letter,extent\na,72\n'
    """
    lines = io.StringIO()
    write = csv.writer(lines, lineterminator="\n")
    write.writerow(columns)
    write.writerows(rows)
    return lines.getvalue()
