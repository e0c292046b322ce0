"""The parts of `docs/` that follow from the code: costs, decisions, bytes that cross a network.

`python tests/support/docs_tables.py` writes them; a test says when that has to be done.
"""

from __future__ import annotations

import re
from pathlib import Path

from tilesolve.contractions.problem import Problem
from tilesolve.machine.cluster import Cluster
from tilesolve.machine.costs import Costs, describe_costs
from tilesolve.machine.model import Machine
from tilesolve.planning.network import Division, divide
from tilesolve.planning.worker_schedule import Schedule

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


def volumes() -> str:
    """Return the table of bytes that square products move over a network."""
    head = "| workers | shares | GB moved | GB at least | ratio | priced |"
    lines = [head, "| --: | --- | --: | --: | --: | --: |"]
    machine, problem = Machine.load("i7-6700k"), Problem.of("ij-ik-kj", 16384)

    def divide_among(workers: int) -> Division:
        return divide(problem, machine, Cluster(workers, 1 << 34, 1.2e9))

    for workers in (2, 4, 6, 7, 8, 13, 16, 22, 61, 64, 100, 256, 1021, 1024, 4096):
        found = divide_among(workers)
        moved = sum(Schedule(found).moved())
        sizes = f"{moved / 1e9:.2f} | {found.least / 1e9:.2f}"
        price = f"{moved / found.least:.2f} | {found.price.volume / moved:.3f}"
        lines.append(f"| {workers} | {found.sharing} | {sizes} | {price} |")
    few = {n: one.price.volume / one.least for n in range(2, 65) for one in [divide_among(n)]}
    most = max(few, key=few.__getitem__)
    return "\n".join(lines) + (
        f"\n\nOf the numbers up to 64 the largest ratio has {most}: {few[most]:.2f}; "
        f"{sum(one > 1.1 for one in few.values())} have more than 1.1."
    )


TABLES = {
    "machine.md": ("costs", costs),
    "decisions/index.md": ("decisions", decisions),
    "distributed.md": ("volumes", volumes),
}
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
