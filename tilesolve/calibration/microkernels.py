"""Catalogues of microkernels, measured on this computer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesolve.calibration.peak_rate import peak_meter
from tilesolve.contractions.errors import DtypeError, MachineError
from tilesolve.contractions.problem import DTYPES
from tilesolve.kernels.codegen.loaded_code import LoadedCode, LoadedParts
from tilesolve.kernels.codegen.object_code import build
from tilesolve.kernels.microkernel_costs import product_cycles
from tilesolve.kernels.probes.microkernels import measure, usual_shapes
from tilesolve.kernels.progress import Progress, silent
from tilesolve.machine.impossible import peak_of
from tilesolve.machine.kernel_cache import family_of, load_kernels
from tilesolve.machine.model import Machine
from tilesolve.system.files import warn_once

TURN_SECONDS, TURNS = 2e-4, 5
"""Seconds of one turn in which the arithmetic peak is measured, and how many there are."""


def measure_catalogues(
    machine: Machine,
    dtypes: Sequence[str] = DTYPES,
    progress: Progress = silent,
) -> Machine:
    """Return a machine with the microkernels of some dtypes measured on this computer.

    `machine` is this computer, perhaps with narrower vectors than it has; its catalogues of
    other dtypes are kept.

    Raises
    ------
    MachineError
        If the machine was measured on another CPU, or has wider vectors than this one.
    DtypeError
        If there are no kernels of a dtype: those of float32 sum halves.

    Examples
    --------
    >>> [found.dtype for found in measure_catalogues(Machine.detect(), ["float32"]).catalogues]
    ['float32']
    """
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise DtypeError(f"there are kernels of {', '.join(DTYPES)}, got {dtype!r}")
    here = Machine.detect()
    if machine.fingerprint != here.fingerprint:
        raise MachineError(f"machine {machine.name!r} is not this computer: measure it there")
    if machine.vector_bits > here.vector_bits:
        raise MachineError(
            f"machine {machine.name!r} has vectors of {machine.vector_bits} bits, this computer "
            f"of {here.vector_bits}"
        )
    found = {kept.dtype: kept for kept in machine.catalogues}
    for number, dtype in enumerate(dtypes):

        def tell(fraction: float, what: str, number: int = number) -> None:
            progress((number + fraction) / len(dtypes), what)

        tell(0.0, f"{dtype}, compiling")
        family = family_of(dtype, machine)
        peak = _measured_peak(machine, dtype)
        cycles = product_cycles(dtype, family.bits, machine.frequency, peak) if peak else 0.0
        in_place = LoadedCode(build(family, usual_shapes(family)[1:]))
        code = LoadedParts((*load_kernels(family, packed=True).parts, in_place))
        speed = _speed(machine, dtype)
        measured = measure(family, code, machine.frequency, tell, speed, cycles)
        if measured is None:
            _warn(dtype, "all register tiles", "what plans counted with before stays")
            continue
        found[dtype] = measured
        listed = {(tile.vectors, tile.columns) for tile in measured.tiles}
        if missing := [f"{v}x{c}" for v, c in family.tiles if (v, c) not in listed]:
            _warn(dtype, f"register tiles ({', '.join(missing)})", "no plan takes them")
    progress(1.0, "done")
    return machine.replace(catalogues=tuple(found.values()))


def _warn(dtype: str, what: str, effect: str) -> None:
    """Say that figures were refused."""
    warn_once(
        f"{dtype}: {what} seemed faster than the arithmetic peak again and again, and {effect}: "
        "other programs may be using this computer; measure again when it is idle"
    )


def _speed(machine: Machine, dtype: str) -> Callable[[], float]:
    """Return a function that tells what share of its measured peak a core reaches at the moment.

    The best of some short turns counts, as others were disturbed. Without a measured peak the share
    is one.
    """
    peak = _measured_peak(machine, dtype)
    if not peak:
        return lambda: 1.0
    measured = peak_meter(machine, dtype, 1)
    return lambda: max(measured(TURN_SECONDS) for _ in range(TURNS)) / peak


def _measured_peak(machine: Machine, dtype: str) -> float:
    """Return the measured flop/s of a core for the machine's vectors; 0 where there are none."""
    if machine.source("peak") != "measured":
        return 0.0
    return peak_of(machine.peaks, dtype, machine.vector_bits)
