"""Sweeps of nests: what is measured, who computes it, and what is shown of it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from commands import bench

from tilesolve.bench.case import find_outliers, sum_parts
from tilesolve.bench.contenders import (
    NEST_PEERS,
    Contender,
    find_libraries,
    parse_nest_contenders,
)
from tilesolve.bench.nests import NestCase, find_nests, has_nests
from tilesolve.bench.results.nest_tables import (
    list_nest_columns,
    list_nest_means,
    list_nest_rows,
    report_nests,
)
from tilesolve.bench.results.record import Conditions
from tilesolve.bench.results.report import list_notes
from tilesolve.bench.results.sweeps import Entry, Figures, NestSweep, Result
from tilesolve.bench.run import nest_peers
from tilesolve.bench.run.worker import Order, get_ready
from tilesolve.contractions.errors import BenchmarkError, SuiteError
from tilesolve.contractions.statements.nest_suites import NestCase as Nest
from tilesolve.contractions.statements.nest_suites import nest_suite
from tilesolve.machine.model import Machine

MACHINE = Machine.load("i7-6700k")
SMALL = Nest("syrk", "C[i,j] += A[i,k] * A[j,k]", (("i", 9), ("j", 9), ("k", 7)), "float32")


@pytest.mark.parametrize("peer", ["numpy", "numba", "halide", "halide-adams"])
@pytest.mark.parametrize("name", ["gemm", "trmm", "syrk-lower", "tpm", "3mm", "convlayer"])
def test_peers_compute_what_the_reference_does(name, peer):
    """Small versions of kernels of the suite; parameters, regions and several statements."""
    if peer.startswith("halide") and not find_libraries():
        pytest.skip("needs Halide")
    if peer == "numba" and name == "gemm":
        pytest.skip("its sum stands within a larger term")
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
    assert (summed.best_peer, summed.ratio(), summed.ratio("numba")) == ("numba", 0.5, 0.5)
    assert (other.best_peer, other.ratio("numpy")) == ("numpy", 4.0)
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
