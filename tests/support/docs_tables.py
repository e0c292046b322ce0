"""The parts of `docs/` that follow from the code: the table of costs and the list of decisions.

`python tests/support/docs_tables.py` writes them; a test says when that has to be done.
"""

from __future__ import annotations

import re
from pathlib import Path

from tilesolve.machine.costs import Costs, describe_costs

DOCS = Path(__file__).parent.parent.parent / "docs"


def costs() -> str:
    """Return the table of all costs of a CPU."""
    lines = ["| cost | default | unit | meaning | probe |", "| --- | --: | --- | --- | --- |"]
    for cost in describe_costs(Costs()):
        probe = f"`tilesolve {cost.probe}`" if cost.probe else "-"
        row = (f"`{cost.name}`", f"{cost.value:.10g}", cost.unit, cost.meaning, probe)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def decisions() -> str:
    """Return the list of the pages of decisions, by number."""
    lines = []
    for page in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        number, _, _ = page.name.partition("-")
        title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- [{number} {title.removeprefix(number).strip()}]({page.name})")
    return "\n".join(lines)


TABLES = {"machine.md": ("costs", costs), "decisions/index.md": ("decisions", decisions)}
"""For each page the name of the markers, and what stands between them."""


def between(text: str, name: str, new: str) -> str:
    """Return a page with what stands between two markers replaced."""
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    return re.sub(f"{first}.*{last}", lambda _: f"{first}\n{new}\n{last}", text, flags=re.DOTALL)


def pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    return {
        DOCS / page: between((DOCS / page).read_text(encoding="utf-8"), name, table())
        for page, (name, table) in TABLES.items()
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
