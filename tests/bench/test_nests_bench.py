"""Sweeps of nests: what is measured, who computes it, and what is shown of it."""

import csv
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from commands import bench
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import WHOLE, examples, in_turn

from tilesolve.bench.case import find_outliers, sum_parts
from tilesolve.bench.contenders import (
    NEST_PEERS,
    PIPELINE_PEERS,
    Contender,
    find_libraries,
    parse_nest_contenders,
    parse_pipeline_contenders,
    parse_statement_contenders,
)
from tilesolve.bench.nests import (
    NestCase,
    StatementCase,
    find_nests,
    find_pipelines,
    find_statements,
    has_nests,
)
from tilesolve.bench.results.nest_tables import (
    list_nest_columns,
    list_nest_means,
    list_nest_rows,
    report_nests,
)
from tilesolve.bench.results.record import Conditions
from tilesolve.bench.results.report import list_notes
from tilesolve.bench.results.sweeps import (
    Entry,
    Figures,
    NestSweep,
    PipelineSweep,
    Result,
    StatementSweep,
)
from tilesolve.bench.run import nest_peers, pipeline_peers
from tilesolve.bench.run.numpy_nests import list_forms
from tilesolve.bench.run.worker import Order, get_ready
from tilesolve.contractions.errors import BenchmarkError, SuiteError
from tilesolve.contractions.statements import nest_suites
from tilesolve.contractions.statements.drawn_nests import MOST_WORK, TOTAL_BYTES, count_work
from tilesolve.contractions.statements.nest_suites import NestCase as Nest
from tilesolve.contractions.statements.nest_suites import nest_suite
from tilesolve.machine.model import Machine
from tilesolve.nests.split import split_sums

MACHINE = Machine.load("i7-6700k")
SMALL = Nest("syrk", "C[i,j] += A[i,k] * A[j,k]", (("i", 9), ("j", 9), ("k", 7)), "float32")


@pytest.mark.grid
@pytest.mark.parametrize("peer", ["numpy", "numba", "halide", "halide-adams"])
@pytest.mark.parametrize("name", ["gemm", "trmm", "syrk-lower", "tpm", "3mm", "convlayer"])
def test_peers_compute_what_the_reference_does(name, peer):
    """Small versions of kernels of the suite; parameters, regions and several statements."""
    if peer.startswith("halide") and not find_libraries():
        pytest.skip("needs Halide")
    if peer.startswith("halide") and name == "gemm":
        pytest.skip("its sum stands within a larger term")
    case = find_nests("nests", chosen=[name])[name].shrink()
    *operands, out = case.draw()
    expected = case.expect(operands)
    make = getattr(nest_peers, peer.replace("-", "_"))
    found = make(case.work, MACHINE, 1, operands, out)()
    assert expected.describe_fault(found) == ""
    found = found.copy()
    found[tuple(0 for _ in found.shape)] += 1
    assert f"at 1 of {found.size} places" in expected.describe_fault(found)


def test_an_order_is_checked_and_timed():
    """In the process of ours, of the baseline and of the printed formulas."""
    for maker in ("tilesolve", "baseline", "thesis"):
        made = f"tilesolve.bench.run.nest_peers:{maker}"
        found, timed = get_ready(Order(NestCase("syrk", SMALL), MACHINE, 1, made, 4096))
        assert found.problem == ""
        assert found.figures.predicted > 0
        assert "temporal" in found.figures.how
        assert timed().seconds > 0


@pytest.mark.parametrize("peer", ["tilesolve", "baseline", "tilesolve_outs"])
def test_code_is_made_before_the_first_run(peer, monkeypatch):
    """What is loaded runs, and compiles nothing then; so does a pipeline of ours."""

    def refuse(*_):
        raise AssertionError("a run compiles")

    nest = Nest(
        "x", "C[i,j] = a * sum(A[i,k] * A[j,k], k)", SMALL.sizes, "float32", "", (("a", 2),)
    )
    cases = [(nest_peers, NestCase("x", nest))]
    if peer == "tilesolve":
        cases.append((pipeline_peers, find_pipelines("pipelines")["blur"].shrink()))
    for peers, case in cases:
        *operands, out = case.draw()
        made = getattr(peers, peer)(case.work, MACHINE, 1, operands, out)
        made.load()
        with monkeypatch.context() as patch:
            patch.setattr("tilesolve.nests.call_tasks.plan_program", refuse)
            assert case.expect(operands).describe_fault(made.run()) == ""


def test_outliers_are_found():
    """By sums of parts; integers must be equal."""
    small = find_nests("nests")["tpm"].shrink()
    right = small.draw()[-1] + 3
    wrong = right.copy()
    wrong[2, 3] += 1
    digests = [sum_parts(one) for one in (right, right, wrong)]
    assert find_outliers(small, digests) == [False, False, True]
    floats = NestCase("syrk", SMALL)
    close = np.ones(floats.work.computation.output.shape, "float32")
    digests = [sum_parts(one) for one in (close, close * (1 + 1e-6), close + 1)]
    assert find_outliers(floats, digests) == [False, False, True]
    assert find_outliers(floats, []) == []


def test_a_large_result_of_another_shape_is_wrong():
    """Its elements are compared among contenders alone."""
    case = NestCase("syrk", replace(SMALL, sizes=(("i", 30), ("j", 20), ("k", 7))))
    *operands, out = case.draw()
    expected = case.expect(operands)
    assert expected.describe_fault(out) == ""
    assert "of shape (20, 30)" in expected.describe_fault(out.T)


def test_names_choose_nests_and_contenders():
    """Patterns; what is unknown is refused with what there is."""
    assert has_nests("nests")
    assert not has_nests("tccg")
    assert list(find_nests("nests", chosen=["syr*"])) == ["syrk", "syrk-lower", "syr2k"]
    with pytest.raises(BenchmarkError, match="matmul"):
        find_nests("nests", chosen=["nothing"])
    with pytest.raises(SuiteError, match="nests"):
        nest_suite("tccg")
    assert [one.name for one in parse_nest_contenders("none")] == ["tilesolve", "aligned"]
    assert len(parse_nest_contenders(",".join(NEST_PEERS))) == 2 + len(NEST_PEERS)
    with pytest.raises(BenchmarkError, match="halide"):
        parse_nest_contenders("polly")


def make_sweep():
    """Two nests with made-up times."""
    times = {"tilesolve": 1.0, "baseline": 3.0, "thesis": 2.0, "numpy": 4.0, "numba": 0.5}
    entries = {name: Entry((seconds,)) for name, seconds in times.items()}
    entries["halide"] = Entry((), "not installed")
    figures = {"tilesolve": Figures(predicted=0.5, how="temporal, nest")}
    summed = Result(NestCase("syrk", SMALL), entries, figures)
    plain = replace(SMALL, name="tp", text="out[i,j] = A[j,i]", sizes=(("i", 5), ("j", 4)))
    failed = {**entries, "numba": Entry((), "crashed: SIGSEGV")}
    conditions = Conditions("nests", None, 1, 1, 5, {name: f"{name}: 1" for name in entries}, "m")
    other = Result(NestCase("tp", plain), failed)
    big = NestCase("big", replace(plain, name="big"))
    skipped = Result(big, skipped="does not fit into memory")
    return NestSweep(conditions, {"CPU": "any"}, MACHINE.to_toml(), (summed, other, skipped))


def test_ratios_and_means():
    """To the best library, which ours and the baseline are none of."""
    sweep = make_sweep()
    summed, other, _ = sweep.cases
    assert (summed.fastest(), summed.ratio(), summed.ratio("numba")) == ("numba", 0.5, 0.5)
    assert (other.fastest(), other.ratio("numpy")) == ("numpy", 4.0)
    assert summed.case.temporal
    assert not other.case.temporal
    assert other.case.volume == 2 * 20 * 4
    means = list_nest_means(sweep)
    assert means["all, to the best peer"].startswith(f"{math.sqrt(0.5 * 4):.2f}, ahead in 1 of 2")
    assert means["temporal, thesis to baseline"].startswith("1.50")
    assert "others, to numba" not in means


def test_a_sweep_is_shown_and_read_back():
    """As tables, Markdown, CSV and JSON."""
    sweep = make_sweep()
    rows, columns = list_nest_rows(sweep), list_nest_columns(sweep)
    assert all(len(row) == len(columns) for row in rows)
    assert "halide" not in columns
    assert [row[0] for row in rows] == ["syrk", "tp", "big"]
    assert "tp, numba: crashed: SIGSEGV" in list_notes(sweep)
    assert "## nests, 1 thread" in report_nests(sweep).render_section()
    again = NestSweep.from_json(sweep.to_json())
    assert again == sweep
    assert len(sweep.to_csv().splitlines()) == 1 + 6 + 6 + 1
    damaged = sweep.to_json().replace('"entries"', '"entry"')
    with pytest.raises(BenchmarkError, match="damaged"):
        NestSweep.from_json(damaged)


def test_the_command_measures_a_nest(tmp_path):
    """From end to end, beside NumPy, with all files."""
    page, csv, results = tmp_path / "page.md", tmp_path / "a.csv", tmp_path / "a.json"
    done = bench(
        *("nests", "--case", "copy", "--peers", "numpy", "--repeat", 1),
        *("--machine", "i7-6700k", "--page", page, "--csv", csv, "--json", results),
    )
    assert done.exit_code == 0, done.output
    assert "copy" in page.read_text("utf-8")
    assert NestSweep.read(results).cases[0].seconds("tilesolve") > 0
    refused = bench("nests", "--dtype", "f64")
    assert refused.exit_code == 2
    assert "a sweep of nests takes no --dtype" in refused.output


def test_labels_name_no_folders():
    """A page says that a variable is set, not where its folder lies."""
    found = Contender("halide", "any:thing", "numpy", (("LD_LIBRARY_PATH", "/some/where"),))
    assert found.label.endswith(" LD_LIBRARY_PATH")


ALL_KINDS = 40
"""So many statements are of all kinds."""

SEEDS = st.integers(0, 10**18 - 1)


@settings(max_examples=3, deadline=None)
@given(SEEDS, st.integers(1, ALL_KINDS))
def test_draws_are_the_same_each_time(seed, count):
    """By name; fewer are the first ones of more; names, sizes and work are as said."""
    suite = nest_suite(f"statements:{count}:{seed}")
    nest_suites._draw.cache_clear()
    assert nest_suite(f"statements:{count}:{seed}") == suite
    more = nest_suite(f"statements:{ALL_KINDS}:{seed}")
    assert [*more.items()][:count] == [*suite.items()]
    for number, (name, nest) in enumerate(suite.items(), start=1):
        made = nest.computation
        assert re.fullmatch(rf"{seed}-{number} [a-z]+ [a-z-]+", name)
        assert sum(array.bytes for array in made.arrays) <= TOTAL_BYTES[1]
        assert count_work(made) <= MOST_WORK


def test_all_kinds_are_drawn_and_sizes_are_spread():
    """In few statements; a third are of caches, a third of memory."""
    suite = find_statements("statements:120:1")
    kinds = {name.split(" ", 1)[1] for name in suite}
    assert {name.split(" ", 1)[1] for name in [*suite][:ALL_KINDS]} == kinds
    assert len(kinds) > 30
    sizes = sorted(sum(array.bytes for array in x.work.computation.arrays) for x in suite.values())
    assert sizes[len(sizes) // 3] < 2**20 < 2**22 < sizes[-len(sizes) // 3]
    for wrong in ("statements:0:1", "statements", "statements:3"):
        with pytest.raises(SuiteError, match="N:SEED"):
            find_statements(wrong)


@examples(8, 15)
@given(SEEDS, st.integers(1, ALL_KINDS))
def test_all_forms_of_numpy_compute_drawn_statements(seed, at):
    """Whichever is the fastest: each is held to the evaluation, stage by stage."""
    check_forms([*find_statements(f"statements:{at}:{seed}").values()][-1].shrink())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("d[i,j] = sum((X[i,k] - Y[j,k]) * (X[i,k] - Y[j,k]), k)", "k <= i"),
        ("d[i,j] = sum((X[i,k] - Y[j,k]) * (X[i,k] - Y[j,k]), k)", "j <= i"),
        ("d[i,j] = sum((X[i+1,k] - X[j,k]) * (X[i+1,k] - X[j,k]), k)", ""),
        ("d[i] = sum(T[v[i],k] * w[k], k)", ""),
        ("d[i,j] += A[i,k] * B[k,j] + A[j,k] * B[i,k]", "j <= i"),
        ("h[v[i]] += w[i] * w[i] + w[i] * w[i]", ""),
    ],
)
def test_all_forms_of_numpy_compute_what_no_suite_has(text, where):
    """Regions with sums, gathers within sums, and parts that occur twice."""
    sizes = tuple(
        (x, 7 + n) for n, x in enumerate(x for x in "ijk" if re.search(rf"\b{x}\b", text))
    )
    shapes = {"T": (5, 8), "h": (6,)}
    needed = tuple((name, one) for name, one in shapes.items() if f"{name}[" in text)
    dtype = "float64 v=int64"
    check_forms(StatementCase("x", Nest("x", text, sizes, dtype, where, (), needed)))


def check_forms(case):
    """Run all of NumPy's forms of a small statement."""
    made = split_sums(case.work.computation)
    *operands, out = case.draw()
    params, held = dict(case.work.params), dict(zip(made.inputs, operands, strict=True))
    expected = case.expect(operands)
    for stage in made.stages:
        info = made.array(stage.name)
        held[stage.name] = out if stage is made.stages[-1] else np.zeros(info.shape, info.dtype)
        results = []
        for form in list_forms(made, stage, held, params):
            if not stage.where:
                held[stage.name].fill(77)
            form()
            results.append(held[stage.name].copy())
        assert results
        for one in results:
            np.testing.assert_allclose(one, results[0], rtol=1e-3, atol=1e-3)
    assert expected.describe_fault(out) == ""


@WHOLE
@pytest.mark.parametrize("peer", ["numpy", "numba", "tilesolve_outs"])
def test_contenders_compute_all_kinds(peer, whole):
    """Statements of all kinds at small extents, poisoned results; numba compiles some of them."""
    cases = find_statements(f"statements:{ALL_KINDS}:5901").values()
    for case in in_turn(cases, 0, whole or peer != "numba", of=4):
        small = case.shrink()
        *operands, out = small.draw()
        expected = small.expect(operands)
        if not small.work.where:
            out.fill(77)
        made = getattr(nest_peers, peer)(small.work, MACHINE, 1, operands, out)
        found = getattr(made, "run", made)()
        assert expected.describe_fault(found) == "", case


@pytest.mark.parametrize("peer", ["numpy", "numba", "tilesolve"])
def test_positions_that_are_read_lie_in_their_arrays(peer):
    """Of a table that is shorter than what else is drawn."""
    nest = Nest(
        "x",
        "h[v[i]] += T[u[i]]",
        (("i", 300),),
        *("float64 u=int64 v=uint8", "", ()),
        (("h", (3,)), ("T", (5,))),
    )
    case = StatementCase("x", nest)
    *operands, out = case.draw()
    drawn = dict(zip(nest.computation.inputs, operands, strict=True))
    assert (set(drawn["v"].tolist()), set(drawn["u"].tolist())) == ({0, 1, 2}, {0, 1, 2, 3, 4})
    made = getattr(nest_peers, peer)(nest, MACHINE, 1, operands, out)
    right = np.bincount(drawn["v"], drawn["T"][drawn["u"]], 3)
    assert np.allclose(getattr(made, "run", made)(), right)
    assert case.sums_slack > StatementCase("x", replace(nest, sizes=(("i", 3),))).sums_slack


def test_an_order_is_timed_warm_and_tells_of_outs():
    """Beside the cold time, and with results that begin elsewhere."""
    (case,) = find_statements("statements:9:3", chosen=["3-1 *"]).values()
    case = case.shrink()
    (ours, numpy) = parse_statement_contenders("numpy")
    found, timed = get_ready(Order(case, MACHINE, 1, ours.maker, 4096))
    assert found.problem == ""
    assert len(found.figures.outs) == len(nest_peers.OUT_OFFSETS)
    assert found.figures.cold > 0
    assert found.figures.predicted > 0
    assert timed().seconds > 0
    assert get_ready(Order(case, MACHINE, 1, numpy.maker, 4096))[0].figures is None
    with pytest.raises(BenchmarkError, match="drawn statements"):
        parse_statement_contenders("halide")


def test_the_command_measures_drawn_statements(tmp_path):
    """From end to end, beside NumPy; the files have all that the table has."""
    page, cells, results = tmp_path / "page.md", tmp_path / "a.csv", tmp_path / "a.json"
    done = bench(
        *("statements:40:5901", "--case", "5901-10 *", "--peers", "numpy", "--repeat", 1),
        *("--machine", "i7-6700k", "--page", page, "--csv", cells, "--json", results),
    )
    assert done.exit_code == 0, done.output
    assert "all, with out to without" in page.read_text("utf-8")
    assert "hold what earlier runs left" in page.read_text("utf-8")
    sweep = StatementSweep.read(results)
    assert StatementSweep.from_json(sweep.to_json()) == sweep
    (case,) = sweep.cases
    assert case.seconds("tilesolve") > 0
    assert case.plan.cold > 0
    line = next(csv.DictReader(cells.read_text("utf-8").splitlines()))
    assert line["with_out"].count(".") == 3
    (row,), columns = list_nest_rows(sweep), list_nest_columns(sweep)
    assert dict(zip(columns, row, strict=True))["out"].count(".") == 3


PIPELINES = [
    *("blur", "unsharp", "harris", "stencil_chain", "shallow_water", "softmax", "layer_norm"),
    "total_variation",
]
"""With sums, borders, parts that go on from others, and bytes; those that compile quickly."""


LACK = {
    "halide_manual": {*PIPELINES} - {"blur", "unsharp", "harris"},
    "jax": {"shallow_water"},
    "opencv": {*PIPELINES} - {"blur", "unsharp", "harris"},
    "scikit_image": {*PIPELINES} - {"total_variation"},
}
"""What peers do not have, or nobody wrote."""


LONG = {
    "halide_ours": {"total_variation", "stencil_chain", "unsharp"},
    "numba": {"total_variation", "stencil_chain", "harris"},
}
"""What peers take long to compile, up to a minute; quick runs have a third of all others."""


def take_turns():
    """Functions and contenders as parameters: each contender's in turn."""
    peers = (name.replace("-", "_") for name in PIPELINE_PEERS)
    for at, peer in enumerate(["tilesolve", *peers]):
        for number, name in enumerate(PIPELINES):
            slow = name in LONG.get(peer, ()) or (at + number) % 3
            yield pytest.param(name, peer, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("name", "peer"), list(take_turns()))
def test_contenders_compute_what_functions_do(name, peer):
    """Small arrays, poisoned results; a wrong element is found."""
    (_, *others) = parse_pipeline_contenders(peer.replace("_", "-").replace("tilesolve", ""))
    if not all(one.installed for one in others):
        pytest.skip(f"needs {peer}")
    case = find_pipelines("pipelines", chosen=[name])[name].shrink()
    *operands, out = case.draw()
    out.fill(77)
    expected = case.expect(operands)
    make = getattr(pipeline_peers, peer)
    if name in LACK.get(peer, ()):
        with pytest.raises(BenchmarkError, match=r"not written|does not have|nobody wrote"):
            make(case.work, MACHINE, 1, operands, out)
        return
    made = make(case.work, MACHINE, 1, operands, out)
    found = getattr(made, "run", made)().copy()
    assert expected.describe_fault(found) == ""
    found.flat[3] += 1
    assert "at 1 of" in expected.describe_fault(found)


def test_the_command_measures_pipelines(tmp_path):
    """From end to end, beside ours one stage after another and the function itself."""
    page, cells, results = tmp_path / "page.md", tmp_path / "a.csv", tmp_path / "a.json"
    done = bench(
        *("pipelines", "--case", "shallow*", "--peers", "root,numpy", "--repeat", 1),
        *("--machine", "i7-6700k", "--page", page, "--csv", cells, "--json", results),
    )
    assert done.exit_code == 0, done.output
    assert "one stage after another" in page.read_text("utf-8").replace("\n", " ")
    sweep = PipelineSweep.read(results)
    assert PipelineSweep.from_json(sweep.to_json()) == sweep
    (case,) = sweep.cases
    assert case.fastest() == "numpy"
    names = [row["contender"] for row in csv.DictReader(cells.read_text("utf-8").splitlines())]
    assert names == ["tilesolve", "aligned", "root", "numpy"]
    (row,), columns = list_nest_rows(sweep), list_nest_columns(sweep)
    cells_of = dict(zip(columns, row, strict=True))
    assert float(cells_of["to root"]) > 0
    assert cells_of["to overlap"] == "-"
    refused = bench("pipelines", "--dtype", "f64")
    assert refused.exit_code == 2
    assert "pipelines takes no --dtype" in re.sub(r"\s+", " ", refused.output)
