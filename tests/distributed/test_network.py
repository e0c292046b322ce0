"""The network level: its price is what tasks move, nothing beats its bound, and plans show it."""

import json
import math
import pickle
import re

import hypothesis.strategies as st
import pytest
from commands import invoke, refused
from distributed import LocalCluster
from hypothesis import given, settings
from turns import examples

import tilesolve
from tilesolve.constants.network import ASSUMED_NETWORK_RATE
from tilesolve.contractions.errors import (
    CalibrationError,
    MemoryLimitError,
    PlanError,
    TilesolveWarning,
)
from tilesolve.contractions.problem import Problem
from tilesolve.distributed.measure import measure_cluster
from tilesolve.machine.cluster import Cluster, cluster_file, read_cluster
from tilesolve.machine.model import Machine
from tilesolve.planning.network import divide
from tilesolve.planning.worker_schedule import Schedule
from tilesolve.planning.worker_shares import Sharing
from tilesolve.plans.cluster_plan import ClusterPlan

MACHINE = Machine.load("i7-6700k")


@given(
    extents=st.tuples(*3 * [st.integers(8, 60)]),
    workers=st.integers(1, 12),
    room=st.integers(3_000, 200_000),
    spec=st.sampled_from(["ij-ik-kj", "ij-ki-kj", "aijb-aik-kjb", "bij-bik-bkj"]),
)
@examples(5, 8)
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


@given(
    workers=st.integers(1, 30),
    parts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    order=st.permutations("ijk"),
)
@settings(max_examples=60)
def test_shares_are_even_and_cover_everything(workers, parts, order):
    """Whatever the number of workers, in parts that need not be as many everywhere."""
    if math.prod(parts[:-1]) > workers:
        parts = [1]
    parts[-1] = math.ceil(workers / math.prod(parts[:-1]))
    sharing = Sharing(workers, tuple(zip(order, parts, strict=False)))
    sizes = dict.fromkeys("ijk", 700)
    shares = sharing.shares(sizes)
    products = [math.prod(end - begin for begin, end in own.values()) for own in shares]
    assert len(shares) == workers
    assert sum(products) == 700**3
    assert max(products) <= 1.1 * min(products)
    assert all(own[i][1] - own[i][0] <= sharing.longest(sizes)[i] for own in shares for i in "ijk")
    for letters in ("ij", "jk", "k"):
        held = sum(math.prod(own[i][1] - own[i][0] for i in letters) for own in shares)
        assert sharing.copies(letters) == pytest.approx(held / 700 ** len(letters), rel=0.02)


@pytest.mark.parametrize("workers", [2, 3, 7, 8, 12, 13, 22, 61, 64, 512, 4096])
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
    assert pickle.loads(pickle.dumps(found)) == found
    for option in ({"epilogue": "relu"}, {"threads": 2}):
        with pytest.raises(PlanError, match="workers compute a contraction alone"):
            tilesolve.plan("ij-ik-kj", 64, "i7-6700k", workers=4, **option)
    path = tmp_path / "cluster.toml"
    cluster.save(path)
    assert Cluster.load(path) == cluster
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path))
    words = ("plan", "ij-ik-kj", "2048", "--machine", "i7-6700k", "--workers", "4")
    assert invoke(*words).stdout.strip() == str(found)
    options = "--network-bandwidth", "1e6", "--worker-memory", "2e9", "--threads", "2", "--json"
    slow = ClusterPlan.from_json(invoke(*words, *options).stdout)
    assert slow.division.cluster == Cluster(4, 2 * 10**9, 1e6, 2)
    assert slow.division.binds == "network"
    assert found.whatif(network_bandwidth=1e-3).division.binds == "network"


def test_what_is_no_plan_for_workers():
    """Files that were changed, or hold something else, and memory that holds no blocks are told."""
    text = tilesolve.plan("ij-ik-kj", 64, "i7-6700k", workers=4).to_json()
    with pytest.raises(PlanError, match="checksum is another"):
        ClusterPlan.from_json(text.replace('"i": 64', '"i": 65'))
    changed = json.loads(text)
    del changed["checksum"]
    changed["cluster"]["workers"] = 2
    with pytest.raises(PlanError, match="workers divide the problem otherwise now"):
        ClusterPlan.from_json(json.dumps(changed))
    for wrong in ("[]", "{}", "7", "no JSON", tilesolve.plan("ij-ik-kj", 8).to_json()):
        with pytest.raises(PlanError):
            ClusterPlan.from_json(wrong)
    with pytest.raises(PlanError, match="this is 'a plan for workers'"):
        tilesolve.Plan.from_json(text)
    words = ("plan", "ij-ik-kj", "2048", "--workers", "4", "--worker-memory", "100")
    assert re.search("fit beside each other .*C .*, A .*, B ", refused(*words))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("format = 9", "a cluster file has format = 1 and bandwidth, memory, threads, workers"),
        ("format = ", "Invalid value"),
        (None, "can be written by others"),
    ],
)
def test_a_cluster_file_that_is_not_used(text, told, tmp_path, monkeypatch):
    """Is warned of once, and plans go by what is assumed."""
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path))
    Cluster(2, 10**9, 5e9).save(cluster_file())
    assert read_cluster(3) == Cluster(3, 10**9, 5e9)
    if text is None:
        cluster_file().chmod(0o666)
    else:
        cluster_file().write_text(text)
    with pytest.warns(TilesolveWarning, match=told) as caught:
        found = [read_cluster(count).bandwidth for count in (3, 4)]
    assert found == 2 * [ASSUMED_NETWORK_RATE]
    assert len(caught) == 1


def test_calibration_of_a_cluster(cluster, tmp_path):
    """Finds its workers, their memory, and a rate between them; a wrong address is told."""
    target = tmp_path / "found.toml"
    shown = invoke("calibrate", "--cluster", cluster.scheduler_address, "--output", str(target))
    found = Cluster.load(target)
    assert (found.workers, found.threads) == (2, 1)
    assert found.memory < 1_001_000_000
    assert "2 workers of 1 threads" in shown.stdout
    with pytest.raises(CalibrationError, match="no scheduler of Dask answers at 'no://where'"):
        measure_cluster("no://where")
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as alone,
        pytest.raises(CalibrationError, match="needs two workers"),
    ):
        measure_cluster(alone.scheduler_address)


def test_workers_of_this_computer_are_the_default(tmp_path, monkeypatch):
    """`local` starts two of them, and its file is what plans count with from then on."""
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path))
    shown = json.loads(invoke("calibrate", "--cluster", "local", "--json").stdout)
    assert shown["file"] == str(cluster_file())
    assert read_cluster(5) == Cluster(5, shown["memory"], shown["bandwidth"], 1)
