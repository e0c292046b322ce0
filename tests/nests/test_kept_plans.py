"""Plans of nests on disk: another process reads them; what does not fit is refused."""

import json
from itertools import pairwise

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import PlanError, TilesolveWarning
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import scale_figures
from tilesolve.nests import plan as plans
from tilesolve.nests.plan import NestPlan, nest
from tilesolve.plans import cache as plan_cache
from tilesolve.system import files

MACHINE = "i7-6700k"

PRODUCT = ("C[i,j] += A[i,k] * B[k,j]", 8, "float64", (), "contraction")
TRIANGLE = ("C[i,j] += A[i,k] * A[j,k]", 70, "float32", "j <= i", "contraction")
BACKWARDS = Stage("o", (Affine.letter("i"),), Read("A", (7 - Affine.letter("i"),)) * float("-inf"))
CASES = [
    PRODUCT,
    TRIANGLE,
    ("C[i,j] += A[i,k] * A[j,k]", 70, "float32", "k <= i", "contraction"),
    ("C[i,j] = a * sum(A[i,k] * B[k,j], k) + b * C[i,j]", 8, "float64", (), "contraction"),
    ("C[i,j] = a * sum(A[i,k] * B[k,j], k) + b * C[i,j]", 8, "float64", "j > i", "nest"),
    ("out[y,x] = A[x,y] & B[y,x]", 600, "int32", (), None),
    ("out[y,x] = A[x,y]", 300, "int32", (), None),
    ("t[y] = max(A[y,x], x)\nout[y] = t[y] + u // 2", 9, "int16", "y >= 2", None),
    ("h[v[i] % 4] += 1", {"h": (4,), "i": 9}, "int64", (), None),
    (BACKWARDS, 8, "float64", (), None),
]


def make(case, **options):
    text, sizes, dtype, where, route = case
    return nest(text, sizes, dtype, where=where, route=route, machine=MACHINE, **options)


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_another_process_reads_what_was_planned(case, threads, monkeypatch):
    """Nothing is planned again."""
    planned = make(case, threads=threads)
    plan_cache.forget()
    monkeypatch.setattr(plans, "solve_nest", None)
    kept = make(case, threads=threads)
    assert kept is not planned
    assert kept == planned
    assert kept.seconds == planned.seconds
    assert str(kept) == str(planned)
    assert NestPlan.from_json(kept.to_json()) == planned


def test_another_statement_size_or_machine_is_planned_by_itself():
    """So are another dtype, region, route, and other threads."""
    made = [make((*PRODUCT[:4], None)), make(PRODUCT), make(PRODUCT, threads=2)]
    made += [make(("C[i,j] += A[i,k] - B[k,j]", *case)) for case in ((8, "int8", (), None),)]
    made += [nest(PRODUCT[0], 8, where="i > j", machine=MACHINE)]
    made += [nest(PRODUCT[0], size, machine=name) for size in (8, 9) for name in ("e5-2680v4",)]
    assert plan_cache.count_plans()["memory"] >= len(made)
    assert all(first != second for first, second in pairwise(made))


def test_machines_that_read_alike_have_files_of_their_own():
    """Their reprs tell cores, vectors and caches alone; a warning would be an error here."""
    slow = Machine.load(MACHINE)
    fast = scale_figures(slow, {"memory_bandwidth": 2.0})
    assert repr(slow) == repr(fast)
    for kept in (False, True):
        for machine in (slow, fast):
            plan_cache.forget()
            assert nest("o[x] = A[x] + 1", 64, machine=machine).machine == machine
            assert tilesolve.plan("ij-ik-kj", 8, machine).machine == machine
            assert kept or plan_cache.count_plans()["disk"] == (2 if machine is slow else 4)
    assert plan_cache.count_plans()["disk"] == 4


def test_nothing_is_kept_where_caches_are_off(monkeypatch):
    """Nor where a call says so."""
    make(CASES[5], cache=False)
    monkeypatch.setenv("TILESOLVE_CACHE", "off")
    make(CASES[5])
    assert not list(plan_cache.plan_folder().glob("*.json"))


@pytest.mark.parametrize("damage", ["half", "flipped", "other", "list"])
def test_damaged_plans_are_told_and_made_again(monkeypatch, damage):
    """Whatever the file holds."""
    planned = make(CASES[5])
    (path,) = plan_cache.plan_folder().glob("*.json")
    text = path.read_text()
    path.write_text(
        {
            "half": text[: len(text) // 2],
            "flipped": text.replace("600", "601"),
            "other": make(CASES[6], cache=False).to_json(),
            "list": "[]",
        }[damage]
    )
    plan_cache.forget()
    monkeypatch.setattr(files, "_warned", set())
    with pytest.warns(TilesolveWarning, match=r"the plan in .* is ignored"):
        assert make(CASES[5]) == planned
    assert path.read_text() == text


def change(data, place, value):
    """Set an entry of nested lists and dictionaries, without the checksum that would tell."""
    del data["checksum"]
    *outer, last = place
    inner = data
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("case", "place", "value", "message"),
    [
        (PRODUCT, ["solutions"], [], "its statements do not compute C"),
        (PRODUCT, ["request", "computation", "shapes", "C"], [9, 9], "do not compute C"),
        (PRODUCT, ["request", "computation", "shapes", "A"], [8, 9], "has another array A"),
        (PRODUCT, ["request", "computation", "sizes", "k"], 7, "other extents than"),
        (PRODUCT, ["request", "threads"], 1.5, "a damaged plan: ValueError: 1.5 is no int"),
        (PRODUCT, ["solutions", 0, "plans"], [], "its plans are not of C"),
        (PRODUCT, ["solutions", 0, "cost"], None, "is none of LoopSolution, ContractionSolution"),
        (TRIANGLE, ["solutions", 0, "places", 0, 1, "i"], 69, "a block of .* lies outside of"),
        (TRIANGLE, ["solutions", 0, "places", 0, 1, "i"], -1, "a block of .* lies outside of"),
        (TRIANGLE, ["solutions", 0, "places", 0, 0], 99, "a damaged plan: IndexError"),
        (TRIANGLE, ["solutions", 0, "begun"], -1, "-1 of .* blocks begin elements"),
        (CASES[5], ["solutions", 0, "loops", "loops", 0, 1], "8", "'8' is no int"),
        (CASES[5], ["solutions", 0, "loops", "loops", 0, 2], "warp", "'warp' is no"),
        (CASES[5], ["solutions", 0, "loops", "loops", -1, 0], "y", "no loop of .* walks x"),
        (CASES[5], ["solutions", 0, "loops", "called"], 9, "no call has 9 of the loops"),
        (CASES[5], ["solutions", 0, "tiles"], [], r"\[\] is no"),
    ],
)
def test_parts_that_do_not_fit_are_refused(case, place, value, message):
    """They would read and write outside of arrays, or run something else."""
    text = change(json.loads(make(case).to_json()), place, value)
    with pytest.raises(PlanError, match=message):
        NestPlan.from_json(text)


def test_changes_that_fit_are_read():
    """Without its checksum a plan may be changed on purpose: other loops compute the same."""
    data = json.loads(make(CASES[5]).to_json())
    loops = data["solutions"][0]["loops"]["loops"]
    assert loops[0][1] > 64
    found = NestPlan.from_json(change(data, ["solutions", 0, "loops", "loops", 0, 1], 64))
    first, second = (np.arange(360_000, dtype="int32").reshape(600, 600) * n for n in (7, 11))
    np.testing.assert_array_equal(found(first, second), first.T & second)
