"""Calls of the same arrays again and again: compiled code makes one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesolve.kernels.runtime.run_list import RUN_WORDS, run_list
from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import Array
from tilesolve.running.repeat_call import RepeatCall
from tilesolve.system.cancellation import stop_address


@dataclass(frozen=True, slots=True, eq=False)
class FixedCall:
    """A call of arrays that stay where they are.

    Parameters
    ----------
    repeat
        What is done for such arrays.
    arrays
        The outputs first.
    numbers
        The factors that it is given.
    """

    repeat: RepeatCall
    arrays: tuple[Array, ...]
    numbers: tuple[float, ...]


class CallList:
    """Calls that compiled code makes without going back to Python in between.

    Parameters
    ----------
    calls
        In the order in which they are made.
    """

    __slots__ = ("_calls", "_kept", "_size", "_words")

    def __init__(self, calls: Sequence[FixedCall]) -> None:
        rows = [np.array([id(one) for one in call.arrays], np.int64) for call in calls]
        numbers = [np.array(call.numbers, np.float64) for call in calls]
        words = [
            (call.repeat.code, *(part.ctypes.data for part in (call.repeat.told, row, values)))
            for call, row, values in zip(calls, rows, numbers, strict=True)
        ]
        self._words = np.array(words, np.int64).reshape(-1, RUN_WORDS)
        self._size = max((call.repeat.workspace_bytes for call in calls), default=0)
        self._calls, self._kept = tuple(calls), (rows, numbers)

    def __len__(self) -> int:
        return len(self._calls)

    def run(self) -> int:
        """Make the calls; return how many came to their end, fewer if one failed or all are to end.

        No other thread may use the arrays meanwhile.
        """
        memory = workspace(self._size)
        done: int = run_list(
            self._words.ctypes.data, len(self._words), memory.address, stop_address()
        )
        return done
