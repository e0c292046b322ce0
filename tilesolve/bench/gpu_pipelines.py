"""Pipelines on a GPU in each way of fusing stages, beside other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilesolve.bench.gpu_cases import OURS, Contest
from tilesolve.bench.pipelines import CASES, Pipeline
from tilesolve.machine.device import Device
from tilesolve.pipelines.device_groups import DeviceFusion, solve_stages
from tilesolve.plans.device_base import DeviceSolved

_NAMES = "blur unsharp harris maxfilter interpolate pyramid_blend stencil_chain"
PIPELINES = tuple(CASES[name] for name in _NAMES.split())
"""Those that all systems of the thesis have."""

FUSIONS: Mapping[str, DeviceFusion] = {
    OURS: "nested",
    f"{OURS} in groups": "groups",
    f"{OURS} one by one": "none",
}
"""How stages run together, by the names of contenders."""


class PipelineLab(Protocol):
    """What is used of a `Lab`."""

    device: Device

    def send(self, array: NDArray[Any]) -> Any:
        """Return an array of NumPy's on the card."""

    def fetch(self, array: Any) -> NDArray[Any]:
        """Return an array of the card's as one of NumPy's."""

    def bind(self, solution: DeviceSolved, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """Return what runs a solution's kernels on arrays on the card."""

    def list_function_peers(
        self, function: FunctionType, arrays: Sequence[Any]
    ) -> dict[str, Callable[[], object]]:
        """Return what else computes a function of NumPy's arrays, by name."""


def set_up_pipeline(lab: PipelineLab, case: Pipeline) -> Contest:
    """Return a pipeline's contest: each result of ours is compared with NumPy's."""
    assert isinstance(case.function, FunctionType)
    given, computation = case.arrays(), case.computation
    wanted = case.function(*(one.copy() for one in given.values()))
    wanted = np.asarray(wanted[0] if isinstance(wanted, tuple) else wanted)
    known = {name: lab.send(one) for name, one in {**case.constants, **given}.items()}
    held = {name: known[name] for name in computation.inputs}
    runs, outs, predicted = dict[str, Callable[[], object]](), dict[str, Any](), dict[str, float]()
    for name, fusion in FUSIONS.items():
        solution = solve_stages(computation, lab.device, fusion)
        outs[name], predicted[name] = lab.send(np.zeros_like(wanted)), solution.seconds
        runs[name] = lab.bind(solution, {**held, computation.outputs[0]: outs[name]})
    peers = lab.list_function_peers(case.function, [known[name] for name in given])

    def error() -> float:
        most = max(float(np.abs(wanted.astype(float)).max()), 1e-300)
        found = (lab.fetch(one).astype(float) - wanted for one in outs.values())
        return max(float(np.abs(one).max()) for one in found) / most

    return Contest(runs | peers, error, predicted[OURS])
