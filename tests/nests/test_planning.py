"""Classes, routes and reports of planned nests."""

from dataclasses import replace

import numpy as np
import pytest
from turns import quick_each

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.nest_suites import nest_suite
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs.program import Hold
from tilesolve.machine.model import Machine
from tilesolve.nests.classify import find_move, tile_class
from tilesolve.nests.planning import solve_nest
from tilesolve.nests.price import price_nest, region_share
from tilesolve.nests.report import describe
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import BlockSolution
from tilesolve.nests.split import split_sums

MACHINE = Machine.load("i7-6700k")
SUITE = nest_suite("nests")


def plan_nest(request):
    """How each statement is run."""
    return solve_nest(request).solutions


def bound(text, sizes=64, dtype="float32", where=(), **others):
    """A computation from text."""
    return bind_stages(parse_stages(text, where), sizes, dtype, **others)


@pytest.mark.parametrize(
    ("name", "tiles_for", "route", "streamed"),
    [
        ("convlayer", "temporal", "contraction", False),
        ("doitgen", "temporal", "contraction", False),
        ("matmul", "temporal", "contraction", False),
        ("gemm", "temporal", "contraction", False),
        ("3mm", "temporal", "contraction", False),
        ("trmm", "temporal", "contraction", False),
        ("syrk", "temporal", "contraction", False),
        ("syrk-lower", "temporal", "contraction", False),
        ("syr2k", "temporal", "contraction", False),
        ("tpm", "spatial", "nest", True),
        ("tp", "spatial", "transpose", True),
        ("copy", "no transform", "nest", True),
        ("mask", "no transform", "nest", True),
    ],
)
def test_classes_and_routes_of_the_thesis_s_kernels(name, tiles_for, route, streamed):
    """What tiles are made for, what runs the first statement, and what goes past the caches."""
    computation = SUITE[name].computation
    assert tile_class(computation.stages[0]) == tiles_for
    assert plan_nest(NestRequest(computation, MACHINE))[0].route == route
    first = plan_nest(NestRequest(computation, MACHINE, route="nest", mode="thesis"))[0]
    assert bool(first.non_temporal) == streamed


def test_gemm_is_one_contraction_if_its_own_output_is_added():
    """With another array it is a contraction and an addition."""
    own = plan_nest(
        NestRequest(bound("C[i,j] = beta * C[i,j] + alpha * sum(A[i,k] * B[k,j])", 256), MACHINE)
    )
    assert [choice.route for choice in own] == ["contraction"]
    other = plan_nest(NestRequest(SUITE["gemm"].computation, MACHINE))
    assert [choice.route for choice in other] == ["contraction", "nest"]


def test_small_contractions_are_nests_unless_a_route_is_given():
    """Below 2**22 operations a plan does not pay."""
    small = bound("C[i,j] += A[i,k] * B[k,j]", 64)
    assert plan_nest(NestRequest(small, MACHINE))[0].route == "nest"
    assert plan_nest(NestRequest(small, MACHINE, route="contraction"))[0].route == "contraction"


@pytest.mark.parametrize(
    ("text", "route", "message"),
    [
        ("C[i,j] = A[i,j] & B[i,j]", "contraction", "is no contraction"),
        ("C[i,j] = A[i,j] & B[i,j]", "transpose", "is no transpose"),
        ("C[i,j] = A[i,j] & B[i,j]", "gpu", "route is one of nest, contraction, transpose"),
    ],
)
def test_routes_that_cannot_be_taken_are_refused(text, route, message):
    """With the reason."""
    with pytest.raises(PlanError, match=message):
        plan_nest(NestRequest(bound(text, 8, "int32"), MACHINE, route=route))


def test_modes_are_checked():
    """A mode that is none is refused by name."""
    with pytest.raises(
        PlanError, match="mode is one of default, thesis, untiled, plain, not 'fast'"
    ):
        plan_nest(NestRequest(bound("o[x] = A[x]"), MACHINE, mode="fast"))


@pytest.mark.parametrize(
    ("text", "sizes", "others", "found"),
    [
        ("h[A[i]] += 1", 9, {"shapes": {"h": (10,)}}, "no transform"),
        ("o[i] = A[B[i]]", 9, {"shapes": {"A": (10,)}}, "no transform"),
        ("o[y,x] = A[y,x] + A[y,x+1] + A[y+1,x]", 9, {}, "no transform"),
        ("o[y,x] = A[y,x]", 9, {}, "no transform"),
        ("o[x,y] = A[y,x]", 3000, {}, "move"),
        ("o[x,y] = A[y,x]", 9, {}, "spatial"),
        ("o[x,y] = 2 * A[y,x]", 9, {}, "spatial"),
        ("o[x,y] = A[y,x+1]", 9, {}, "spatial"),
        ("o[y] = max(A[y,x])", 9, {}, "temporal"),
    ],
)
def test_classes_of_other_statements(text, sizes, others, found):
    """Computed positions are left alone; stencils stream; scaled and short moves are crossed."""
    computation = bound(text, sizes, "int32", **others)
    assert plan_nest(NestRequest(computation, MACHINE))[0].kind == found


def test_a_part_of_an_array_is_no_move():
    """The transpose takes whole arrays."""
    computation = bound("o[x,y] = A[y,x]", 4, "int32", shapes={"A": (5, 4)})
    assert find_move(computation.stages[0], computation) is None


def test_sums_within_terms_become_statements():
    """Each in the dtype that it is summed in."""
    split = split_sums(bound("s[i,j] = A[i,j] / sum(A[i,k], k)", 8))
    assert [str(stage) for stage in split.stages] == [
        "s_sum[i] = sum(A[i,k], k)",
        "s[i,j] = A[i,j] / s_sum[i]",
    ]
    mean = split_sums(bound("s[i] = sum(A[i,k], k) / 8", 8, "uint8"))
    assert [array.dtype for array in mean.arrays] == ["uint8", "uint64", "float64"]


def test_the_default_keeps_sums_in_registers_and_the_thesis_does_not():
    """A Hold around the innermost loops."""
    computation = bound("C[i,j] += A[i,k] * B[k,j]", 200)
    held = {
        mode: any(
            isinstance(node, Hold)
            for node in plan_nest(NestRequest(computation, MACHINE, mode=mode, route="nest"))[
                0
            ].program.nodes
        )
        for mode in ("default", "thesis", "untiled")
    }
    assert held == {"default": True, "thesis": False, "untiled": True}


def test_outputs_that_the_last_cache_holds_are_not_streamed():
    """In the thesis's mode they are, all the same."""
    computation = bound("o[y,x] = A[y,x] & B[y,x]", 64, "int32")
    assert not plan_nest(NestRequest(computation, MACHINE))[0].non_temporal
    assert plan_nest(NestRequest(computation, MACHINE, mode="thesis"))[0].non_temporal == {"o"}


def streams(text, machine=MACHINE, **sizes):
    """Whether an output goes past the caches."""
    return bool(plan_nest(NestRequest(bound(text, sizes, "float32"), machine))[0].non_temporal)


def test_short_rows_that_share_lines_are_not_streamed():
    """What their ends cost decides: none where rows are whole lines, or all of one row."""
    for columns, streamed in ((3, False), (17, False), (16, True), (118, True), (1000, True)):
        sizes = {"y": 30_000_000 // columns, "x": columns}
        assert streams("o[y,x] = A[y,x] + B[y,x]", **sizes) == streamed, columns
    assert streams("o[x] = A[x] + A[x+1]", x=30_000_001)
    free, dear = (
        MACHINE.replace(costs=replace(MACHINE.costs, shared_line_cycles=cycles))
        for cycles in (1e-6, 1e6)
    )
    assert streams("o[y,x] = A[y,x] + B[y,x]", free, y=10_000_000, x=3)
    assert not streams("o[y,x] = A[y,x] + B[y,x]", dear, y=30_000, x=1000)


def test_blocks_stream_rows_of_whole_lines_alone():
    """They write a line of each of their rows at once."""
    assert streams("o[y,x] = A[x,y] + B[y,x]", y=4000, x=4096)
    assert not streams("o[y,x] = A[x,y] + B[y,x]", y=4000, x=4100)


def test_rows_without_gaps_are_priced_as_one_run():
    """However short they are: the line that two of them share is read once."""
    short, long = (
        plan_nest(
            NestRequest(bound("o[y,x] = A[y,x] + 1", {"y": y, "x": x}), MACHINE, mode="plain")
        )[0].cost
        for y, x in ((10_000_000, 3), (10_000, 3000))
    )
    assert short.level("memory").seconds == pytest.approx(long.level("memory").seconds, rel=0.01)


@pytest.mark.parametrize("name", quick_each(zip(SUITE), of=2))
def test_reports_name_tiles_and_loops(name):
    """Two lines for loops and moves, one for what plans run, and one for each kind of block."""
    for choice in plan_nest(NestRequest(SUITE[name].computation, MACHINE, 2)):
        lines = describe(choice)
        assert choice.route in lines[0]
        more = len(choice.kinds) if isinstance(choice, BlockSolution) else 0
        assert len(lines) == (1 if choice.route == "contraction" else 2) + more
        assert choice.seconds > 0


def test_predicted_bytes_of_a_copy_are_those_of_its_arrays():
    """Each is read or written once; what is not streamed is read before it is written."""
    computation = bound("o[y,x] = A[y,x]", 4096, "int32")
    choice = plan_nest(NestRequest(computation, MACHINE, route="nest"))[0]
    read = choice.cost.level("memory").volume
    streamed = choice.cost.past_caches * choice.request.places[-1].stream_rate
    assert [read, streamed] == pytest.approx([2**26, 2**26], rel=0.01)
    kept = price_nest(computation, replace(choice.loops, output="store"), MACHINE)
    assert kept.level("memory").volume == pytest.approx(3 * 2**26, rel=0.01)


def test_a_block_that_is_transposed_moves_each_line_once():
    """Rows that are written out run within the steps of vectors, and share what these read."""
    computation = bound("o[y,x] = A[x,y] + B[y,x]", 4112, "int32")  # rows share no sets
    (choice,) = plan_nest(NestRequest(computation, MACHINE))
    for level in ("L2", "memory"):
        assert choice.cost.level(level).volume == pytest.approx(12 * 4112**2, rel=0.4)


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["int8", "float64"])
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000])
def test_blocks_that_are_transposed_have_tiles_of_whole_lines(rows, dtype, threads):
    """As high as a thread's share, and no longer than a page."""
    size = np.dtype(dtype).itemsize
    for columns in (1, 512, 4095, 4096, 4097, 30000):
        computation = bound("o[y,x] = A[x,y] + B[y,x]", {"y": rows, "x": columns}, dtype)
        (choice,) = plan_nest(NestRequest(computation, MACHINE, threads))
        width, height = choice.tiles["x"], choice.tiles["y"]
        assert width * size % 64 == 0 or width == columns
        assert height * size % 64 == 0 or height * size < 64 or height == rows
        assert width * size <= 4096
        assert rows / threads - 64 / size < height < rows / threads + 1


def test_tiles_move_fewer_bytes_than_none():
    """The price of a product that no cache holds."""
    computation = bound("C[i,j] += A[i,k] * B[k,j]", 1500)
    tiled, plain = (
        plan_nest(NestRequest(computation, MACHINE, mode=mode, route="nest"))[0].cost
        for mode in ("default", "untiled")
    )
    assert tiled.level("L2").volume < plain.level("L2").volume


def test_a_triangle_is_half_of_a_square():
    """The share that prices count."""
    stage = bound("C[i,j] += A[i,k]", 100, where="j <= i").stages[0]
    assert region_share(stage, {"i": 100, "j": 100, "k": 100}) == pytest.approx(0.5, abs=0.02)
    (few,) = parse_stages("C[i,j] = A[i,j]", "i <= 2")
    assert region_share(few, {"i": 4, "j": 100}) == 0.75


def test_machines_with_one_cache_get_loops_without_tiles():
    """With the reason."""
    one = MACHINE.replace(levels=(MACHINE.levels[0], MACHINE.levels[-1]))
    (choice,) = plan_nest(NestRequest(bound("C[i,j] += A[i,k] * B[k,j]", 64), one, route="nest"))
    assert choice.why == "i7-6700k has no second cache"
    assert not choice.tiles


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("t[x] += c[x,k] * c[x,k]", {"x": 4096, "k": 1024}),
        ("d = sum(a[i] * b[i], i)", {"i": 1 << 22}),
        ("o[y,b] += a[b,k,y] * w[b,y,k]", {"y": 256, "b": 64, "k": 256}),
    ],
)
def test_products_that_use_nothing_again_are_loops(text, sizes):
    """Each element meets one other: packing takes longer than all else, unless it is asked for."""
    found = bound(text, sizes)
    assert [one.route for one in plan_nest(NestRequest(found, MACHINE))] == ["nest"]
    asked = plan_nest(NestRequest(found, MACHINE, route="contraction"))
    assert [one.route for one in asked] == ["contraction"]
    more = bound("C[i,j] += A[i,k] * B[k,j]", 256)
    assert [one.route for one in plan_nest(NestRequest(more, MACHINE))] == ["contraction"]
