import doctest
import importlib
import inspect
import pkgutil
import re
from functools import cached_property
from pathlib import Path

import docs_tables
import pytest
from commands import invoke

import tilesolve
from tilesolve.cli import app
from tilesolve.contractions.problem import DTYPES
from tilesolve.machine.model import Machine
from tilesolve.system.files import SETTINGS

ROOT = Path(__file__).parent.parent

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md")))
}
"""What people read, by path."""

MODULES = [
    "tilesolve",
    *(
        found.name
        for found in pkgutil.walk_packages(tilesolve.__path__, "tilesolve.")
        if not found.name.endswith("__main__")  # which runs the command
    ),
    *(
        found.name
        for folder in ("contractions", "kernels", "packing")
        for found in pkgutil.walk_packages(
            importlib.import_module(f"tilesolve.{folder}").__path__, f"tilesolve.{folder}."
        )
    ),
]


def public(module):
    """The public classes and functions that a module itself defines, with their names."""
    for name, value in vars(module).items():
        value = inspect.unwrap(value) if callable(value) else value
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value


def members(kind):
    """The public methods and properties that a class itself defines, with their names."""
    for name, value in vars(kind).items():
        value = getattr(value, "__func__", value)
        is_member = inspect.isfunction(value) or isinstance(value, property | cached_property)
        if not name.startswith("_") and is_member:
            yield name, value


def is_documented(value):
    """Whether somebody wrote a docstring: dataclasses make one up from the signature."""
    doc = value.__doc__ or ""
    return bool(doc.strip()) and not doc.startswith(f"{getattr(value, '__name__', ' ')}(")


LONG = {
    "tilesolve.calibration.calibrate",
    "tilesolve.gpu.strategy",
    "tilesolve.plans.gpu_plan",
    "docs/gpu.md",
}
"""What has examples that take seconds: they measure, or assemble many kernels."""


def quick_but_long(names):
    """Names as parameters: those whose examples take long are slow."""
    return [pytest.param(one, marks=[pytest.mark.slow] if one in LONG else []) for one in names]


ORACLES = ("compile_programs", "cubins", "interpreter", "notation", "numpy_epilogues")
"""What tests share, with examples of its own."""


@pytest.mark.parametrize("name", [*quick_but_long(MODULES), *ORACLES])
def test_examples_give_what_they_show(name):
    """The examples in a module's docstrings run and print what stands there."""
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def documented(module):
    """A module, and each public class, function, method and property in it, with their names."""
    yield "", module
    for name, value in public(module):
        yield name, value
        if inspect.isclass(value):
            yield from ((f"{name}.{member}", own) for member, own in members(value))


def test_public_names_are_documented():
    """Modules, and whatever is public in them, have docstrings."""
    assert [
        f"{module}.{called}"
        for module in MODULES
        for called, value in documented(importlib.import_module(module))
        if not is_documented(value)
    ] == []


@pytest.mark.parametrize("name", tilesolve.__all__)
def test_public_names_have_an_example(name):
    """Each name of the package shows an example; of errors, what raises them shows them."""
    value = getattr(tilesolve, name)
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    assert is_error or ">>> " in (value.__doc__ or "")


def blocks(page, language):
    """A page's blocks of code in a language; an empty one has none."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)


def section(page, name):
    """What stands in a page between two markers of a name."""
    (found,) = re.findall(f"<!-- {name} -->\n(.*?)<!-- /{name} -->", PAGES[page], re.DOTALL)
    return found


def slug(heading):
    """The anchor that the site gives to a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def test_readme_is_short():
    """A newcomer reads all of it."""
    assert len(PAGES["README.md"].splitlines()) <= 250


@pytest.mark.parametrize("page", quick_but_long(page for page in PAGES if blocks(page, "python")))
def test_examples_of_a_page_give_what_they_show(page):
    """A page's examples run, one after the other, and print what stands there."""
    text = "".join(blocks(page, "python"))
    session = doctest.DocTestParser().get_doctest(text, {}, page, None, 0)
    assert session.examples
    assert doctest.DocTestRunner().run(session).failed == 0


def test_pages_for_users_have_examples():
    """Those that say how to use the library show it."""
    users = (
        "README",
        "docs/index",
        "docs/einsum",
        "docs/convolutions",
        "docs/plans",
        "docs/specs",
        "docs/machine",
    )
    assert [page for page in users if not blocks(f"{page}.md", "python")] == []


@pytest.mark.parametrize("page", ["README.md", "docs/plans.md"])
def test_the_report_of_a_plan_is_what_is_printed(page):
    """Its words are the same; its figures are, but for the solver's last digits."""
    shown = section(page, "report").strip().strip("`")
    printed = str(tilesolve.plan("abcd-aebf-dfce", 72, machine="i7-6700k"))
    figure = r"\d+(?:\.\d+)?(?:e[+-]\d+)?"
    assert re.sub(figure, "#", shown).split() == re.sub(figure, "#", printed).split()
    for one, other in zip(re.findall(figure, shown), re.findall(figure, printed), strict=True):
        assert float(one) == pytest.approx(float(other), rel=0.05, abs=0.1)


def test_the_expressions_are_what_is_printed():
    """The table of data movements is the command's."""
    found = invoke("plan", "--expressions", "ij-ik-kj", "--levels", "1")
    assert f"```\n{found.stdout}```" in PAGES["docs/model.md"]


def test_the_machine_file_of_the_docs_is_one():
    """The example of a machine file can be read."""
    (text,) = [block for block in blocks("docs/machine.md", "toml") if "[vector]" in block]
    machine = Machine.from_toml(text)
    assert [level.name for level in machine.levels] == ["L1", "L2", "memory"]
    assert all(machine.peak(dtype) > 0 for dtype in DTYPES)


def test_the_suite_file_of_the_docs_is_one(tmp_path):
    """The example of a suite file can be read."""
    (text,) = blocks("docs/specs.md", "toml")
    (tmp_path / "mine.toml").write_text(text)
    assert tilesolve.suite(str(tmp_path / "mine.toml"))["square"].dtype == "float32"


def test_every_setting_and_command_is_documented(monkeypatch):
    """The page has each environment variable, each command, and all options of the large ones."""
    commands = [command.name or command.callback.__name__ for command in app.registered_commands]
    monkeypatch.setenv("COLUMNS", "200")
    shown = "".join(
        invoke(command, "--help").stdout for command in ("plan", "bench", "calibrate", "kernels")
    )
    options = [option for option in re.findall(r"--[a-z-]+", shown) if option != "--help"]
    wanted = [*SETTINGS, *(f"`tilesolve {command}" for command in commands), *options]
    assert len(options) > 5
    assert [name for name in wanted if name not in PAGES["docs/command.md"]] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """Each link within the repository names a file that is there, and a heading in it."""
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.resolve().is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), link


VOCABULARY = (
    *("letter", "index", "extent", "tensor", "operand", "class", "role", "halo", "stage"),
    *("sliding window", "level", "volume", "working set", "reuse distance", "roofline"),
    *("prefetch", "non-temporal store", "4 KiB aliasing", "tile", "box", "tiling loop", "band"),
    *("innermost", "stationary", "nest", "plan", "register tile", "microkernel", "macrokernel"),
    *("micro-panel", "segment", "in place", "transpose", "workspace", "staging buffer"),
    *("epilogue", "route"),
)
"""What the words of code, reports and messages are."""


def test_every_word_is_defined():
    """The glossary has each word of the vocabulary, and says where it appears."""
    rows = [row.split("|")[1:4] for row in PAGES["docs/words.md"].splitlines() if "| **" in row]
    defined = {word for row in rows for word in re.findall(r"\*\*(.*?)\*\*", "".join(row[:2]))}
    assert [word for word in VOCABULARY if word not in defined] == []
    assert all(meaning.strip() and place.strip() for _, meaning, place in rows)


def test_the_api_has_every_public_name():
    """The page of the API shows each name of the package, and no other."""
    shown = re.findall(r"^::: tilesolve\.(\w+)$", PAGES["docs/api.md"], re.MULTILINE)
    assert sorted(shown) == sorted(tilesolve.__all__)
    listed = set(re.findall(r"\]\[tilesolve\.(\w+)\]", PAGES["docs/api.md"]))
    assert listed == set(tilesolve.__all__)


def test_tables_of_the_docs_are_those_of_the_code():
    """Else `python tests/support/docs_tables.py` writes them."""
    pages = docs_tables.pages()
    assert {path.name: text for path, text in pages.items()} == {
        path.name: path.read_text(encoding="utf-8") for path in pages
    }


def test_every_room_is_on_the_map():
    """Developers find each folder that has modules; those of the bench count as one."""
    tops = ("contractions", "kernels", "packing", "tilesolve")
    rooms = {
        path.parent.relative_to(ROOT).as_posix()
        for top in tops
        for path in (ROOT / top).rglob("*.py")
        if path.name != "__init__.py"
    }
    shown = set(re.findall(r"`([a-z_/]+)/`", PAGES["docs/develop.md"]))
    missing = rooms - shown - {"kernels", "tilesolve"}
    assert [room for room in sorted(missing) if not room.startswith("tilesolve/bench/")] == []
