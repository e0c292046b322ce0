"""Epilogues as tables: the program of a chain, and where its operands are in each box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Self

import numpy as np

from tilesolve.contractions.epilogue import Epilogue, Operation
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS
from tilesolve.kernels.runtime import epilogue_fields as fields
from tilesolve.packing.offset_tables import count_steady
from tilesolve.packing.offsets import Integers
from tilesolve.planning.layout_policy import Strides
from tilesolve.running.schedule import Boxes, Schedule

_CODES = {
    "*": fields.SCALE,
    "+": fields.ADD,
    "relu": fields.RELU,
    "relu6": fields.RELU,
    "clip": fields.CLIP,
    "leaky": fields.LEAKY,
    "sigmoid": fields.SIGMOID,
    "tanh": fields.TANH,
    "silu": fields.SILU,
    "gelu": fields.GELU,
    "gelu-tanh": fields.GELU_TANH,
}
_LIMITS = {"relu": (0.0, inf), "relu6": (0.0, 6.0)}


@dataclass(frozen=True, slots=True, eq=False)
class EpilogueTables:
    """What the pass over C reads, see `epilogue_fields`.

    Parameters
    ----------
    program
        The chain.
    records
        For each box the words of each operand.
    kept
        The tables that these have addresses of.
    """

    program: Integers
    records: Integers
    kept: Sequence[Integers]

    @classmethod
    def of(
        cls,
        epilogue: Epilogue,
        schedule: Schedule,
        boxes: Boxes,
        start: Mapping[str, int],
        strides: Sequence[Strides],
    ) -> Self:
        """Return the tables of a part.

        Parameters
        ----------
        epilogue
            The chain.
        schedule, boxes
            How the part is walked.
        start
            Where each letter of the part begins.
        strides
            Bytes along each letter, of each operand.
        """
        last = schedule.policy.last
        kept: list[Integers] = []
        records = np.zeros((len(boxes), len(strides), fields.OPERAND_WORDS), np.int64)
        letters = list(schedule.problem.sizes)
        for number, given in enumerate(strides):
            of = {i: -step if i in last else step for i, step in given.items()}
            begin = sum(step * start.get(i, 0) for i, step in given.items())
            begin += sum(step * last.get(i, 0) for i, step in given.items())
            steps = np.array([of.get(i, 0) for i in letters], np.int64)
            records[:, number, fields.BEGIN] = begin + boxes.corners @ steps
            kinds = np.array([_tables(schedule, sizes, of, kept) for sizes in boxes.sizes])
            records[:, number, 1:] = kinds[boxes.kinds]
        return cls(_program(epilogue), records, kept)


def _tables(
    schedule: Schedule, sizes: Mapping[str, int], of: Strides, kept: list[Integers]
) -> list[int]:
    """Return the addresses of an operand's offsets in a kind of box, and keep these."""
    rows, columns, batches = (
        schedule.offsets(role, sizes, of) for role in (ROWS, COLUMNS, BATCHES)
    )
    found = [rows, columns, batches, count_steady(rows), count_steady(columns)]
    kept.extend(found)
    return [table.ctypes.data for table in found]


def _program(epilogue: Epilogue) -> Integers:
    """Return a chain as integers."""
    found = np.zeros(fields.SIZE + fields.STEP_WORDS * len(epilogue.operations), np.int64)
    found[fields.STEPS] = len(epilogue.operations)
    operands = 0
    for step, one in zip(
        found[fields.SIZE :].reshape(-1, fields.STEP_WORDS), epilogue.operations, strict=True
    ):
        step[fields.CODE] = _CODES[one.name]
        if one.takes_operand:
            step[fields.OPERAND] = operands
            operands += 1
        else:
            numbers = np.array(_numbers(one), np.float64)
            step[fields.FIRST_NUMBER : fields.FIRST_NUMBER + 2] = numbers.view(np.int64)
    return found


def _numbers(one: Operation) -> tuple[float, float]:
    """Return the two numbers of a step."""
    given = _LIMITS.get(one.name, (*one.numbers, 0.0, 0.0))
    return given[0], given[1]
