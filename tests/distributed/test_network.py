"""The network level: its price is what tasks move, nothing beats its bound, and plans show it."""

import json

import hypothesis.strategies as st
import pytest
from commands import invoke
from hypothesis import given, settings

import tilesolve
from tilesolve.contractions.errors import MachineError, MemoryLimitError, PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.distributed.schedule import Schedule
from tilesolve.machine.cluster import Cluster
from tilesolve.machine.model import Machine
from tilesolve.planning.network import divide
from tilesolve.plans.cluster_plan import ClusterPlan

MACHINE = Machine.load("i7-6700k")


@given(
    extents=st.tuples(*3 * [st.integers(8, 90)]),
    workers=st.integers(1, 12),
    room=st.integers(3_000, 200_000),
    spec=st.sampled_from(["ij-ik-kj", "ij-ki-kj", "aijb-aik-kjb", "bij-bik-bkj"]),
)
@settings(max_examples=8)
def test_every_product_is_computed_once(extents, workers, room, spec):
    """Chunks of C and parts of sums cover everything; what moves is priced, and bounded below."""
    sizes = dict(zip("ijk", extents, strict=True)) | {"a": 3, "b": 4}
    problem = Problem.of(spec, {i: n for i, n in sizes.items() if i in spec})
    try:
        division = divide(problem, MACHINE, Cluster(workers, int(room / 0.6), 1e6))
    except MemoryLimitError:
        return
    schedule = Schedule(division)
    first, second = problem.spec.operands
    products = 0
    for task in schedule.tasks:
        span = dict(zip(first.letters, task.boxes[1], strict=True))
        span |= dict(zip(second.letters, task.boxes[2], strict=True))
        count = 1
        for begin, end in span.values():
            count *= end - begin
        products += count
    assert 2 * products == problem.flops
    assert len({(task.boxes[0], task.part, task.step) for task in schedule.tasks}) == len(
        schedule.tasks
    )
    assert division.peak <= division.cluster.room
    assert not division.moves_once or sum(schedule.moved()) >= 0.999 * division.least


@pytest.mark.parametrize("workers", [2, 8, 12, 64, 512])
def test_square_products_move_little(workers):
    """No more than 1.3 of what no division goes below; the model's bytes are those of tasks."""
    division = divide(Problem.of("ij-ik-kj", 4096), MACHINE, Cluster(workers, 1 << 34, 1.2e9))
    moved = sum(Schedule(division).moved())
    assert moved == pytest.approx(division.price.volume, rel=0.01)
    assert division.least <= moved <= 1.3 * division.least


def test_plans_show_the_network(tmp_path, monkeypatch):
    """Among the levels of a worker, with its bound; a plan goes through JSON and the command."""
    cluster = Cluster(4, 10**9, 1e9)
    found = tilesolve.plan("ij-ik-kj", 2048, "i7-6700k", workers=cluster, cache=False)
    assert [line.split()[0] for line in str(found).splitlines() if "  network" in line] == [
        "network"
    ]
    assert ClusterPlan.from_json(found.to_json()) == found
    with pytest.raises(PlanError, match="workers compute a contraction alone"):
        tilesolve.plan("ij-ik-kj", 64, "i7-6700k", workers=4, epilogue="relu")
    path = tmp_path / "cluster.toml"
    cluster.save(path)
    assert Cluster.load(path) == cluster
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path))
    words = ("plan", "ij-ik-kj", "2048", "--machine", "i7-6700k", "--workers", "4")
    assert invoke(*words).stdout.strip() == str(found)
    slow = json.loads(invoke(*words, "--network-bandwidth", "1e8", "--json").stdout)
    assert slow["cluster"]["bandwidth"] == 1e8
    path.write_text("format = 9")
    with pytest.raises(MachineError, match="a cluster file has format = 1"):
        tilesolve.plan("ij-ik-kj", 64, "i7-6700k", workers=4)


def test_calibration_of_a_cluster(cluster, tmp_path):
    """Finds its workers, their memory, and a rate between them; a wrong address is told."""
    target = tmp_path / "found.toml"
    shown = invoke("calibrate", "--cluster", cluster.scheduler_address, "--output", str(target))
    found = Cluster.load(target)
    assert (found.workers, found.threads) == (2, 1)
    assert found.memory < 1_001_000_000
    assert "2 workers of 1 threads" in shown.stdout
