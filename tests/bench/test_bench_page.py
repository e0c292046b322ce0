"""The page of a sweep: whole, self-contained, and right in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from patience import PATIENCE

from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.record import Conditions
from tilesolve.bench.results.sweeps import Entry, Figures, Result, Sweep
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine

pytest.importorskip("matplotlib")

from tilesolve.bench.results.charts import draw_sweep
from tilesolve.bench.results.html_page import render_html

VOID = {"meta", "link", "br", "img", "input", "hr"}
SPEEDS = {"first": 2.0, "second": 4.0, "third & <last>": 3.0}
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no chromium to look with")


@pytest.fixture(scope="module")
def sweep():
    """Three cases: in one of them a peer crashed; another one was skipped."""
    problem = Problem.of("ij-ik-kj", 1000)
    cases = []
    for name, seconds in SPEEDS.items():
        entries = {OURS: Entry((seconds,) * 3, "", 0.15, 1000), "numpy": Entry((2 * seconds,) * 3)}
        if name == "second":
            entries["numpy"] = Entry((), "crashed: SIGSEGV")
        figures = {OURS: Figures(1.0, 1.5, "compute")}
        cases.append(Result(ContractionCase(name, problem), entries, figures))
    skipped = ContractionCase("skipped", problem)
    cases.append(Result(skipped, skipped="does not fit into memory: <too large>"))
    labels = {OURS: "tilesolve: tilesolve 9.9", "numpy": "numpy: numpy 8.8 A=b"}
    machine = Machine.load("i7-6700k").to_toml()
    facts = {"CPU": "the <fast> one", "begun": "2024-02-29 12:00 UTC"}
    return Sweep(Conditions("mine", None, 1, 1, 3, labels, "toy 123"), facts, machine, tuple(cases))


class Reader(HTMLParser):
    """Collects text, attributes and cells, and insists that tags close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.attributes, self.rows = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


def test_the_page_is_well_formed_and_whole(sweep):
    """Tags close; the table, both pictures, the notes and where it comes from are there."""
    found = read(render_html(sweep))
    assert found.open == []
    text = " ".join(found.text)
    for part in ("the <fast> one", "2024-02-29", "numpy 8.8 A=b", "i7-6700k", "median of 3 rounds"):
        assert part in text
    assert "second, numpy: crashed: SIGSEGV" in text
    assert "does not fit into memory: <too large>" in text
    assert "cases with a result: 3 of 4" in text
    assert len({len(row) for row in found.rows}) == 1
    assert [row[0] for row in found.rows[1:]] == ["third & <last>", "first", "second", "skipped"]
    assert render_html(sweep).count("<svg") == 2
    assert "Roofline" in text
    assert text.count("third & <last>") == 2  # in the table and below its bars


def test_the_page_needs_nothing_else(sweep):
    """No attribute or style loads anything from anywhere."""
    text = render_html(sweep)
    for tag, name, value in read(text).attributes:
        assert name != "src"
        if name in ("href", "xlink:href"):
            assert value.startswith("#"), (tag, value)
    assert not re.search(r"@import|url\((?!#)", text)


def test_cells_are_sorted_by_figures(sweep):
    """Each figure that is shown has the number to sort by; text and gaps have none."""
    keys = [value for tag, name, value in read(render_html(sweep)).attributes if name == "data-key"]
    assert all(float(key) >= 0 for key in keys)
    assert len(keys) >= 3 * 7


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_the_picture_is_drawn(sweep, tmp_path, ending):
    """One file with bars and roofline, in the format of its name."""
    target = tmp_path / f"sweep.{ending}"
    draw_sweep(sweep, target)
    assert target.read_bytes()[:4] in (b"\x89PNG", b"%PDF")


def browse(folder, text, *options):
    """Open a page in a headless browser and return what it prints."""
    (folder / "page.html").write_text(text, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1600", *options]
    command += [(folder / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


@needs_browser
def test_a_browser_sorts_the_table(sweep, tmp_path):
    """A click on a head sorts by its figures, a second one the other way, gaps last."""
    clicks = """<script>
    window.addEventListener("error", (event) => document.body.dataset.fault = event.message);
    const names = () => [...document.querySelectorAll("#cases tbody tr")]
      .map((row) => row.cells[0].textContent).join(",");
    const button = document.querySelectorAll("#cases th button")[2];
    button.click(); const up = names(); button.click();
    document.body.dataset.order = encodeURIComponent(up + "|" + names());
    document.body.dataset.loaded = performance.getEntriesByType("resource").length;
    </script></body>"""
    dom = browse(tmp_path, render_html(sweep).replace("</body>", clicks), "--dump-dom")
    (body,) = re.findall(r"<body[^>]*>", dom)
    (order,) = re.findall(r'data-order="([^"]*)"', body)
    assert unquote(order).split("|") == [
        "second,third & <last>,first,skipped",
        "first,third & <last>,second,skipped",
    ]
    assert 'data-loaded="0"' in body
    assert "data-fault" not in body
    assert 'aria-sort="descending"' in dom


@needs_browser
def test_a_browser_shows_the_pictures(sweep, tmp_path):
    """The bars of tilesolve and its peer are seen, in their colours and proportions."""
    from matplotlib.image import imread

    browse(tmp_path, render_html(sweep), f"--screenshot={tmp_path / 'page.png'}")
    pixels = imread(tmp_path / "page.png")[:, :, :3]
    assert pixels.shape[:2] == (1600, 1400)
    red = (pixels[:, :, 0] > 0.6) & (pixels[:, :, 1] < 0.4) & (pixels[:, :, 2] < 0.4)
    blue = (pixels[:, :, 2] > 0.5) & (pixels[:, :, 0] < 0.35)
    assert red.sum() > 2 * blue.sum() > 1000
