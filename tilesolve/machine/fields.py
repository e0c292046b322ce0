"""Checks of the fields of a machine, each by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from tilesolve.contractions.argument_kinds import check_kind, check_kinds
from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.microkernel_costs import Catalogue
from tilesolve.machine.costs import Costs
from tilesolve.machine.level import (
    Peak,
    Source,
    check_count,
    check_levels,
    check_name,
    check_positive,
    check_rate,
)


def check_fields(values: Mapping[str, Any]) -> None:
    """Refuse values of a `Machine`'s fields that are impossible, or of another kind.

    Raises
    ------
    MachineError
        That names the field.
    """
    where = f"machine {values['name']!r}"
    for field in ("name", "fingerprint"):
        check_name(where, field, values[field], empty=True)
    check_levels(where, values["levels"])
    check_rate(where, "frequency", values["frequency"])
    check_positive(where, "fma_rate", values["fma_rate"])
    for field in ("cores", "threads_per_core", "vector_bits", "vector_registers", "fma_latency"):
        check_count(where, field, values[field])
    if values["vector_bits"] & (values["vector_bits"] - 1):
        raise MachineError(
            f"{where}: vector_bits must be a power of two, got {values['vector_bits']}"
        )
    parts: dict[str, type[Any]] = {"peaks": Peak, "sources": tuple, "catalogues": Catalogue}
    for field, kind in parts.items():
        what = f"{where}: {field}"
        check_kinds(values[field], kind, what, kind.__name__, MachineError)
    check_kind(values["costs"], Costs, f"{where}: costs", "Costs", MachineError)
    if not values["peaks"]:
        raise MachineError(f"{where}: no arithmetic peak is given in peaks")
    for pair in values["sources"]:
        if len(pair) != 2 or pair[1] not in get_args(Source):
            raise MachineError(
                f"{where}: an entry of sources must be a figure and the source of it, one of "
                f"{', '.join(get_args(Source))}, got {pair!r:.80}"
            )
