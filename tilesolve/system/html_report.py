"""A text report as HTML, for notebooks: `_repr_html_` of plans and expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from tilesolve.system.tables import write_html


def write_html_report(text: str) -> str:
    r"""Return a report as HTML: indented lines become tables, other lines stay text.

    Parameters
    ----------
    text
        Lines of a table begin with two spaces, and two or more spaces are between its columns. The
        first row is the head. Rows that have other numbers of columns are shown as they are. So is
        a listing: a line that ends with a colon, and the indented ones behind it.

    Examples
    --------
    >>> print(write_html_report("i < 3\n\n  level  time\n  L1     2 ms"))
    <div>i &lt; 3</div>
    <table>
    <tr><th>level</th><th>time</th></tr>
    <tr><td>L1</td><td>2 ms</td></tr>
    </table>
    """
    return "\n".join(_blocks(text.splitlines()))


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield what each line, table and listing is in HTML."""
    head = ""
    for indented, block in groupby(lines, key=lambda line: line.startswith("  ")):
        found = list(block)
        if indented:
            yield from [_listing([head, *found])] if head else _table(found)
            head = ""
            continue
        head = found.pop() if found[-1].endswith(":") else ""
        yield from (f"<div>{escape(line)}</div>" for line in found if line.strip())
    if head:
        yield f"<div>{escape(head)}</div>"


def _listing(lines: Sequence[str]) -> str:
    return "<pre>" + escape("\n".join(lines)) + "</pre>"


def _table(lines: Sequence[str]) -> Iterator[str]:
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    if len({len(row) for row in rows}) > 1:
        yield _listing(lines)
        return
    yield from write_html(rows)
