"""The benchmark command: who takes part, what counts, what is kept, and what is shown."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import mmap
import os
import platform
import resource
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import bench
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE
from running_cases import make_shallow_machine, write_shallow_machine
from strategies import problems as any_problem
from turns import examples

from tilesolve.bench.case import NUMPY_OFFSET_BYTES, find_outliers, sum_parts
from tilesolve.bench.cases import (
    MULTIPLICATIONS,
    TENSOR_ELEMENTS,
    ContractionCase,
    draw_arrays,
    find_cases,
    name_cases,
)
from tilesolve.bench.contenders import (
    ALIGNED,
    OURS,
    Contender,
    parse_contenders,
    parse_layer_contenders,
    parse_nest_contenders,
)
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.comparison import compare_sweeps
from tilesolve.bench.results.outputs import Job, Outputs
from tilesolve.bench.results.performance_page import (
    name_section,
    replace_section,
    write_section,
)
from tilesolve.bench.results.record import Conditions
from tilesolve.bench.results.report import sort_cases
from tilesolve.bench.results.summary import list_columns, list_means, list_rows, report_sweep
from tilesolve.bench.results.sweeps import Entry, Figures, Result, Sweep
from tilesolve.bench.run import worker
from tilesolve.bench.run.sweep import begin, estimate_cases, run_sweep
from tilesolve.bench.run.sweep import measure_case as measure
from tilesolve.bench.run.team import PeerError, keep_crew, start_team
from tilesolve.bench.run.worker import Order, make_timer
from tilesolve.contractions.errors import BenchmarkError, PictureError, SolverError, SuiteError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference
from tilesolve.machine.cpu import detect_cpu
from tilesolve.plans.plan import plan

SMALL = Problem.of("abc-acd-db", "a=6 b=5 c=4 d=7")
MACHINE = make_shallow_machine(256, 16)
FLUSH = 2**12


@pytest.fixture(autouse=True)
def with_fakes(monkeypatch):
    """Workers find the peers that misbehave."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "support"))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory, kept_code, kept_functions):
    """A folder of plans that the sweeps of this module share, and of everyone's compiled code."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "code").symlink_to(kept_code)
    (folder / "functions").symlink_to(kept_functions)
    return str(folder)


def fake(name):
    """Return a misbehaving contender."""
    return Contender(name, f"fake_peers:{name}", "fake_peers")


def order(contender, problem=SMALL):
    return Order(ContractionCase("x", problem), MACHINE, 1, contender.maker, FLUSH)


def measure_case(name, problem, contenders, procedure, tell=lambda *_: None):
    """Measure one problem, with processes of its own."""
    with keep_crew(contenders, procedure) as crew:
        return measure(ContractionCase(name, problem), crew, MACHINE, tell)


def planned(roofline, predicted, bottleneck):
    """Return what is predicted of a plan of ours."""
    return {OURS: Figures(roofline, predicted, bottleneck)}


def render_section(sweep):
    """Return a sweep's section of a page."""
    return report_sweep(sweep).render_section()


def measured(*names):
    """Return the entries of contenders for a small problem."""
    everyone = [fake(name) for name in names]
    return measure_case("small", SMALL, everyone, Procedure(repeat=3)).entries


def expect(problem, operands):
    """Return what the result of a problem has to be."""
    return ContractionCase("x", problem).expect(operands)


def made(*cases, **contenders):
    """Return a sweep as if it had been measured."""
    labels = {name: f"{name}: {name} 1.0" for name in contenders or {OURS: ""}}
    empty_settings = Conditions("mine", None, 1, 1, 3, labels, "toy 123")
    facts = {"CPU": "a <fast> one", "begun": "2024-02-29 12:00 UTC"}
    return Sweep(empty_settings, facts, MACHINE.to_toml(), cases)


class TestChecks:
    @settings(max_examples=60)
    @given(any_problem())
    def test_expected_elements_are_those_of_the_reference(self, problem):
        """At all places that are looked at, affine specs included."""
        *operands, out = draw_arrays(problem)
        right = reference(problem, *operands)
        assert out.shape == right.shape
        assert not expect(problem, operands).describe_fault(right.astype(problem.dtype))

    @settings(max_examples=60)
    @given(st.integers(0, 119), st.floats(1e-6, 1e6), st.booleans())
    def test_one_wrong_element_is_found(self, at, off, negative):
        """However little of the result is looked at directly, the sums of parts show it."""
        *operands, _ = draw_arrays(SMALL)
        right = reference(SMALL, *operands)
        other = right.copy()
        other.flat[at] += -off if negative else off
        digests = [sum_parts(right), sum_parts(other), sum_parts(right * (1 + 1e-16))]
        assert find_outliers(ContractionCase("x", SMALL), digests) == [False, True, False]
        assert find_outliers(ContractionCase("x", SMALL), digests[:2]) == [True, True]

    @settings(max_examples=60)
    @given(any_problem(), st.sampled_from([0, NUMPY_OFFSET_BYTES, 48]))
    def test_arrays_begin_where_they_are_asked_to(self, problem, offset):
        """So many bytes after a line, whatever their size; as numpy's large ones unless asked."""
        case = ContractionCase("x", problem)
        begins = [array.ctypes.data % 64 for array in case.draw(offset) if array.size]
        assert begins == [offset] * len(begins)
        assert {array.ctypes.data % 64 for array in case.draw() if array.size} <= {16}
        for one, other in zip(case.draw(), case.draw(offset), strict=True):
            assert np.array_equal(one, other, equal_nan=True)

    def test_numpy_allocates_as_is_said(self):
        """Its large arrays begin 16 bytes after a page."""
        if platform.libc_ver()[0] != "glibc":
            pytest.skip("another library allocates otherwise")
        assert {np.empty(2**23 + n).ctypes.data % 4096 for n in range(4)} == {NUMPY_OFFSET_BYTES}

    def test_a_result_that_was_never_written_is_wrong(self):
        """The output starts as NaN, and NaN is no number within any slack."""
        *operands, out = draw_arrays(SMALL)
        assert "wrong result: nan" in expect(SMALL, operands).describe_fault(out)

    def test_float32_sums_of_many_terms_are_right(self):
        """Rounding of a long sum in single precision is no fault, a missing term is one."""
        problem = Problem.of("ik-ij-jk", "i=4 j=40000 k=4", "float32")
        *operands, _ = draw_arrays(problem)
        expected = expect(problem, operands)
        assert not expected.describe_fault(operands[0] @ operands[1])
        assert expected.describe_fault(operands[0][:, :-1000] @ operands[1][:-1000])

    def test_another_shape_or_dtype_is_wrong(self):
        """Even where all its elements are right."""
        *operands, _ = draw_arrays(SMALL)
        right, expected = reference(SMALL, *operands), expect(SMALL, operands)
        for other in (right.astype("float32"), right[None]):
            assert "wrong result: float" in expected.describe_fault(other)


class TestContenders:
    def test_each_fault_is_a_row_that_says_so(self):
        """Wrong, crashed, gone, raising or missing: no time counts, and the others go on."""
        there = ("right", "wrong", "crashing", "quitting", "raising", "spoiling", "missing")
        found = measured(*there, "crashing_later")
        reasons = {name: entry.reason for name, entry in found.items()}
        assert len(found["right"].seconds) == 3
        assert min(found["right"].seconds) > 0
        assert not any(found[name].seconds for name in found if name != "right")
        assert reasons["wrong"].startswith("wrong result: ")
        assert reasons["crashing"] == reasons["crashing_later"] == "crashed: SIGSEGV"
        assert reasons["quitting"] == "ended with status 3 (out of luck)"
        assert reasons["raising"] == "ValueError: this peer does not like the problem"
        assert reasons["spoiling"] == "changed the operands"
        assert reasons["missing"].startswith("AttributeError: ")

    def test_who_alone_finds_another_result_does_not_count(self):
        """One wrong element that nobody looked at directly is found beside the others."""
        problem = Problem.of("ij-ik-kj", "i=90 j=90 k=4")
        everyone = [fake(name) for name in ("right", "subtly_wrong")]
        everyone.append(Contender("again", "fake_peers:right", "fake_peers"))
        found = measure_case("x", problem, everyone, Procedure(repeat=1)).entries
        assert found["subtly_wrong"].reason
        assert found["right"].seconds
        assert found["again"].seconds

    def test_arrays_of_contenders_begin_as_numpys_do(self):
        """All but those of one that is to have aligned ones."""
        for offset in (NUMPY_OFFSET_BYTES, 0):
            contender = replace(fake(f"seeing_{offset}"), offset=offset)
            found = measure_case("x", SMALL, [contender], Procedure(repeat=1)).entries
            assert found[contender.name].seconds, found
        assert [one.offset for one in parse_contenders("numpy,mine:make")] == [16, 0, 16, 16]
        assert {one.offset for one in parse_layer_contenders("torch")[:2]} == {16}
        assert [one.offset for one in parse_nest_contenders("numpy")] == [16, 0, 16]

    def test_a_hung_contender_is_stopped(self):
        """After the limit it is gone, whether it hangs when making ready or in a later run."""
        with (
            start_team(fake("hanging"), 1, 1, 3.0) as one,
            pytest.raises(PeerError, match="within 3 s"),
        ):
            one.prepare([order(fake("hanging"))])
        assert one.workers[0].process.poll() is not None
        with start_team(fake("hanging_later"), 1, 1, PATIENCE) as one:
            one.prepare([order(fake("hanging_later"))])
            assert one.run().seconds > 0
            one.limit = 0.2
            with pytest.raises(PeerError, match=r"stopped: no answer within 0\.2 s"):
                one.run()
            (worker,) = one.workers
            assert worker.process.poll() is not None

    def test_a_contender_that_does_not_compile_is_left_out(self):
        """After the limit a line says so, and the others are measured."""
        everyone = [fake("compiling"), fake("right")]
        found = measure_case("x", SMALL, everyone, Procedure(repeat=1, limit=5.0)).entries
        assert found["compiling"].reason == "stopped: did not compile within 5 s"
        assert found["right"].seconds

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("leaving_a_child", "ended with status 3"),
            ("hanging_up", "stopped: hung up without ending"),
        ],
    )
    def test_a_contender_that_is_gone_is_not_waited_for(self, name, reason):
        """Neither where its child holds the connection, nor where it lives on without one."""
        # What is waited for to the limit is said to have given no answer.
        with start_team(fake(name), 1, 1, PATIENCE) as one, pytest.raises(PeerError, match=reason):
            one.prepare([order(fake(name))])
        assert one.workers[0].process.poll() is not None

    def test_a_contender_that_waits_is_halted(self):
        """Between its turns it takes no time from others; it ends with the command all the same."""
        with start_team(fake("right"), 1, 1, PATIENCE) as one:
            one.prepare([order(fake("right"))])
            (worker,) = one.workers
            for _ in range(2):
                give_up = time.monotonic() + PATIENCE
                while self.state(worker.process.pid) != "T" and time.monotonic() < give_up:
                    time.sleep(0.01)
                assert self.state(worker.process.pid) == "T"
                assert one.run().seconds > 0
        assert worker.process.poll() is not None

    def test_a_hung_contender_ends_with_the_command(self):
        """Even where the command is killed outright, no process of a contender stays behind."""
        code = """
from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.contenders import Contender
from tilesolve.bench.run.team import start_team
from tilesolve.bench.run.worker import Order
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
hanging = Contender("hanging", "fake_peers:hanging", "fake_peers")
case = ContractionCase("x", Problem.of("ij-ik-kj", 9))
order = Order(case, Machine.load("i7-6700k"), 1, hanging.maker, 4096)
with start_team(hanging, 1, 1, 600.0) as one:
    one.workers[0].send(order)
    one.workers[0].connection.poll(2.0)  # long enough for it to start and to hang
    print(one.workers[0].process.pid, flush=True)
    one.prepare([order])
"""
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
            worker = int(parent.stdout.readline())
            assert self.lives(worker)
            parent.kill()
        give_up = time.monotonic() + PATIENCE
        while self.lives(worker) and time.monotonic() < give_up:
            time.sleep(0.05)
        assert not self.lives(worker)

    @staticmethod
    def lives(process):
        """Whether a process runs; one that has ended but that nobody waited for does not."""
        return TestContenders.state(process) not in "ZX"

    @staticmethod
    def state(process):
        """The letter of a process's state; X for one that is gone."""
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return "X"

    def test_a_request_to_end_leaves_nothing(self, tmp_path):
        """The command unwinds as after an interrupt: its folder and its processes are gone."""
        suite = tmp_path / "mine.toml"
        suite.write_text(
            'format = 1\nproblems = [{ name = "x", spec = "ik-ij-jk", sizes = "i=9 j=8 k=7" }]'
        )
        folder = tmp_path / "temporary"
        folder.mkdir()
        arguments = [str(suite), "--peers", "fake_peers:hanging", "--machine", "i7-6700k"]
        environment = {**os.environ, "TMPDIR": str(folder)}
        with subprocess.Popen(
            [sys.executable, "-m", "tilesolve", "bench", *arguments], env=environment
        ) as child:
            give_up = time.monotonic() + PATIENCE
            while not list(folder.glob("tilesolve-bench-*")) and time.monotonic() < give_up:
                assert child.poll() is None
                time.sleep(0.05)
            child.terminate()
            assert child.wait(PATIENCE) == 130
        assert not list(folder.glob("tilesolve-bench-*"))

    def test_caches_are_flushed_before_a_run(self):
        """All of the array is written, and before the run begins."""
        trash = np.zeros(5000, np.uint8)
        seen = []
        timed = make_timer(lambda: seen.append(int(trash.sum())), trash)
        assert timed() > 0
        assert timed() > 0
        assert seen == [5000, 10000]

    def test_memory_for_copies_is_given_back_before_a_run(self, monkeypatch):
        """A run is not charged for memory that the system has never handed out."""
        held: list[weakref.ref[np.ndarray]] = []
        sizes: list[int] = []
        seen: list[list[int]] = []

        def hold(size: int) -> np.ndarray:
            array = np.zeros(size, np.uint8)
            held.append(weakref.ref(array, lambda _: sizes.append(size)))
            return array

        monkeypatch.setattr(worker, "allocate", hold)
        timed = make_timer(lambda: seen.append(list(sizes)), np.zeros(8, np.uint8), 1 << 20)
        assert timed() > 0
        assert timed() > 0
        assert seen == [[1 << 20], [1 << 20] * 2]

    def test_each_page_of_the_arrays_is_there_before_a_run(self):
        """A run takes no page fault for them, and finds them as they were."""
        count = 256
        array = np.frombuffer(mmap.mmap(-1, count * mmap.PAGESIZE), np.float64)
        array[:5] = np.arange(5)
        other = np.arange(3, dtype=np.float32).reshape(1, 3)
        faults = []

        def run():
            # Other threads of the test runner take page faults, too.
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            array[:: mmap.PAGESIZE // 8].sum()
            faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

        make_timer(run, np.zeros(8, np.uint8), arrays=[array, other])()
        assert faults[0] < count // 8
        assert array[:5].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert not array[5:].any()
        assert other.tolist() == [[0.0, 1.0, 2.0]]

    @pytest.mark.parametrize("threads", [1, 2])
    def test_the_peak_is_measured_around_runs_of_ours(self, threads, monkeypatch):
        """The roofline is drawn with it; nobody else's process is asked for it."""
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
        procedure = Procedure(repeat=2, threads=threads)
        found = measure_case("x", SMALL, parse_contenders("numpy"), procedure)
        expectation = plan(SMALL, machine=MACHINE, threads=threads)
        assert found.peak > 0
        assert found.plan.roofline == expectation.roofline_at(found.peak)
        alone = measure_case("x", SMALL, [fake("right")], procedure)
        assert alone.entries["right"].seconds
        assert alone.peak is None
        assert alone.plan.roofline == expectation.roofline

    def test_a_missing_package_is_said(self):
        """A peer that is not installed takes no time and no process."""
        absent = Contender("absent", "tilesolve.bench.run.peers:torch", "no_such_package")
        assert absent.label == "absent: not installed"
        found = measure_case("x", SMALL, [absent], Procedure())
        assert found.entries["absent"] == Entry((), "not installed")

    def test_settings_of_one_do_not_reach_another(self, monkeypatch):
        """What is set outside does not select kernels, and threads are as asked."""
        monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
        numpy = parse_contenders("numpy", 2)[1]
        variables = numpy.build_variables(dict(os.environ), 2)
        assert "OPENBLAS_CORETYPE" not in variables
        assert variables["OPENBLAS_NUM_THREADS"] == "2"

    def test_unknown_peers_are_refused(self):
        """A misspelt name lists those that there are."""
        with pytest.raises(BenchmarkError, match=r"numpi.*numpy-best"):
            parse_contenders("numpi")

    @pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
    def test_a_batch_runs_side_by_side(self):
        """Each process has data of its own; the slowest counts; all are gone afterwards."""
        found = measure_case("x", SMALL, [fake("right")], Procedure(batch=2, repeat=2))
        assert len(found.entries["right"].seconds) == 2

    def test_a_batch_larger_than_the_computer_is_refused(self):
        """Processes that wait for each other would measure the waiting."""
        with pytest.raises(BenchmarkError, match="cores"):
            Procedure(batch=100_000)
        with pytest.raises(BenchmarkError, match="repeat must be 1 or more"):
            Procedure(repeat=0)


class TestRounds:
    def test_everyone_runs_as_often_as_asked_while_there_is_time(self):
        """Quick runs get all rounds; the next round counts before it begins."""
        procedure = Procedure(repeat=4, seconds=10.0)
        assert self.run(procedure, {"a": 0.1, "b": 0.2}) == {"a": 4, "b": 4}
        assert self.run(procedure, {"a": 1.0, "b": 2.0}) == {"a": 3, "b": 3}

    def test_long_runs_get_two_rounds(self):
        """However long they take; the run that was checked is one of them, if it was long."""
        procedure = Procedure(repeat=4, seconds=10.0)
        assert self.run(procedure, {"a": 20.0, "b": 0.1}) == {"a": 2, "b": 2}
        assert self.run(Procedure(repeat=1, seconds=10.0), {"a": 20.0}) == {"a": 1}
        assert procedure.first_rounds(20.0) == [20.0]
        assert procedure.first_rounds(0.9) == []

    def test_a_batch_was_not_checked_side_by_side(self, monkeypatch):
        """So the runs that were checked count as no round."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        assert Procedure(batch=2).first_rounds(20.0) == []

    @given(st.lists(st.floats(1e-3, 100.0), min_size=1, max_size=5), st.integers(1, 6))
    def test_rounds_end(self, seconds, repeat):
        """Each has two rounds at least and those asked for at most, and all within the budget."""
        procedure = Procedure(repeat=repeat, seconds=10.0)
        counts = self.run(procedure, dict(enumerate(seconds)))
        for rounds in counts.values():
            assert min(2, repeat) <= rounds <= repeat
        if max(counts.values()) > 2:
            assert sum(counts[who] * each for who, each in enumerate(seconds)) <= 10.0 + 1e-9

    @staticmethod
    def run(procedure, seconds):
        """Return how many rounds runs of such lengths get."""
        times = {who: procedure.first_rounds(each) for who, each in seconds.items()}
        while waiting := procedure.pick_due(times):
            for who in waiting:
                times[who].append(seconds[who])
        return {who: len(rounds) for who, rounds in times.items()}

    def test_a_long_first_run_is_a_round_of_a_sweep(self, monkeypatch):
        """Where every run counts as long, each contender runs once for the check and the rest."""
        monkeypatch.setattr("tilesolve.bench.procedure.LONG_SECONDS", 0.0)
        found = measure_case("x", SMALL, [fake("crashing_later")], Procedure(repeat=2), print)
        assert len(found.entries["crashing_later"].seconds) == 2

    def test_what_a_case_takes_is_foreseen_from_its_work(self):
        """Twice the arithmetic is twice the time, and the budget bounds the rounds."""
        procedure, large = Procedure(repeat=9, seconds=20.0), Problem.of("ij-ik-kj", 4000)
        assert procedure.estimate_rounds(large, MACHINE, 7) == 1
        assert procedure.estimate_rounds(SMALL, MACHINE, 7) == 9
        double = Problem.of("ij-ik-kj", "i=8000 j=4000 k=4000")
        once, twice = (procedure.estimate_seconds(p, MACHINE, 7, 0.0) for p in (large, double))
        assert twice == pytest.approx(2 * once)


class TestCases:
    def test_random_contractions_are_what_their_seed_says(self):
        """They keep the limits, and are the same each time, but for another seed."""
        found = find_cases("random:40:5")
        assert found == find_cases("random:40:5")
        assert list(found.values()) != list(find_cases("random:40:6").values())
        for problem in found.values():
            assert MULTIPLICATIONS[0] <= problem.flops / 2 <= MULTIPLICATIONS[1]
            assert max(map(np.prod, problem.shapes)) <= TENSOR_ELEMENTS
            assert {c.name for c in problem.classes} == {"M", "N", "K"}

    @pytest.mark.parametrize("name", ["random:0:1", "random:3", "random:3:x", "nowhere"])
    def test_what_names_no_problems_is_refused(self, name):
        """Such an error is one line."""
        with pytest.raises((BenchmarkError, SuiteError)):
            find_cases(name)

    def test_patterns_choose(self):
        """Names and patterns; one that fits nothing is an error."""
        assert list(find_cases("tccg", chosen=["abcd-ea-ebcd", "abc-b*"])) == [
            "abc-bda-dc",
            "abcd-ea-ebcd",
        ]
        with pytest.raises(BenchmarkError, match="xyz"):
            find_cases("tccg", chosen=["xyz"])


class TestSweep:
    def run(self, problems, start, keep=lambda _: None, progress=lambda *_: None):
        everyone = [fake("right")]
        cases, procedure = name_cases(problems), Procedure(repeat=2)
        return run_sweep(cases, everyone, MACHINE, procedure, start, keep, progress)

    def start(self):
        job = Job("mine", (), None, None, Procedure(repeat=2), Outputs())
        return begin(Sweep, job, [fake("right")], MACHINE)

    def test_it_goes_on_from_what_is_kept(self, tmp_path):
        """An interruption leaves a file with what was done; the next sweep does the rest."""
        file = tmp_path / "sweep.json"
        other = Problem.of("ij-ik-kj", 5)
        both = {"first": SMALL, "second": other}

        def interrupt(_, what):
            if what.startswith("second"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.run(both, self.start(), lambda found: found.save(file), interrupt)
        half = Sweep.read(file)
        assert [case.name for case in half.cases] == ["first"]
        whole = self.run(both, half)
        assert [case.name for case in whole.cases] == ["first", "second"]
        assert whole.cases[0] == half.cases[0]

    def test_another_problem_of_the_same_name_is_measured_again(self):
        """A changed suite file is no reason to show old figures."""
        first = self.run({"x": SMALL}, self.start())
        again = self.run({"x": Problem.of(SMALL.spec, 4)}, first)
        assert len(again.cases) == 1
        assert again.cases[0].problem != SMALL

    def test_what_does_not_fit_is_skipped(self):
        """A case larger than the memory is a line, and the next one is measured."""
        found = self.run({"huge": Problem.of(SMALL.spec, 4000), "x": SMALL}, self.start())
        assert "does not fit into memory" in found.cases[0].skipped
        assert found.cases[1].entries["right"].seconds

    def test_a_case_without_a_plan_is_a_failure_of_ours(self, monkeypatch):
        """Others are measured all the same, and all that shows the case shows what it has."""

        def none(*_, **__):
            raise SolverError("IPOPT is tired")

        monkeypatch.setattr("tilesolve.bench.run.sweep.plan", none)
        case = measure_case("odd", SMALL, parse_contenders("numpy"), Procedure(repeat=2))
        assert case.entries[OURS] == Entry((), "unplanned: IPOPT is tired")
        assert len(case.entries["numpy"].seconds) == 2
        assert not case.skipped
        found = made(case, tilesolve="", numpy="")
        assert Sweep.from_json(found.to_json()).to_json() == found.to_json()
        assert found.has(ContractionCase("odd", SMALL))
        ((name, roofline, ours, aligned, *others),) = list_rows(found)
        assert (name, roofline, ours, aligned) == ("odd", "-", "unplanned", "unplanned")
        assert set(others[:-1]) == {"-", "0"}
        ours, aligned, numpy = csv.DictReader(io.StringIO(found.to_csv()))
        assert aligned["reason"] == ours["reason"]
        assert (ours["reason"], ours["roofline_s"], ours["predicted_s"]) == (
            "unplanned: IPOPT is tired",
            "",
            "",
        )
        assert float(numpy["median_s"]) > 0
        assert numpy["share_of_roofline"] == ""

    def test_what_does_not_fit_takes_no_time(self):
        """The time left is reckoned without the work of cases that will be skipped."""
        problems = {"huge": Problem.of(SMALL.spec, 4000), "x": SMALL}
        found = estimate_cases(name_cases(problems), [fake("right")], MACHINE, Procedure())
        assert found["huge"] < 2 * found["x"]

    def test_progress_grows_to_the_end(self):
        """The bar never goes back, and names the case and who is at work."""
        told = []
        self.run({"x": SMALL}, self.start(), progress=lambda part, what: told.append((part, what)))
        parts = [part for part, _ in told]
        assert parts == sorted(parts)
        assert parts[-1] == 1.0
        assert told[0][1] == "x: right makes ready"
        assert told[-2][1] == "x: round 2, right"


class TestCommand:
    def test_a_sweep_from_end_to_end(self, tmp_path, monkeypatch, kernels):
        """The command measures, prints, writes every file, goes on, and compares."""
        monkeypatch.setenv("TILESOLVE_CACHE_DIR", kernels)
        suite = tmp_path / "mine.toml"
        suite.write_text(
            'format = 1\nproblems = [{ name = "one", spec = "ik-ij-jk", sizes = "i=9 j=8 k=7" },'
            '{ name = "two", spec = "abc-acd-db", sizes = "a=5 b=6 c=3 d=4" }]'
        )
        name = "mine threads 1 peers numpy,fake_peers:wrong"
        page = tmp_path / "docs" / f"{detect_cpu().name}.md"
        page.parent.mkdir()
        page.write_text(
            f"before\n<!-- begin: {name} -->\nold\n<!-- end: {name} -->\nafter\n", "utf-8"
        )
        kept = tmp_path / "kept.json"
        common = ("--peers", "numpy,fake_peers:wrong", "--repeat", 2, "--json", kept)
        common += ("--machine", write_shallow_machine(tmp_path))
        done = bench(suite, "--case", "one", *common)
        assert done.exit_code == 0, done.output
        assert "fake_peers:wrong: wrong result" in done.stdout
        first = Sweep.read(kept)
        files = {kind: tmp_path / f"found.{kind}" for kind in ("csv", "html", "svg")}
        outputs = ("--csv", files["csv"], "--page", page.parent, "--compare", kept)
        drawn_too = ("--html", files["html"], "--plot", files["svg"])
        done = bench(suite, *common, *outputs, *drawn_too)
        assert done.exit_code == 0, done.output
        assert Sweep.read(kept).cases[0] == first.cases[0]
        names = [case.name for case in Sweep.read(kept).cases]
        assert names == ["one", "two"]
        lines = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
        assert len(lines) == 8
        assert "| times aligned |" in page.read_text("utf-8")
        for line in lines:
            assert (line["contender"] == "fake_peers:wrong") == (not line["median_s"])
        text = page.read_text("utf-8")
        assert text.startswith(f"before\n<!-- begin: {name} -->\n## mine, float64, 1 thread\n")
        assert text.endswith(f"\n<!-- end: {name} -->\nafter\n")
        assert "| two |" in text
        assert "old" not in text
        assert "| cases with a result | 2 of 2 |" in text
        assert f"| CPU | {detect_cpu().model} |" in text
        assert f"| command | tilesolve bench {suite} --case one " in text
        assert "1.000 times as fast as then" in done.stdout
        assert files["svg"].read_bytes().startswith(b"<?xml")
        assert files["html"].read_text().count("<svg") == 2

    def test_other_settings_do_not_mix(self, tmp_path):
        """A file of another sweep is refused before anything is measured, and kept as it is."""
        kept = tmp_path / "kept.json"
        made().save(kept)
        before = kept.read_bytes()
        done = bench("gemm", "--json", kept)
        assert done.exit_code == 2
        assert "another suite: 'mine', now 'gemm'" in done.stderr
        assert kept.read_bytes() == before

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"format": 9}', '{"format": 1}', '{"format": 1, "settings": {}}']
    )
    def test_damaged_files_are_refused(self, tmp_path, text):
        """Nothing is overwritten, and the message names the file."""
        kept = tmp_path / "kept.json"
        kept.write_text(text)
        done = bench("gemm", "--json", kept)
        assert done.exit_code == 2
        assert "kept.json" in done.stderr
        assert kept.read_text() == text

    def test_outputs_are_checked_before_work(self, tmp_path):
        """A file that could not be written is no surprise after minutes of measuring."""
        (tmp_path / "page.md").write_text("<!-- begin: mine -->")
        with pytest.raises(BenchmarkError, match=r"page\.md: .*'mine' must begin and end once"):
            Outputs(page=tmp_path / "page.md").check()
        with pytest.raises(OSError, match="folder"):
            Outputs(csv=tmp_path).check()
        for what, name in (("json", "f.json"), ("csv", "f.csv"), ("html", "f"), ("plot", "f.svg")):
            os.mkfifo(tmp_path / name)
            with pytest.raises(OSError, match="not a regular file"):
                Outputs(**{what: tmp_path / name}).check()

    def test_two_outputs_need_two_files(self, tmp_path):
        """However they are named; to compare with the file that is gone on with is no writing."""
        (tmp_path / "link.csv").symlink_to("found")
        for outputs in (
            {"json": tmp_path / "found", "csv": tmp_path / "link.csv"},
            {"csv": tmp_path / "found", "html": tmp_path / "." / "x" / ".." / "found"},
        ):
            with pytest.raises(BenchmarkError, match=r"two outputs have one file: .*found"):
                Outputs(**outputs).check()
        made().save(tmp_path / "found")
        Outputs(json=tmp_path / "found", compare=tmp_path / "found").check()

    def test_files_need_a_folder_that_can_be_written(self, tmp_path):
        """Those that are kept, as well as tables, are refused before anything is measured."""
        (tmp_path / "file").touch()
        for what in ("json", "csv", "html"):
            with pytest.raises(OSError, match=r"cannot write .*found: .*file cannot be written"):
                Outputs(**{what: tmp_path / "file" / "found"}).check()

    def test_a_page_without_matplotlib_is_refused_by_its_own_name(self, monkeypatch):
        """The pictures in it have no names that a reader would know."""
        monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
        with pytest.raises(PictureError, match=r"cannot draw a\.html: matplotlib is not installed"):
            Outputs(html=Path("a.html")).check()

    @pytest.mark.parametrize("study", [(), ("--study", "tiles")])
    def test_files_are_written_before_anything_is_shown(self, tmp_path, monkeypatch, study):
        """A reader that has gone loses no result."""

        def gone(*_):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        screen = SimpleNamespace(print=gone)
        monkeypatch.setattr("tilesolve.bench.results.report.console", lambda: screen)
        monkeypatch.setattr("tilesolve.bench.run.suite_sweep.run_sweep", lambda *_: None)
        monkeypatch.setattr("tilesolve.studies.method.share_progress", lambda *_: ())
        files = [] if study else ["--html", tmp_path / "found.html"]
        done = bench("gemm", *study, "--csv", tmp_path / "found.csv", *files)
        assert done.exit_code == 1
        assert (tmp_path / "found.csv").read_text().startswith("case,")
        assert study or (tmp_path / "found.html").read_text().startswith("<!DOCTYPE html>")

    def test_a_wrong_plan_is_status_1(self, tmp_path):
        """The command's status says if a plan of ours gave no right result."""
        kept = tmp_path / "kept.json"
        everyone = parse_contenders("none")
        job = Job("gemm", (), None, None, Procedure(repeat=3), Outputs())
        start = begin(Sweep, job, everyone, MACHINE)
        ((name, problem),) = find_cases("gemm", chosen=["GNMT-2048*"]).items()
        entries = {OURS: Entry((), "wrong result: 1 where 2 is right, at 1 of 2 places")}
        case = ContractionCase(name, problem)
        start.with_case(Result(case, entries, planned(1.0, 1.0, "L1"))).save(kept)
        done = bench(
            *("gemm", "--case", name, "--peers", "none", "--repeat", 3),
            *("--machine", write_shallow_machine(tmp_path), "--json", kept),
        )
        assert done.exit_code == 1
        assert "wrong result" in done.stdout

    def test_a_missing_plan_is_status_1(self, tmp_path, monkeypatch):
        """No plan is no result of ours, and is told among the others' failures."""

        def none(*_, **__):
            raise SolverError("IPOPT is tired")

        monkeypatch.setattr("tilesolve.bench.run.sweep.plan", none)
        suite = tmp_path / "mine.toml"
        suite.write_text(
            'format = 1\nproblems = [{ name = "one", spec = "ik-ij-jk", sizes = "i=9 j=8 k=7" }]'
        )
        page = tmp_path / "found.html"
        done = bench(
            *(suite, "--peers", "numpy", "--repeat", 1, "--html", page),
            *("--machine", write_shallow_machine(tmp_path)),
        )
        assert done.exit_code == 1
        assert "one, tilesolve: unplanned: IPOPT is tired" in done.stdout
        assert "unplanned: IPOPT is tired" in page.read_text()


class TestResults:
    MATMUL = ContractionCase("matmul", Problem.of("ij-ik-kj", 100))
    CASE = Result(
        MATMUL,
        {OURS: Entry((4e-3, 5e-3, 3e-3), "", 0.1, 123), "numpy": Entry((6e-3,) * 3)},
        planned(1e-3, 2e-3, "L2"),
    )
    OTHER = replace(CASE, case=replace(MATMUL, name="other"))
    HUGE = Result(ContractionCase("huge", SMALL), skipped="too large")

    def test_json_reads_back(self):
        """Whatever is kept is read back equal."""
        both = made(self.CASE, self.HUGE)
        assert json.loads(both.to_json())["format"] == 1
        again = Sweep.from_json(both.to_json())
        assert again.cases[0] == self.CASE
        assert again.conditions == both.conditions
        assert again.cases[1].skipped == "too large"

    def test_a_peak_beside_the_runs_is_kept_and_told(self):
        """Files from before there was one are read as well."""
        paced = made(replace(self.CASE, peak=3e9), replace(self.OTHER, peak=5e9))
        again = Sweep.from_json(paced.to_json())
        assert [case.peak for case in again.cases] == [3e9, 5e9]
        assert "| peak of float64 beside the runs | 4.0 GFLOP/s in the median" in render_section(
            replace(again, machine=MACHINE.to_toml())
        )
        data = json.loads(paced.to_json())
        for case in data["cases"]:
            del case["peak"]
        assert [case.peak for case in Sweep.from_json(json.dumps(data)).cases] == [None, None]

    @pytest.mark.parametrize(
        ("place", "damage"),
        [
            (("cases", 0, "entries", "numpy", "seconds"), [0.0]),
            (("cases", 0, "entries", "numpy", "seconds"), [-1.0]),
            (("cases", 0, "entries", "numpy", "seconds"), [math.nan]),
            (("cases", 0, "entries", "numpy", "seconds"), "12"),
            (("cases", 0, "entries", "numpy", "seconds"), []),
            (("cases", 0, "entries", "numpy", "memory"), -1),
            (("cases", 0, "entries", "numpy", "preparation"), "long"),
            (("cases", 0, "entries"), []),
            (("cases", 0, "roofline"), None),
            (("cases", 0, "roofline"), 0),
            (("cases", 0, "predicted"), 0),
            (("cases", 0, "bottleneck"), None),
            (("cases", 0, "peak"), "x"),
            (("cases", 0, "name"), 5),
            (("cases", 1, "skipped"), 5),
            (("provenance",), 3),
            (("provenance", "CPU"), 3),
            (("machine",), None),
        ],
    )
    def test_impossible_values_are_refused(self, place, damage):
        """Whatever a file holds in the place of a value, the error is one line of its own words."""
        both = made(self.CASE, self.HUGE)
        data = json.loads(both.to_json())
        *above, last = place
        part = data
        for step in above:
            part = part[step]
        part[last] = damage
        with pytest.raises(
            BenchmarkError, match=r"^old\.json: a damaged file of results: "
        ) as said:
            Sweep.from_json(json.dumps(data), origin="old.json")
        assert "\n" not in str(said.value)

    @examples(15, 40)
    @given(st.data())
    def test_a_damaged_file_is_refused_or_shown(self, data):
        """With any value replaced by another one, what is read can be shown and kept."""
        unplanned = Result(ContractionCase("odd", SMALL), {OURS: Entry((), "unplanned: no")})
        document = json.loads(made(replace(self.CASE, peak=3e9), self.HUGE, unplanned).to_json())
        del document["settings"]
        part = document
        while isinstance(part, dict | list) and part:
            within = part
            keys = list(part) if isinstance(part, dict) else range(len(part))
            key = data.draw(st.sampled_from(keys))
            part = part[key]
        others = st.none() | st.integers() | st.floats() | st.text() | st.just([]) | st.just({})
        within[key] = data.draw(others)
        document["settings"] = json.loads(made().to_json())["settings"]
        try:
            found = Sweep.from_json(json.dumps(document))
        except BenchmarkError:
            return
        found = replace(found, machine=MACHINE.to_toml())
        assert render_section(found)
        assert compare_sweeps(found, found)
        assert found.to_csv()
        assert Sweep.from_json(found.to_json()) == found

    def test_only_files_are_read(self, tmp_path):
        """A pipe that nobody writes to would never end."""
        os.mkfifo(tmp_path / "pipe")
        os.mkfifo(tmp_path / "pipe.md")
        for outputs in (Outputs(compare=tmp_path / "pipe"), Outputs(page=tmp_path / "pipe.md")):
            with pytest.raises((BenchmarkError, OSError), match=r"pipe(\.md)?: not a regular file"):
                outputs.check()

    def test_figures_are_those_of_the_medians(self):
        """Speed, share of the roofline and ratio follow from the median round."""
        assert self.CASE.speed(OURS) == pytest.approx(2e6 / 4e-3)
        assert self.CASE.reached(OURS) == pytest.approx(0.25)
        assert self.CASE.ratio() == pytest.approx(1.5)
        assert self.CASE.entries[OURS].spread == pytest.approx(0.25)
        outlier = Entry((1.0, 1.0, 1.0, 1.0, 9.0))
        assert (outlier.median, outlier.spread) == (1.0, 0.0)

    def test_worst_come_first(self):
        """Who has no result, then by the ratio to the best peer, and last what was skipped."""
        ratios = [2.0, 0.5, 1.0]
        entries = [{OURS: Entry((1.0,)), "numpy": Entry((ratio,))} for ratio in ratios]
        named = {f"{ratio}": own for ratio, own in zip(ratios, entries, strict=True)}
        named["none"] = {OURS: Entry((), "crashed: SIGSEGV")}
        cases = [
            Result(ContractionCase(name, SMALL), own, planned(0.5, 0.5, "L1"))
            for name, own in named.items()
        ]
        cases.insert(0, Result(ContractionCase("skipped", SMALL), skipped="too large"))
        found = sort_cases(made(*cases))
        assert [case.name for case in found] == ["none", "0.5", "1.0", "2.0", "skipped"]
        table = list_rows(made(*cases, tilesolve="", numpy=""))
        assert {len(row) for row in table} == {14}
        means = list_means(made(*cases, tilesolve="", numpy=""))
        assert means["times the best peer"] == "1.00, slower in 1 of 3"

    def test_aligned_arrays_stand_beside(self):
        """The ratio of speeds and the worst one are told; what has not been measured is missing."""
        entries = self.CASE.entries | {ALIGNED: Entry((2e-3,) * 3)}
        found = made(replace(self.CASE, entries=entries), self.OTHER, tilesolve="", aligned="")
        first, second = (
            dict(zip(list_columns(found), row, strict=True)) for row in list_rows(found)
        )
        assert [(row["aligned"], row["to aligned"]) for row in (first, second)] == [
            ("1", "0.50"),
            ("-", "-"),
        ]
        assert list_means(found)["times aligned"] == "0.50, least 0.50 (matmul)"
        assert "times aligned" not in list_means(made(self.OTHER))
        assert "peers none" in name_section(found)
        assert report_sweep(found).heading.endswith("without peers")

    def test_older_files_do_not_say_where_arrays_began(self, tmp_path):
        """They are read, and not gone on with: what is measured now may differ."""
        old = made(self.CASE)
        data = json.loads(old.to_json())
        del data["settings"]["offset"]
        assert Sweep.from_json(json.dumps(data)) == old
        old.save(tmp_path / "old.json")
        new = replace(old, conditions=replace(old.conditions, offset=NUMPY_OFFSET_BYTES))
        with pytest.raises(BenchmarkError, match="another offset: None, now 16"):
            new.resume(tmp_path / "old.json")
        assert "arrays as numpy" not in render_section(old)
        assert "arrays as numpy allocates them" in render_section(new)

    def test_sections_begin_and_end_once(self):
        """A page on which one does not is not written to."""
        begin, end = "<!-- begin: x -->", "<!-- end: x -->"
        for text in (begin, end, end + begin, 2 * (begin + end), begin + begin + end + end):
            with pytest.raises(BenchmarkError, match="'x' must begin and end once"):
                replace_section(text, "x", "new")
        with pytest.raises(BenchmarkError, match="'x' must begin and end once"):
            replace_section(begin + "<!-- end: y -->", "x", "new")

    def test_sweeps_are_sections_of_one_page(self, tmp_path):
        """A sweep takes the place of the same one before, and other ones stay as they are."""
        both, alone = made(self.CASE, tilesolve="", numpy=""), made(self.CASE)
        single = replace(both, conditions=replace(both.conditions, dtype="float32"))
        threads = replace(both, conditions=replace(both.conditions, threads=2))
        for sweep in (both, alone, single, threads):
            write_section(tmp_path / "page.md", name_section(sweep), render_section(sweep))
        before = (tmp_path / "page.md").read_text("utf-8")
        assert before.startswith(f"# {detect_cpu().model}\n\n<!-- begin: mine ")
        assert [line for line in before.splitlines() if line.startswith("## ")] == [
            "## mine, float64, 1 thread",
            "## mine, float64, 1 thread, without peers",
            "## mine, float32, 1 thread",
            "## mine, float64, 2 threads",
        ]
        changed = made(self.OTHER)
        write_section(tmp_path / "page.md", name_section(changed), render_section(changed))
        after = (tmp_path / "page.md").read_text("utf-8")
        assert after == before.replace(render_section(alone), render_section(changed))
        assert after != before

    def test_a_section_is_tables(self):
        """Each row has as many cells as its head, and the facts stand above the cases."""
        text = render_section(made(self.CASE, tilesolve="", numpy=""))
        heading, *tables = text.split("\n\n")
        assert heading == "## mine, float64, 1 thread"
        assert len(tables) == 4
        for table in map(str.splitlines, tables):
            assert all(line.startswith("| ") for line in table)
            assert len({line.count("|") for line in table}) == 1
        assert len(tables[-1].splitlines()) == 3
        assert "| CPU | a <fast> one |" in tables[0]
        assert "| numpy | numpy 1.0 |" in tables[1]
