"""Tiles for GPUs judged without one: priced by NVIDIA's estimator beside its own choice.

It replaces no measurement: it says whether decisions are those that NVIDIA would make.
"""

from __future__ import annotations

import importlib.util
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilesolve.bench.gpu_estimator import estimate_products
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.product import Product
from tilesolve.gpu.strategy import list_tilings, rank_tilings
from tilesolve.gpu.tilings import Tiling, score_tilings
from tilesolve.machine.device import Device
from tilesolve.system.subprocess_call import run_in_process
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration

GPUS = {"a100": "A100_SXM_80GB", "h100": "H100_SXM", "h200": "H200_SXM"}
"""What NVIDIA's estimator calls devices."""

SHAPES, SEED = 200, 62
"""Products that are drawn, and from which numbers."""

SIDES = (6.0, 13.0)
"""Powers of two between which their sides are drawn, evenly in the power."""

TARGETS = ("CUTLASS", "CUTLASS3")
"""Whose kernels it prices: those of `mma.sync`, and of `wgmma`."""

LINE = 128
"""Bytes of a line in shared memory of kernels that it knows."""

ASKED = 8
"""Our best tilings of a product, of which the first one that it knows is judged."""

COMPARED = 40
"""Tilings of each product that both put in order."""

SECONDS = 300.0
"""After which the estimator is ended."""

LIMITS = (1.05, 1.15)
"""Ratios to NVIDIA's choice that are counted."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A product: our tiling and NVIDIA's choice, both by its estimator.

    `own` are the seconds of its choice, `given` those of our tiling, 0 if it does not know that or
    the next ones; so many better ones it does not know, which are `skipped`;
    `agreement` is the rank correlation of prices of drawn tilings, NaN where one side takes all for
    equal; `predicted` are the seconds that we predict.
    """

    sides: tuple[int, int, int]
    tiling: Tiling
    own: float
    given: float
    skipped: int
    choice: tuple[int, ...]
    agreement: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Seconds of our tiling over those of its choice."""
        return self.given / self.own


def draw_shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    """Return sides of products, multiples of 8.

    Examples
    --------
    >>> shapes = draw_shapes(50, 1)
    >>> min(map(min, shapes)) >= 64, max(map(max, shapes)) <= 8192
    (True, True)
    """
    rng = random.Random(seed)
    sides = [[round(2 ** rng.uniform(*SIDES) / 8) * 8 for _ in range(3)] for _ in range(count)]
    return [(rows, columns, sums) for rows, columns, sums in sides]


def decide(
    device: Device, shapes: Sequence[tuple[int, int, int]], seed: int, *, grouped: bool = False
) -> list[Decision]:
    """Return decisions about products of float16, judged by NVIDIA's estimator.

    Kernels are those of `mma.sync`, or of `wgmma`: of these it knows no steps of half a line, and
    adds parts of sums up in another way, so that both are left out.

    Raises
    ------
    BenchmarkError
        If the estimator is missing, fails, or does not know the device.
    """
    if importlib.util.find_spec("nvMatmulHeuristics") is None:
        raise BenchmarkError("gpu-decisions takes NVIDIA's heuristics: tilesolve[gpu-test]")
    if device.name not in GPUS:
        raise BenchmarkError(f"gpu-decisions knows {', '.join(GPUS)}, not {device.name}")
    rng, asked, ours = random.Random(seed), [], []
    for sides in shapes:
        problem = Problem.of("ij-ik-kj", dict(zip("ijk", sides, strict=True)), "float16")
        product = Product.of(problem)
        tilings = list(list_tilings(product, device, "float16", grouped=grouped))
        if grouped:
            tilings = [one for one in tilings if one.parts == 1 and one.form.pitch(0) == LINE]
        best = rank_tilings(product, device, tilings)[:ASKED]
        drawn = rng.sample(tilings, min(COMPARED, len(tilings)))
        scores = score_tilings(product, device, [*best, *drawn])
        ours.append((best, scores))
        asked.append((sides, [_numbers(one) for one in (*best, *drawn)]))
    theirs = _ask(device, asked, TARGETS[grouped])
    found = []
    for sides, (best, scores), one in zip(shapes, ours, theirs, strict=True):
        given, count = np.array(one["given"]), len(best)
        at = int(np.argmax(given[:count] > 0))
        known = np.flatnonzero(given[count:] > 0) + count
        agreement = _correlate(scores[known], given[known])
        choice, own = tuple(one["choice"]), float(one["own"])
        told = own, float(given[at]), at, choice, agreement, float(scores[at])
        found.append(Decision(sides, best[at], *told))
    return found


def _numbers(tiling: Tiling) -> list[int]:
    """Return a tiling as the estimator's process takes it."""
    form = tiling.form
    sides = [form.rows, form.columns, form.depth, *form.read_tile]
    return [*sides, form.stages, tiling.parts, tiling.group]


def _ask(device: Device, products: Sequence[object], target: str) -> list[dict[str, Any]]:
    """Return what the estimator says."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        request = {"gpu": GPUS[device.name], "letters": "HSH", "target": target}
        try:
            run_in_process(
                estimate_products,
                json.dumps({**request, "answer": str(answer), "products": products}),
                SECONDS,
            )
            found: list[dict[str, Any]] = json.loads(answer.read_text())
        except (ChildProcessError, TimeoutError, OSError) as error:
            raise BenchmarkError(f"NVIDIA's estimator fails on {device.name}: {error}") from error
    return found


def _correlate(one: np.ndarray, other: np.ndarray) -> float:
    """Return the rank correlation of two lists of numbers; NaN where there is none."""
    from scipy.stats import spearmanr

    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(spearmanr(one, other).statistic)


def write_decisions(
    device: Device, found: Sequence[Decision], *, grouped: bool = False
) -> list[str]:
    """Return the lines of a report: the largest losses first, then all together."""
    rows = [["product", "ratio", "ours", "NVIDIA's", "block", "its block"]]
    for one in sorted(found, key=lambda one: -one.ratio)[:10]:
        form = one.tiling.form
        block = f"{form.rows}×{form.columns}×{form.depth}, {one.tiling.parts} parts"
        theirs = f"{'×'.join(map(str, one.choice[:3]))}, {one.choice[-1]} parts"
        times = [format_duration(seconds) for seconds in (one.given, one.own)]
        sides = "×".join(map(str, one.sides))
        rows.append([sides, f"{one.ratio:.2f}", *times, block, theirs])
    known = [one for one in found if one.given > 0]
    ratios = np.array([one.ratio for one in known])
    mean = float(np.exp(np.log(ratios).mean()))
    shares = [f"{(ratios <= limit).mean():.1%} within {limit - 1:.0%}" for limit in LIMITS]
    agreements = np.array([one.agreement for one in found])
    over = _correlate(np.array([o.predicted for o in known]), np.array([o.own for o in known]))
    name = "wgmma" if grouped else "mma.sync"
    return [
        f"{len(found)} products of float16 on {device.name} by {name}, by NVIDIA's estimator "
        f"of CUTLASS; {sum(one.skipped > 0 for one in found)} of our tilings it does not know, for "
        f"which the next ones stand, and {len(found) - len(known)} of these",
        *align_columns(rows),
        f"ours take {mean:.3f} of NVIDIA's choice in the geometric mean; {', '.join(shares)}",
        f"rank correlation of prices: {np.nanmean(agreements):.3f} in the mean over tilings of one "
        f"product, {np.nanmedian(agreements):.3f} in the median; {over:.3f} over products",
    ]
