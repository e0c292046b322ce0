"""Small matrix products of every size: `python examples/edge_speed.py [--plot FILE]`.

`make bench` runs it. It repeats Fig. 3 of the TTile paper (hal-03149553): a matrix of 128 columns
times one of 128 by 128, for 8 to 49 rows, whole vectors along the 128; and the same transposed,
where vectors run along the 8 to 49 and the last one is rarely full, so that some lanes compute for
nothing. Shares of the peak are printed, worst first: of the microkernels alone, called as the plan
would on packed operands in the nearest caches, and of the whole call into an output that exists.
The peak is measured in between, on the same core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from tilesolve import Machine, Plan, plan
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.kernels.codegen.shape import FIELDS, Shape
from tilesolve.kernels.probes.bandwidth import multiply_adds
from tilesolve.kernels.runtime import compiled
from tilesolve.kernels.runtime.compiled import INT, as_pointer, invoke
from tilesolve.machine.kernel_cache import load_kernels
from tilesolve.packing.buffers import allocate
from tilesolve.running.execution import trace_calls

SIDE = 128
EXTENTS = range(8, 50)
SPECS = {"full vectors": "ij-ik-kj", "vectors along I": "ji-jk-ki"}
GOALS = {"kernels": 0.80, "call": 0.65}
"""Shares of the peak to reach where vectors are full."""


@compiled.compiled(INT, INT, INT, INT, INT)
def _repeat(addresses, frames, size, count, times):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Call each kernel with its frame of so many bytes, one after the other, again and again."""
    for _ in range(times):
        for at in range(count):
            invoke(as_pointer(addresses)[at], frames + size * at)


def micro_panels(
    values: np.ndarray, starts: Sequence[int], group: int
) -> tuple[np.ndarray, list[int]]:
    """Return rows in micro-panels, those of each register tile in its own, and their addresses."""
    ends = [*starts[1:], len(values)]
    counts = [-(-(end - start) // group) for start, end in zip(starts, ends, strict=True)]
    size = group * values.shape[1]
    memory = allocate(sum(counts) * size * values.itemsize).view(values.dtype)
    memory[:] = 0
    found, done = memory.reshape(-1, values.shape[1], group), 0
    addresses = []
    for start, end, count in zip(starts, ends, counts, strict=True):
        for row in range(start, end):
            found[done + (row - start) // group, :, (row - start) % group] = values[row]
        addresses.append(memory.ctypes.data + done * size * values.itemsize)
        done += count
    return memory, addresses


@dataclass
class Case:
    """One product: its plan, its arrays, and frames for its register tiles on packed copies."""

    plan: Plan
    first: np.ndarray
    second: np.ndarray
    out: np.ndarray
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem, machine = self.plan.problem, self.plan.machine
        family = Family.of(problem.dtype, machine.vector_bits, machine.vector_registers)
        tiles = [trace for _, trace in trace_calls(self.plan.solution)]
        along = problem.spec.output.letters[1]
        rows = self.second.T if along in problem.spec.operands[1].letters else self.first
        columns = self.first if rows is not self.first else self.second.T
        size, sums = self.out.itemsize, rows.shape[1]
        begins = [sorted({int(tile[at]) for tile in tiles}) for at in (0, 2)]
        packed_rows, rows_at = micro_panels(rows, begins[0], family.lanes)
        packed_columns, columns_at = micro_panels(columns, begins[1], family.group)
        offsets = np.arange(len(rows)) * size, np.arange(len(columns)) * size * len(rows)
        frames = np.zeros((len(tiles), len(FIELDS)), np.int64)
        addresses = np.zeros(len(tiles), np.int64)
        one = int(np.array([1, 0], problem.dtype).view(np.uint8)[:size].view(f"u{size}")[0])
        nothing = np.array([rows_at[0]])
        for at, (r, high, n, wide, k, deep, _, mode, *_) in enumerate(tiles):
            shape = Shape(
                problem.dtype,
                family.bits,
                -(-high // family.lanes),
                wide,
                family.group,
                packed=True,
            )
            addresses[at] = load_kernels(family, packed=True).address(shape.name)
            a = rows_at[begins[0].index(r)] + k * family.lanes * size
            values = {
                "a": a,
                "next_a": a,
                "fetch": nothing.ctypes.data,
                "a_step": sums * family.lanes * size,
                "b": columns_at[begins[1].index(n)] + k * family.group * size,
                "b_step": sums * family.group * size,
                "k": deep,
                "c": self.out.ctypes.data,
                "rows_c": offsets[0].ctypes.data + 8 * r,
                "columns_c": offsets[1].ctypes.data + 8 * n,
                "rows": high,
                "mode": mode,
                "alpha": one,
                "beta": one,
            }
            frames[at] = [values.get(name, 0) for name in FIELDS]
        self.kept = addresses, frames, offsets, nothing, packed_rows, packed_columns

    def kernels(self, times: int) -> None:
        """Call the microkernels of all register tiles."""
        addresses, frames = self.kept[:2]
        begins = addresses.ctypes.data, frames.ctypes.data
        _repeat(*begins, frames.strides[0], len(frames), times)

    def call(self, times: int) -> None:
        """Call the plan."""
        for _ in range(times):
            self.plan(self.first, self.second, out=self.out)

    @property
    def flops(self) -> float:
        """Of one product, padding not counted."""
        return 2.0 * self.first.size * self.second.size / SIDE

    def shares(self, peak: float) -> dict[str, float]:
        """Return the share of the peak that each way of computing reached."""
        return {name: self.flops / seconds / peak for name, seconds in self.seconds.items()}


def prepared(spec: str, extent: int, dtype: str) -> Case:
    """Return a case whose two ways of computing have been checked."""
    sizes = {"i": extent, "j": SIDE, "k": SIDE}
    found = plan(spec, sizes, dtype=dtype, threads=1)
    generator = np.random.default_rng(extent)
    first, second = (generator.random(shape).astype(dtype) for shape in found.problem.shapes[1:])
    case = Case(found, first, second, np.zeros(found.problem.shapes[0], dtype))
    for compute in (case.kernels, case.call):
        case.out[:] = np.nan
        compute(1)
        if not np.allclose(case.out, first @ second, rtol=1e-4):
            raise SystemExit(f"{spec} with i={extent}, {dtype}: a wrong product")
    return case


def best(work: Callable[[int], object], seconds: float, rounds: int) -> float:
    """Return the seconds of one run, in the best of some rounds of about so long together."""
    times, taken = 1, 0.0
    while taken < seconds / rounds / 4:
        begin = time.perf_counter()
        work(times)
        taken = time.perf_counter() - begin
        times *= 2
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work(times)
        found.append((time.perf_counter() - begin) / times)
    return min(found)


def peak(dtype: str, machine: Machine, seconds: float, rounds: int) -> float:
    """Return the flop/s of FMAs that wait for nothing."""
    many, trips = machine.vector_registers * 3 // 4, 64
    run = _fma(dtype, machine.vector_bits, many)
    flops = 2.0 * machine.vector_bits / 8 / np.dtype(dtype).itemsize * many * trips
    return flops / best(lambda times: run(trips * times, 0.5, 1.0), seconds, rounds)


_fma = cache(multiply_adds)


def measured(
    spec: str, dtype: str, extents: Sequence[int], seconds: float
) -> list[tuple[int, dict[str, float]]]:
    """Return for each extent the share of the peak of each way of computing."""
    found = []
    for extent in extents:
        case = prepared(spec, extent, dtype)
        top = 0.0
        for name, work in (("kernels", case.kernels), ("call", case.call)):
            top = max(top, peak(dtype, case.plan.machine, seconds / 4, 3))
            case.seconds[name] = best(work, seconds, 7)
        found.append((extent, case.shares(top)))
    return found


def draw(results: dict[tuple[str, str], list[tuple[int, dict[str, float]]]], path: str) -> None:
    """Draw shares of the peak against the extent, a panel for each dtype and direction."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(results), 3.6), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for axes, ((direction, dtype), rows) in zip(panels, results.items(), strict=True):
        for name in GOALS:
            axes.plot([row[0] for row in rows], [row[1][name] for row in rows], ".-", label=name)
        axes.set(
            title=f"{direction}, {dtype}", xlabel="I", ylabel="share of the peak", ylim=(0, 1.05)
        )
        axes.legend()
    figure.savefig(path)


def main(
    arguments: Sequence[str] | None = None,
) -> dict[tuple[str, str], list[tuple[int, dict[str, float]]]]:
    """Print a table for each direction and dtype."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extents", type=int, nargs="*", default=EXTENTS)
    parser.add_argument("--dtypes", nargs="*", default=["float64", "float32"])
    parser.add_argument("--seconds", type=float, default=0.02, help="of measuring each figure")
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args(arguments)
    results = {}
    for direction, spec in SPECS.items():
        for dtype in options.dtypes:
            rows = results[direction, dtype] = measured(
                spec, dtype, options.extents, options.seconds
            )
            print(f"\n{direction}, {dtype}\n\n| I | kernels | call | |\n| --: | --: | --: | --- |")
            for extent, shares in sorted(rows, key=lambda row: row[1]["call"]):
                bar = "█" * round(20 * shares["kernels"])
                print(f"| {extent} | {shares['kernels']:.2f} | {shares['call']:.2f} | {bar} |")
            for name, goal in GOALS.items():
                under = [extent for extent, shares in rows if shares[name] < goal]
                print(f"\n{name}: {len(under)} of {len(rows)} under {goal:.0%} of the peak")
    if options.plot:
        draw(results, options.plot)
    return results


if __name__ == "__main__":
    main()
