"""A text report as HTML, for notebooks: `_repr_html_` of plans and expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from tilesolve.system.tables import write_html


def html_report(text: str) -> str:
    r"""Return a report as HTML: indented lines become tables, other lines stay text.

    Parameters
    ----------
    text
        Lines of a table begin with two spaces, and two or more spaces are between its columns. The
        first row is the head. Rows that have other numbers of columns are shown as they are.

    Examples
    --------
    >>> print(html_report("i < 3\n\n  level  time\n  L1     2 ms"))
    <div>i &lt; 3</div>
    <table>
    <tr><th>level</th><th>time</th></tr>
    <tr><td>L1</td><td>2 ms</td></tr>
    </table>
    """
    blocks = groupby(text.splitlines(), key=lambda line: line.startswith("  "))
    return "\n".join(
        line
        for tabular, block in blocks
        for line in (_table(list(block)) if tabular else _lines(block))
    )


def _lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.strip():
            yield f"<div>{escape(line)}</div>"


def _table(lines: Sequence[str]) -> Iterator[str]:
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    if len({len(row) for row in rows}) > 1:
        yield "<pre>" + escape("\n".join(lines)) + "</pre>"
        return
    yield from write_html(rows)
