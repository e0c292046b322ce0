"""The page of a CPU: sections of tables, each written anew by the command that measured it.

A page is a file of Markdown. A section stands between two comments that name it, so that a sweep
of the same suite, dtype, threads and peers takes the place of the one before.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tilesolve.bench.contenders import ALIGNED, OURS, split_name
from tilesolve.bench.results.record import Record
from tilesolve.contractions.errors import BenchmarkError, FileAccessError
from tilesolve.machine.cpu import detect_cpu
from tilesolve.system.files import check_writable, describe_error, read_regular, write_atomically


def find_page(path: Path) -> Path:
    """Return the file of this computer's page: the path itself, or a file in that folder.

    Examples
    --------
    >>> find_page(Path("docs/mine.md")), find_page(Path("docs")).parent
    (PosixPath('docs/mine.md'), PosixPath('docs'))
    """
    return path if path.suffix == ".md" else path / f"{detect_cpu().name}.md"


def check_page(path: Path) -> None:
    """Refuse a page that no section could be written to, before anyone measures for it."""
    page = find_page(path)
    check_writable(page)
    try:
        _find_marks(_read_page(page))
    except BenchmarkError as error:
        raise BenchmarkError(f"{page}: {error}") from None


def write_section(path: Path, name: str, section: str, title: str = "") -> None:
    """Write a section to a page, in the place of the one of the same name if there is one.

    A new page has the title, or the name of this CPU.

    Raises
    ------
    BenchmarkError
        If a section of the page does not begin and end once.
    """
    page = find_page(path)
    text = _read_page(page) or f"# {title or detect_cpu().model}\n"
    try:
        write_atomically(page, replace_section(text, name, section))
    except BenchmarkError as error:
        raise BenchmarkError(f"{page}: {error}") from None


def _read_page(page: Path) -> str:
    """Return the text of a page; nothing if there is none yet."""
    try:
        return read_regular(page) if page.exists() else ""
    except OSError as error:
        raise FileAccessError(f"cannot read {page}: {describe_error(error)}") from None
    except ValueError as error:
        raise FileAccessError(f"cannot read {page}: {error}") from None


def _find_marks(text: str) -> dict[str, slice]:
    """Return where each section stands, its marks included."""
    found: dict[str, slice] = {}
    marks = list(re.finditer(r"<!-- (begin|end): (.*?) -->", text))
    for first, last in zip_longest(marks[::2], marks[1::2]):
        name = first[2]
        if last is None or (first[1], last[1], last[2]) != ("begin", "end", name) or name in found:
            raise BenchmarkError(f"the section {name!r} must begin and end once")
        found[name] = slice(first.start(), last.end())
    return found


def replace_section(text: str, name: str, section: str) -> str:
    r"""Return a page with a section replaced, or added at the end where there was none.

    Raises
    ------
    BenchmarkError
        If a section of the page does not begin and end once.

    Examples
    --------
    >>> page = replace_section("# CPU\n", "x", "old")
    >>> page
    '# CPU\n\n<!-- begin: x -->\nold\n<!-- end: x -->\n'
    >>> replace_section(page, "x", "new")
    '# CPU\n\n<!-- begin: x -->\nnew\n<!-- end: x -->\n'
    """
    new = f"<!-- begin: {name} -->\n{section}\n<!-- end: {name} -->"
    place = _find_marks(text).get(name)
    if place is None:
        return f"{text.rstrip()}\n\n{new}\n"
    return text[: place.start] + new + text[place.stop :]


def name_section(sweep: Record[Any]) -> str:
    """Return the name of a sweep's section: suite, dtype, threads and peers."""
    made = sweep.conditions
    peers = [name for name in made.contenders if name != OURS and split_name(name)[0] != ALIGNED]
    batch = "" if made.batch == 1 else f" batch {made.batch}"
    suite = f"{Path(made.suite).stem} {made.dtype or ''}".strip()
    name = f"{suite} threads {made.threads}{batch} peers {','.join(peers) or 'none'}"
    return name.replace("--", "-")  # which would end a comment
