"""Epilogues as tables: the program of a chain, and where its operands are in each box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS
from tilesolve.kernels.runtime import epilogue_fields as fields
from tilesolve.packing.offset_tables import count_steady
from tilesolve.packing.offsets import Integers
from tilesolve.planning.layout_policy import Strides
from tilesolve.running.epilogue_code import code_address
from tilesolve.running.kernel_epilogue import KernelEpilogue
from tilesolve.running.schedule import Boxes, Schedule


@dataclass(frozen=True, slots=True, eq=False)
class EpilogueTables:
    """What the pass over C reads, see `epilogue_fields`.

    Of halves C is the last operand, which the last step writes.

    Parameters
    ----------
    program
        The chain.
    records
        For each box the words of each operand.
    in_kernels
        What microkernels do of the chain; None for nothing.
    later
        The program of what comes after that; None if nothing does.
    kept
        The tables that these have addresses of.
    """

    program: Integers
    records: Integers
    in_kernels: KernelEpilogue | None
    later: Integers | None
    kept: Sequence[Integers]

    @classmethod
    def of(
        cls,
        epilogue: Epilogue | None,
        schedule: Schedule,
        boxes: Boxes,
        start: Mapping[str, int],
        strides: Sequence[Strides],
    ) -> Self:
        """Return the tables of a part.

        Parameters
        ----------
        epilogue
            The chain; None for nothing but rounding.
        schedule, boxes
            How the part is walked.
        start
            Where each letter of the part begins.
        strides
            Bytes along each letter, of each operand, and of C where its elements are halves.
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
        dtype, later = schedule.problem.dtype, None
        in_kernels = KernelEpilogue.of(epilogue, schedule, boxes, strides)
        if epilogue and in_kernels and in_kernels.operations < len(epilogue.operations):
            rest = Epilogue(epilogue.operations[in_kernels.operations :])
            later = _program(rest, dtype, in_kernels.operands)
        return cls(_program(epilogue, dtype), records, in_kernels, later, kept)

    def adding_program(self, dtype: str, factor: float) -> Integers:
        """Return the program with a step before all others that adds a multiple of C, of halves."""
        from tilesolve.contractions.epilogue_terms import FIRST, OPERAND, SUM, Step

        step = self.program[-fields.STEP_WORDS :].copy()  # it has C as its operand, too
        step[fields.CODE] = code_address(Step(SUM + FIRST * OPERAND), dtype)
        step[fields.FIRST_NUMBER] = np.array(factor, np.float64).view(np.int64)
        head, steps = self.program[: fields.SIZE].copy(), self.program[fields.SIZE :]
        head[fields.STEPS] += 1
        return np.concatenate([head, step, steps])


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


def _program(epilogue: Epilogue | None, dtype: str, operands: int = 0) -> Integers:
    """Return a chain as integers; of halves with the step that rounds what it computes to C.

    Its first operand has the given number.
    """
    from tilesolve.contractions.epilogue_terms import WRITE, Step, list_steps

    steps = []
    for one in list_steps(epilogue) if epilogue else ():
        step = np.zeros(fields.STEP_WORDS, np.int64)
        step[fields.OPERAND] = operands if one.takes_operand else -1
        operands += one.takes_operand
        step[fields.CODE] = code_address(one, dtype)
        numbers = np.array(one.numbers, np.float64).view(np.int64)
        step[fields.FIRST_NUMBER : fields.FIRST_NUMBER + len(numbers)] = numbers
        steps.append(step)
    if is_half(dtype):
        code, dtype = code_address(Step(WRITE), dtype), summed_dtype(dtype)
        steps.append(np.array([code, operands, 0, 0], np.int64))
    head = np.zeros(fields.SIZE, np.int64)
    head[fields.STEPS], head[fields.ITEM_BYTES] = len(steps), np.dtype(dtype).itemsize
    return np.concatenate([head, *steps])
