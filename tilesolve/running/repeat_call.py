"""Calls like a recent one: compiled code tells them by their arrays, and computes at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tilesolve.kernels.runtime import call_fields, guard_fields, macrokernel
from tilesolve.kernels.runtime.array_guard import MAX_OUTPUTS, describe_arrays
from tilesolve.kernels.runtime.compiled import Compiled, address
from tilesolve.kernels.runtime.contraction_call import MAX_PLACES, run_contraction
from tilesolve.kernels.runtime.fast_call import (
    MAX_NUMBERS,
    MAX_OWN_BYTES,
    addresses,
    describe_number,
    prepare_call,
)
from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.offsets import Integers
from tilesolve.running.task import Task
from tilesolve.system.result_buffers import result_maker


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """What a tensor is in a call.

    Parameters
    ----------
    view
        As the plan sees it.
    given
        The array that the call is given; None where each call has the same.
    """

    view: Array
    given: Array | None = None

    @property
    def is_known(self) -> bool:
        """Return whether compiled code can find the tensor in such a call."""
        if self.given is None:
            return True
        return (
            type(self.given) is np.ndarray
            and self.given.ctypes.data == self.view.ctypes.data
            and self.given.size > 0
        )


@dataclass(frozen=True, slots=True, eq=False)
class RepeatCall:
    """What is done for arrays like given ones, as compiled code can tell: see `kernels.fast_call`.

    Parameters
    ----------
    call
        Computes for such arrays.
    words
        What compiled code compares a call with.
    workspace_bytes
        Bytes of packed copies, and of what else a run needs.
    new
        Returns an array for the first output.
    kept
        What `call` has addresses of, but for the arrays that calls are given: of these it compares
        what they are like. Their dtypes are kept, so that no other ones can be where they are.
    """

    call: Callable[..., Array | None]
    words: Integers
    workspace_bytes: int
    new: Callable[[], Array]
    kept: tuple[object, ...]

    @classmethod
    def of(
        cls,
        code: Compiled,
        told: Integers,
        arrays: Sequence[Array],
        numbers: Sequence[Sequence[int]],
        workspace_bytes: int,
        kept: Sequence[object] = (),
        outputs: int = 1,
        *,
        brief: bool = False,
        new: Callable[[], Array] | None = None,
        names: Sequence[str] = (),
        values: Sequence[float] = (),
    ) -> Self | None:
        """Note what a call is given; None where compiled code could not tell another by it.

        Parameters
        ----------
        code
            What computes, see `guard_fields.RUN`.
        told
            What it is told beside the arrays and the numbers.
        arrays
            That the call is given, the outputs first.
        numbers
            What numbers it takes: `describe_number` for each.
        workspace_bytes
            As of a recent call.
        kept
            What has to stay as long as this does.
        outputs
            How many of the arrays are outputs.
        brief
            Whether a call takes so little time that it keeps Python's lock.
        new
            Returns an array for the first output; if None, one of unknown content.
        names
            Of the numbers, in calls of a plan.
        values
            The numbers of such calls, instead.
        """
        if len(numbers) > MAX_NUMBERS or outputs > MAX_OUTPUTS:
            return None
        if not all(type(one) is np.ndarray and one.size for one in arrays):
            return None
        kinds, same = np.array(numbers, np.int64), np.array(values, np.float64)
        interned = list(map(sys.intern, names))
        places = np.array(list(map(id, interned)), np.int64)
        maker = new or result_maker(arrays[0].shape, arrays[0].dtype)
        words = np.zeros(guard_fields.ARRAYS, np.int64)
        words[guard_fields.RUN : guard_fields.NONE] = [
            *(address(code), told.ctypes.data),
            *(len(numbers), kinds.ctypes.data, brief, places.ctypes.data),
            *(same.ctypes.data if same.size else 0, id(maker)),
            *(workspace_bytes, len(arrays)),
        ]
        words[guard_fields.NONE :] = addresses()
        words = np.concatenate([words, describe_arrays(arrays, outputs)])
        stays = (told, kinds, same, interned, places, [array.dtype for array in arrays], *kept)
        return cls(prepare_call(words), words, workspace_bytes, maker, stays)

    @classmethod
    def of_contraction(
        cls,
        task: Task,
        out: Argument,
        operands: tuple[Argument, Argument],
        others: Sequence[Argument] = (),
        *,
        kept: tuple[object, ...] = (),
    ) -> Self | None:
        """Note what a call of a plan is given; None where compiled code could not tell another.

        Parameters
        ----------
        task
            What the call does.
        out, operands, others
            The output, which is given, both operands, and those of the epilogue.
        kept
            What has to stay as long as this does.
        """
        tensors = out, *operands, *others
        if out.given is None or len(others) > MAX_PLACES:
            return None
        if not all(one.is_known for one in tensors):
            return None
        places = np.array(
            [0 if one.given is not None else one.view.ctypes.data for one in others], np.int64
        )
        told = np.zeros(call_fields.SIZE, np.int64)
        told[: call_fields.MACROKERNEL] = task.words
        told[call_fields.MACROKERNEL] = address(macrokernel.run)
        told[call_fields.KEPT : call_fields.PLACES] = [
            0 if one.given is not None else id(one.view) for one in operands
        ]
        told[call_fields.PLACES] = places.ctypes.data
        told[call_fields.PLACE_COUNT] = len(others)
        same = [one.view for one in tensors if one.given is None]
        arrays = [one.given for one in tensors if one.given is not None]
        stays = (task, same, places, *kept)
        given = told, arrays, _FACTORS, task.workspace_bytes, stays
        return cls.of(run_contraction, *given, values=(1.0, 0.0))

    def run(self, out: Array | None, alpha: complex, beta: complex, *given: object) -> Array | None:
        """Return what a plan gives if its arrays are like these, or nothing if it is another."""
        if out is None:
            if type(beta) is not float or beta:
                return None
            out = self.new()
        size = self.needs_bytes
        return self.call(alpha, beta, workspace(size).bytes if size else None, out, *given)

    @property
    def needs_bytes(self) -> int:
        """Bytes of a workspace that `call` has to be given; 0 where it takes one by itself."""
        return self.workspace_bytes if self.workspace_bytes > MAX_OWN_BYTES else 0


_FACTORS = [describe_number("float64", takes_integers=False) for _ in ("alpha", "beta")]
"""Both factors of a contraction."""
