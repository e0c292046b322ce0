"""A sweep as one page that needs nothing else: pictures, a table to sort, where it comes from."""

from __future__ import annotations

from html import escape
from math import isfinite
from string import Template

from tilesolve.bench.contenders import ALIGNED, OURS
from tilesolve.bench.results.charts import draw_bars, draw_roofline
from tilesolve.bench.results.report import sort_cases
from tilesolve.bench.results.summary import list_others, report_sweep
from tilesolve.bench.results.sweeps import Sweep
from tilesolve.show.pictures import svg
from tilesolve.system.tables import Table


def render_html(sweep: Sweep) -> str:
    """Return a sweep as an HTML page."""
    report = report_sweep(sweep)
    (table,) = report.tables
    listed = {**report.facts, "contenders": "", "machine file": ""}
    contenders = "".join(f"<li>{escape(label)}</li>" for label in report.contenders)
    listed_html = {what: escape(value) for what, value in listed.items()}
    listed_html["contenders"] = f"<ul>{contenders}</ul>"
    listed_html["machine file"] = (
        f"<details><summary>show</summary><pre>{escape(sweep.machine)}</pre></details>"
    )
    return _PAGE.substitute(
        title=escape(f"tilesolve bench {sweep.conditions.suite}"),
        means="".join(
            f"<li>{escape(f'{what}: {mean}')}</li>" for what, mean in report.means.items()
        ),
        bars=svg(draw_bars(sweep)),
        roofline=svg(draw_roofline(sweep)),
        heads="".join(
            f'<th class="{side}" aria-sort="none">'
            f'<button type="button">{escape(head)}</button></th>'
            for head, side in table.columns.items()
        ),
        rows="\n".join(_render_rows(sweep, table)),
        notes="".join(f"<li>{escape(note)}</li>" for note in report.notes),
        facts="".join(
            f"<dt>{escape(what)}</dt><dd>{value}</dd>" for what, value in listed_html.items()
        ),
    )


def _render_rows(sweep: Sweep, table: Table) -> list[str]:
    """Return the table's rows; a cell carries the figure that it is sorted by."""
    sides = list(table.columns.values())
    peers = list_others(sweep)
    found = []
    for case, cells in zip(sort_cases(sweep), table.rows, strict=True):
        mine = case.entries.get(OURS)
        figures: list[float | None] = [
            None,
            case.plan.roofline,
            case.speed(OURS),
            case.speed(ALIGNED),
            case.ratio(ALIGNED),
            case.reached(OURS),
            case.ratio(),
            mine.spread if mine else None,
            len(mine.seconds) if mine else None,
            case.plan.predicted / case.ours,
            None,
            mine.preparation if mine else None,
            mine.memory if mine else None,
            *(case.speed(name) for name in peers),
        ]
        made = []
        for side, cell, figure in zip(sides, cells, figures, strict=True):
            number = figure is not None and isfinite(figure)
            key = f' data-key="{figure:.9g}"' if number else ""
            made.append(f'<td class="{side}"{key}>{escape(cell)}</td>')
        found.append(f"<tr>{''.join(made)}</tr>")
    return found


_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light; --ink: #22262b; --grey: #8a8f98; --line: #e3e5e8; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff;
  margin: 2rem auto; max-width: 1400px; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
figure { margin: 0; overflow-x: auto; } figure svg { max-width: 100%; height: auto; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th { border-bottom: 2px solid var(--grey); }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #1f5fa8; }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
.right { text-align: right; } .left { text-align: left; }
tbody tr:hover { background: #f4f6f8; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; }
dt { font-weight: 600; } dd, dd ul { margin: 0; padding: 0; list-style: none; }
</style>
</head>
<body>
<h1>$title</h1>
<ul>$means</ul>
<h2>Speed</h2>
<figure>$bars</figure>
<h2>Roofline</h2>
<figure>$roofline</figure>
<h2>Cases</h2>
<p>Speeds in GFLOP/s, median of the rounds; predicted over measured time; memory beside the
tensors. Click on a head to sort.</p>
<div class="table"><table id="cases">
<thead><tr>$heads</tr></thead>
<tbody>
$rows
</tbody>
</table></div>
<ul>$notes</ul>
<h2>Where these figures come from</h2>
<dl>$facts</dl>
<script>
"use strict";
const table = document.getElementById("cases");
const heads = [...table.querySelectorAll("th")];
function key(row, at) {
  const cell = row.cells[at];
  return cell.dataset.key === undefined ? null : Number(cell.dataset.key);
}
function order(a, b, at, sign) {
  const x = key(a, at), y = key(b, at);
  if (x === null && y === null)
    return sign * a.cells[at].textContent.localeCompare(b.cells[at].textContent);
  if (x === null || y === null) return x === null ? 1 : -1;
  return sign * (x - y);
}
heads.forEach((head, at) => head.querySelector("button").addEventListener("click", () => {
  const up = head.getAttribute("aria-sort") !== "ascending";
  heads.forEach((other) => other.setAttribute("aria-sort", "none"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((a, b) => order(a, b, at, up ? 1 : -1)));
}));
</script>
</body>
</html>
""")
