"""Plans on a GPU beside other libraries: ``python -m tilesolve.bench.gpu --json FILE``.

Correctness comes first; then cases in turn until the time is over. It has not been run on a card.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.bench.gpu_cases import OURS, WARPS, Case, Contest, Outcome
from tilesolve.bench.gpu_pipelines import PIPELINES, set_up_pipeline
from tilesolve.bench.pipelines import count_work, replace_numpy
from tilesolve.bench.results.performance_page import write_section
from tilesolve.bench.results.provenance import collect_provenance
from tilesolve.bench.results.record_tables import render_tables
from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.contractions.errors import BenchmarkError, TilesolveError
from tilesolve.contractions.suites import suite
from tilesolve.gpu.card import Card
from tilesolve.gpu.product import Product
from tilesolve.gpu.running import DeviceRunner
from tilesolve.gpu.strategy import can_group, choose_arithmetic, solve_for_device
from tilesolve.machine.device import Device
from tilesolve.machine.model import Machine
from tilesolve.plans.device_base import DeviceSolved
from tilesolve.system.files import write_atomically
from tilesolve.system.tables import Table

SECONDS = 450.0
"""After which no further case begins."""

SIDES = (1024, 2048, 4096, 8192)
"""Of products."""

CASE_SECONDS, MOST_ROUNDS = 0.2, 100
"""How long a contender is timed, and in how many rounds at most."""

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8")
"""Of drawn products."""

ERRORS = dict(zip(DTYPES, (2e-2, 1e-1, 1e-4, 1e-10, 0.0), strict=True)) | {"uint16": 0.0}
"""By how much a result may differ from another, of the largest element."""


class Lab:
    """A card with our kernels and other libraries: tests have one without a card.

    Raises
    ------
    DeviceError
        If there is no card.
    BenchmarkError
        If there is no PyTorch, which has the arrays.
    """

    def __init__(self, device: Device | None = None) -> None:
        self.card = Card()
        self.device = device or self.card.nearest()
        try:
            self.torch = import_module("torch")
        except ImportError as error:
            raise BenchmarkError("the benchmark of GPUs takes PyTorch for its arrays") from error
        self.cutensor: Any = None
        self.cupy: Any = None
        with suppress(ImportError):
            self.cupy = import_module("cupy")
            self.cutensor = import_module("cupyx.cutensor")

    def draw(self, shape: Sequence[int], dtype: str) -> Any:
        """Return an array of random numbers on the card."""
        kind = getattr(self.torch, dtype)
        if dtype.startswith("int"):
            return self.torch.randint(-128, 128, shape, device="cuda", dtype=kind)
        return self.torch.randn(shape, device="cuda").to(kind)

    def send(self, array: NDArray[Any]) -> Any:
        """Return an array of NumPy's on the card."""
        return self.torch.from_numpy(np.ascontiguousarray(array)).cuda()

    def fetch(self, array: Any) -> NDArray[Any]:
        """Return an array of the card's as one of NumPy's."""
        return np.asarray(array.cpu().numpy())

    def bind(self, solution: DeviceSolved, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """Return what runs a solution's kernels on arrays on the card."""
        return DeviceRunner(self.device, solution.launches).bind(arrays)

    def run(
        self, product: Product, first: Any, second: Any, out: Any, *, grouped: bool = True
    ) -> tuple[Any, float]:
        """Return what computes a product, and the predicted seconds."""
        solution = solve_for_device(product, self.device, grouped=grouped)
        return self.bind(solution, product.name_arrays(first, second, out)), solution.seconds

    def list_function_peers(
        self, function: FunctionType, arrays: Sequence[Any]
    ) -> dict[str, Callable[[], object]]:
        """Return what else computes a function of NumPy's arrays, by name."""
        compiled = self.torch.compile(self.torch.compiler.wrap_numpy(function))
        found: dict[str, Callable[[], object]] = {"torch.compile": lambda: compiled(*arrays)}
        if self.cupy is not None:
            own, given = (
                replace_numpy(function, self.cupy),
                list(map(self.cupy.from_dlpack, arrays)),
            )
            fused = self.cupy.fuse()(own)
            found |= {"CuPy": lambda: own(*given), "CuPy fused": lambda: fused(*given)}
        return found

    def list_peers(self, product: Product, first: Any, second: Any, out: Any) -> dict[str, Any]:
        """Return what else computes a product and returns it, by name; `out` is for its result."""
        letters = ["".join(one.letters) for one in product.problem.spec.tensors]
        if product.problem.dtype == "int8":
            return {"cuBLAS": lambda: self.torch._int_mm(first, second.t())}
        text = f"{letters[1]},{letters[2]}->{letters[0]}"
        found = {"torch": lambda: self.torch.einsum(text, first, second)}
        if letters == ["ij", "ik", "kj"]:
            found = {"cuBLAS": lambda: self.torch.matmul(first, second, out=out)}
        elif self.cutensor is not None:
            a, b, c = (self.cupy.from_dlpack(one) for one in (first, second, out))
            given = a, letters[1], b, letters[2], 0.0, c, letters[0]
            found["cuTENSOR"] = lambda: (self.cutensor.contraction(1.0, *given), out)[1]
        return found

    def compare(self, one: Any, other: Any) -> float:
        """Return the largest difference, of the largest element."""
        wide = one.double(), other.double()
        return float((wide[0] - wide[1]).abs().max() / wide[1].abs().max().clamp(min=1e-300))

    def time(self, run: Callable[[], object]) -> float:
        """Return the seconds of a call, over as many rounds as the time allows."""
        once = self.card.time(run, 1)
        return self.card.time(run, max(1, min(MOST_ROUNDS, int(CASE_SECONDS / once))))


def list_cases(lab: Lab) -> Iterator[Case]:
    """Yield drawn products, which show what is wrong, then products, pipelines and TCCG."""
    rng = random.Random(0)
    for dtype in DTYPES:
        for spec in ("ij-ik-jk",) if dtype == "int8" else ("ij-ki-kj", "abc-bda-dc", "bij-bik-bkj"):
            sizes = {x: 8 * rng.randrange(3, 30) for x in sorted(set(spec) - {"-"})}
            yield _contraction(lab, "drawn", spec, DeviceProblem.of(spec, sizes, dtype))
    for dtype in ("float16", "bfloat16", "int8", "float64"):
        spec = "ij-ik-jk" if dtype == "int8" else "ij-ik-kj"
        for side in SIDES:
            problem = DeviceProblem.of(spec, side, dtype)
            yield _contraction(lab, "products", str(side), problem)
    for pipeline in PIPELINES:
        set_up = partial(set_up_pipeline, lab, pipeline)
        work = count_work(pipeline.computation)
        yield Case("pipelines", pipeline.name, pipeline.dtype, work, set_up)
    for dtype in ("float64", "float32"):
        for name, one in suite("tccg").items():
            problem = DeviceProblem.of(one.spec, one.sizes, dtype)
            yield _contraction(lab, "tccg", name, problem)


def _contraction(lab: Lab, group: str, name: str, problem: DeviceProblem) -> Case:
    product = Product.of(problem)

    def set_up() -> Contest:
        first, second = (lab.draw(problem.shape(at), problem.dtype) for at in (1, 2))
        out, other = (lab.draw(problem.shape(0), product.output_dtype) for _ in range(2))
        run, predicted = lab.run(product, first, second, out)
        results: dict[str, Any] = {}

        def keep(name: str, peer: Callable[[], Any]) -> None:
            results[name] = peer()

        peers = lab.list_peers(product, first, second, other)
        arithmetic = choose_arithmetic(problem, lab.device, tf32=False)
        if can_group(product, lab.device, arithmetic):
            third = lab.draw(problem.shape(0), product.output_dtype)
            warps, _ = lab.run(product, first, second, third, grouped=False)
            peers[WARPS] = lambda: (warps(), third)[1]
        runs = {OURS: run} | {name: partial(keep, name, peer) for name, peer in peers.items()}
        return Contest(
            runs,
            lambda: max((lab.compare(out, one) for one in results.values()), default=0.0),
            predicted,
        )

    return Case(group, name, problem.dtype, float(problem.flops), set_up)


def measure(lab: Lab, case: Case) -> Outcome:
    """Return what was found of a case: all results first, then times.

    Other libraries that fail at a case have no time there.
    """
    try:
        contest, able = case.set_up(), dict[str, Callable[[], object]]()
        for name, run in contest.runs.items():
            with nullcontext() if name.startswith(OURS) else suppress(Exception):
                run()
                able[name] = run
        if not (error := contest.error()) <= ERRORS[case.dtype]:
            return Outcome(case, fault=f"wrong by {error:.2g} of the largest element")
        seconds = {name: lab.time(run) for name, run in able.items()}
    except (TilesolveError, RuntimeError) as error:  # PyTorch raises the latter
        return Outcome(case, fault=f"{error!s:.200}")
    return Outcome(case, contest.predicted, seconds)


def write_report(found: Sequence[Outcome], left: int) -> Iterator[str]:
    """Yield a report's lines: what failed, then cases, the largest loss first, and means."""
    yield from (f"{one.case}: {one.fault}" for one in found if one.fault)
    done = sorted((one for one in found if not one.fault), key=lambda one: one.ratio)
    rows = []
    for one in done:
        seconds, best = one.seconds, one.best or OURS
        rates = [f"{one.case.flops / seconds[name] / 1e12:.3g}" for name in (OURS, best)]
        share = f"{one.predicted / seconds[OURS]:.2f}"
        warps = f"{one.find_ratio(WARPS):.2f}" if WARPS in seconds else "-"
        rows.append((str(one.case), f"{one.ratio:.2f}", warps, rates[0], share, best, rates[1]))
    heads = "ratio", WARPS, "TFLOP/s", "of predicted", "best other", "its TFLOP/s"
    yield from Table("", {"case": "left", **dict.fromkeys(heads, "right")}, rows).markdown()
    groups: dict[str, list[float]] = {}
    for one in done:
        name = f"{one.case.group} {one.case.dtype}"
        if one.best:
            groups.setdefault(name, []).append(one.ratio)
        if one.best and WARPS in one.seconds:
            groups.setdefault(f"{name} {WARPS}", []).append(one.find_ratio(WARPS))
    for name, ratios in groups.items():
        mean = np.exp(np.log(ratios).mean())
        yield f"{name}: {mean:.3f} times as fast as the best other in the geometric mean"
    modes = dict.fromkeys(x for one in done for x in one.seconds if x.startswith(f"{OURS} "))
    for mode in modes:
        ratios = [one.seconds[OURS] / one.seconds[mode] for one in done if mode in one.seconds]
        mean, count = np.exp(np.log(ratios).mean()), sum(ratio < 1 for ratio in ratios)
        yield f"{mode}: {OURS} takes {mean:.3f} of its time, and less in {count} of {len(ratios)}"
    yield f"{len(done)} cases measured, {len(found) - len(done)} failed, {left} left for time"


def sweep(lab: Lab, cases: Sequence[Case], file: Path, seconds: float) -> list[Outcome]:
    """Return what was found of cases until the time is over; keep it in a file as it comes."""
    begin, found = time.monotonic(), list[Outcome]()
    for case in cases:
        if time.monotonic() - begin > seconds:
            break
        found.append(measure(lab, case))
        cases_found = [
            {"case": str(one.case), "flops": one.case.flops, "predicted": one.predicted}
            | {"seconds": dict(one.seconds), "fault": one.fault}
            for one in found
        ]
        document = {"device": lab.device.to_toml(), "cases": cases_found}
        write_atomically(file, json.dumps(document, indent=1))
    return found


def main(arguments: Sequence[str] | None = None, lab: Lab | None = None) -> int:
    """Measure, and write the report; return 1 if anything failed, 2 where there is no card."""
    parser = argparse.ArgumentParser(description="Measure plans on this computer's GPU.")
    parser.add_argument("--json", type=Path, required=True, help="keep results here")
    parser.add_argument("--page", type=Path, help="write a section of this folder of pages")
    parser.add_argument("--machine", help="a device by name or path; else the one most like it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all cases")
    given = parser.parse_args(arguments)
    try:
        lab = lab or Lab(Device.load(given.machine) if given.machine else None)
    except TilesolveError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    cases = list(list_cases(lab))
    found = sweep(lab, cases, given.json, given.seconds)
    lines = list(write_report(found, len(cases) - len(found)))
    print("\n".join(lines))
    if given.page:
        command = shlex.join(["python", "-m", "tilesolve.bench.gpu", *(arguments or sys.argv[1:])])
        provenance = {"GPU": lab.card.name, **collect_provenance(Machine.load(), command)}
        page = given.page / f"{lab.card.name.lower().replace(' ', '-')}.md"
        write_section(page, "gpu", render_tables("gpu", lines, provenance), lab.card.name)
    return 1 if any(one.fault for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
