"""`tilesolve plan` and `tilesolve cache`: reports, JSON, pictures, expressions and errors."""

import json
import os
import re

import pytest
from commands import answer, invoke, refused, run_python

from tilesolve.machine.model import Machine
from tilesolve.planning.geometric import strategy
from tilesolve.plans import cache as plan_cache
from tilesolve.plans.plan import Plan, plan

SPEC, SIZES = "ab-ac-cb", ("a=72", "b=60", "c=48")
QUESTION = (SPEC, *SIZES, "--machine", "e5-2680v4")


def process(*arguments, **variables):
    """Run the command in a process of its own, its output piped."""
    return run_python(
        "-m",
        "tilesolve",
        *arguments,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **variables},
    )


def test_the_report_is_the_plan_in_text():
    """Without options the plan's report is printed, whichever way the sizes are given."""
    expected = str(plan(SPEC, {"a": 72, "b": 60, "c": 48}, "e5-2680v4")) + "\n"
    assert answer("plan", *QUESTION) == expected
    for sizes in (["a=72,b=60,c=48"], ["a = 72", "b=60,", "c=48"], ["c=48", "b=60", "a=72"]):
        assert answer("plan", SPEC, *sizes, "--machine", "e5-2680v4") == expected


def test_one_number_is_the_size_of_all_letters():
    """A bare number stands for every letter's extent."""
    assert answer("plan", SPEC, "64", "--machine", "i7-6700k") == (
        answer("plan", SPEC, "a=64", "b=64", "c=64", "--machine", "i7-6700k")
    )


def test_a_piped_report_is_whole():
    """A narrow terminal or a pipe breaks no line of a report, and loses none of its signs."""
    sizes = {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}
    spec, machine = "abcdef-degb-gfac", "e5-2680v4"
    expected = str(plan(spec, sizes, machine))
    assert max(map(len, expected.splitlines())) > 80
    given = [f"{letter}={extent}" for letter, extent in sizes.items()]
    done = process("plan", spec, *given, "--machine", machine, COLUMNS="40", TERM="xterm")
    assert (done.returncode, done.stdout, done.stderr) == (0, expected + "\n", "")


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ((), {}),
        (("--dtype", "f32"), {"dtype": "float32"}),
        (("--dtype", "c128"), {"dtype": "complex128"}),
        (("--dtype", "f16"), {"dtype": "float16"}),
        (("--dtype", "bf16"), {"dtype": "bfloat16"}),
        (("--dtype", "float32"), {"dtype": "float32"}),
        (("--threads", "2"), {"threads": 2}),
        (("--accumulate",), {"accumulate": True}),
    ],
)
def test_json_reads_back(options, meant):
    """--json prints one line that gives the same plan as the function."""
    printed = answer("plan", *QUESTION, "--json", *options)
    assert printed.count("\n") == 1
    assert json.loads(printed)["problem"]["spec"] == SPEC
    asked = plan(SPEC, {"a": 72, "b": 60, "c": 48}, "e5-2680v4", **meant)
    assert Plan.from_json(printed) == asked


def test_a_machine_file_is_a_machine(home, monkeypatch):
    """--machine takes the path of a file; without it the machine in force is planned for."""
    path = home / "own.toml"
    machine = Machine.load("i7-6700k").replace(name="own", fingerprint="")
    path.write_text(machine.to_toml())
    assert (
        answer("plan", SPEC, "32", "--machine", str(path))
        .splitlines()[0]
        .endswith("on own, 1 thread")
    )
    monkeypatch.setenv("TILESOLVE_MACHINE", str(path))
    assert " on own, " in answer("plan", SPEC, "32")


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG\r\n\x1a\n"), ("pdf", b"%PDF")])
def test_the_picture(home, ending, begins):
    """--plot draws a picture in the format that its name asks for, beside the report."""
    pytest.importorskip("matplotlib")
    path = home / f"plan.{ending}"
    assert answer("plan", *QUESTION, "--plot", str(path)) == answer("plan", *QUESTION)
    assert path.read_bytes().startswith(begins)
    assert len(path.read_bytes()) > 10_000


def test_the_picture_of_a_problem_without_work(home):
    """A size of 0 leaves nothing to draw but is no error."""
    pytest.importorskip("matplotlib")
    path = home / "plan.png"
    answer("plan", SPEC, "a=0", "b=4", "c=4", "--machine", "i7-6700k", "--plot", str(path))
    assert path.stat().st_size > 1000


# The rows of Table 1 of the paper: which tiles reach across their extent, in the order i, j, k,
# and the amounts of C, A and B.
TABLE_1 = {
    "<<<": ("N_i·N_j", "N_i·N_j·N_k/T1_j", "N_i·N_j·N_k/T1_i"),
    "<<=": ("N_i·N_j", "N_i·T1_k", "N_i·N_j·T1_k/T1_i"),
    "<=<": ("N_i·T1_j", "N_i·N_j·N_k/T1_j", "N_k·T1_j·N_i/T1_i"),
    "<==": ("N_i·T1_j", "N_i·T1_k", "T1_j·T1_k"),
    "=<<": ("N_j·T1_i", "T1_i·N_k·N_j/T1_j", "N_i·N_j·N_k/T1_i"),
    "=<=": ("N_j·T1_i", "T1_i·T1_k", "N_i·N_j·T1_k/T1_i"),
    "==<": ("T1_i·T1_j", "T1_i·N_k·N_j/T1_j", "T1_j·N_k·N_i/T1_i"),
    "===": ("T1_i·T1_j", "T1_i·T1_k", "T1_j·T1_k"),
}


def test_expressions_of_one_level_are_table_1():
    """--expressions --levels 1 of the matrix product prints the eight rows of Table 1."""
    extents = {"i": 60, "j": 84, "k": 132}
    header, *rows = answer("plan", "ij-ik-kj", "--expressions", "--levels", "1").splitlines()
    assert [name for name in header.split() if len(name) == 1] == ["C", "A", "B"]
    assert len(rows) == len(TABLE_1)
    for row, (fits, amounts) in zip(rows, TABLE_1.items(), strict=True):
        guards = ", ".join(f"T1_{i} {fit} N_{i}" for i, fit in zip("ijk", fits, strict=True))
        assert row.startswith(guards + "  ")
        values = {f"N_{i}": n for i, n in extents.items()}
        values |= {
            f"T1_{i}": n if fit == "=" else n // 12
            for (i, n), fit in zip(extents.items(), fits, strict=True)
        }
        found = row.removeprefix(guards).split()
        for printed, expected in zip(found, amounts, strict=True):
            assert value(printed, values) == value(expected, values)


def value(monomial, values):
    return eval(monomial.replace("·", "*"), {"__builtins__": {}}, values)


def test_expressions_of_a_machine_have_a_level_for_each_cache():
    """Without --levels the expressions are those of the machine's caches."""
    printed = answer("plan", "ij-ik-kj", "--expressions", "--machine", "i7-6700k")
    for level in ("L1", "L2", "L3"):
        for tensor in "CAB":
            assert f"{level} {tensor}: " in printed
    assert "L4" not in printed
    assert "T3_k = N_k" in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ab-ac", "8"), "'b'"),
        (("ab-a[c-cb", "8"), "ab-a[c-cb"),
        (("ab->a->b", "8"), "ab->a->b"),
        (("ab-ac-c!", "8"), "!"),
        (("", "8"), "spec"),
        ((SPEC,), "'a'"),
        ((SPEC, "a=8", "b=8"), "'c'"),
        ((SPEC, "a=8", "b=8", "c=8", "d=8"), "'d'"),
        ((SPEC, "a=8", "a=9", "b=8", "c=8"), "8 and 9"),
        ((SPEC, "a=x"), "a=x"),
        ((SPEC, "a=-1", "b=8", "c=8"), "-1"),
        ((SPEC, "8", "8"), "8 8"),
        ((SPEC, "²"), "²"),
        ((SPEC, str(2**64)), str(2**64)),
        ((SPEC, "8", "--dtype", "i32"), "i32"),
        ((SPEC, "8", "--dtype", "int32"), "int32"),
        ((SPEC, "8", "--machine", "nowhere"), "nowhere"),
        ((SPEC, "--expressions", "--machine", "nowhere"), "nowhere"),
        (("ab-ac", "--expressions"), "'b'"),
        ((SPEC, "8", "--threads", "0"), "0"),
        ((SPEC, "8", "--threads", "-2"), "-2"),
        ((SPEC, "8", "--plot", "no/such/folder/plan.png"), "no/such/folder"),
        ((SPEC, "8", "--plot", "plan.docx"), ".png"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments, says):
    """What cannot be planned is refused with a line that names it, and keeps no plan."""
    assert says in refused("plan", *arguments)
    assert plan_cache.count_plans() == {"memory": 0, "disk": 0, "bytes": 0}


def test_a_picture_that_is_a_folder_is_refused_before_any_work(home):
    """The picture's place is looked at first, so nobody waits for a plan in vain."""
    (home / "plan.png").mkdir()
    assert "it is a folder" in refused("plan", *QUESTION, "--plot", str(home / "plan.png"))
    assert plan_cache.count_plans()["disk"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (SPEC, "--expressions", "--json"),
        (SPEC, "--expressions", "--plot", "plan.png"),
        (SPEC, "--expressions", "--dtype", "nonsense"),
        (SPEC, "--expressions", "--threads", "-4"),
        (SPEC, "--expressions", "--accumulate"),
        (SPEC, "--expressions", "--no-cache"),
        (SPEC, "8", "--levels", "1"),
        (SPEC, "--expressions", "--levels", "0"),
        (SPEC, "8", "--threads", "two"),
        (SPEC, "8", "--nonsense"),
        (),
    ],
)
def test_options_that_make_no_sense_together_are_refused(home, arguments, monkeypatch):
    """A wrong use of the options is said on stderr, not quietly passed over."""
    monkeypatch.chdir(home)
    done = invoke("plan", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert not list(home.glob("plan.*"))


def test_errors_in_a_process_have_no_traceback():
    """From a shell an error is its one line, too."""
    done = process("plan", SPEC, "a=4")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no size for 'b'")
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_plans_are_kept_unless_told_not_to(home, monkeypatch):
    """A plan is kept and counted; --no-cache keeps and reads none; --clear removes them."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "cache"))
    folder = str(plan_cache.plan_folder())
    assert answer("cache") == (
        f"0 plans of 0 bytes in {folder}, in use\n"
        "0 files of compiled code, 0 B\n"
        "0 B in all, of 512 MiB at most; what was not used for longest goes first\n"
    )
    answer("plan", *QUESTION, "--no-cache")
    assert answer("cache").startswith("0 plans of 0 bytes")
    first = answer("plan", *QUESTION)
    size = sum(path.stat().st_size for path in plan_cache.plan_folder().iterdir())
    assert answer("cache").startswith(f"1 plan of {size} bytes in {folder}, in use\n")
    (home / "cache" / "code").mkdir()
    (home / "cache" / "code" / "old.o").touch()
    told = (
        rf"removed 1 plan and \d+ files? of compiled code from {re.escape(str(home / 'cache'))}\n"
    )
    assert re.fullmatch(told, answer("cache", "--clear"))
    assert not list((home / "cache" / "code").iterdir())
    assert not list(plan_cache.plan_folder().iterdir())
    assert answer("plan", *QUESTION) == first


def test_no_cache_solves_although_there_is_a_plan(monkeypatch):
    """--no-cache does not read what is kept, --cache does."""
    answer("plan", *QUESTION)
    solved = []
    real = strategy.relax
    monkeypatch.setattr(strategy, "relax", lambda *a, **o: solved.append(a) or real(*a, **o))
    answer("plan", *QUESTION)
    assert not solved
    answer("plan", *QUESTION, "--no-cache")
    assert len(solved) == 1


def test_a_cache_that_is_switched_off_is_said_to_be(monkeypatch):
    """TILESOLVE_CACHE=off keeps nothing, and `tilesolve cache` says why."""
    monkeypatch.setenv("TILESOLVE_CACHE", "off")
    answer("plan", *QUESTION)
    assert answer("cache").splitlines()[0].endswith("switched off by TILESOLVE_CACHE")
    assert plan_cache.count_plans() == {"memory": 0, "disk": 0, "bytes": 0}
    monkeypatch.setenv("TILESOLVE_CACHE", "none")
    for arguments in (("plan", *QUESTION), ("cache",)):
        assert "TILESOLVE_CACHE must be on or off" in refused(*arguments)


def test_a_plan_that_cannot_be_removed_is_an_error(home, monkeypatch):
    """What `--clear` cannot remove is named, and the exit status is not 0."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "cache"))
    stubborn = plan_cache.plan_folder() / "stubborn.json"
    stubborn.mkdir(parents=True)
    assert str(stubborn) in refused("cache", "--clear")


def test_a_damaged_plan_is_a_warning():
    """A kept plan that cannot be read is reported on stderr, and solved again."""
    first = answer("plan", *QUESTION)
    (path,) = plan_cache.plan_folder().glob("*.json")
    path.write_text("{")
    done = process("plan", *QUESTION)
    assert (done.returncode, done.stdout) == (0, first)
    assert done.stderr.startswith(f"warning: the plan in {path} is ignored")
    assert done.stderr.count("\n") == 1


def test_a_strategy_is_forced():
    """For specs and for layers; one that there is not is an error of one line."""
    layer = ("--conv", "c=8 h=9 w=9 k=8 r=3 s=3 padding=1", "--machine", "e5-2680v4")
    for question in (QUESTION, layer):
        text = answer("plan", *question, "--strategy", "slicing")
        assert text.splitlines()[-1].startswith("slicing: ")
        assert "slicing" not in answer("plan", *question)
    assert "no strategy 'guess'" in refused("plan", *QUESTION, "--strategy", "guess")


@pytest.mark.parametrize("spec", ["abc", "[h+r]c", "a b c"])
@pytest.mark.parametrize("more", [("4",), ("--expressions",)])
def test_letters_alone_are_no_spec(spec, more):
    """A tensor without an operator in its spec is a slip, and one line says so."""
    done = invoke("plan", spec, *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {spec!r} is one tensor alone: a spec has an output and operands, such as "
        "'abcd-aebf-dfce' or 'ij,jk->ik'\n"
    )
