"""Run lists: calls that were prepared, whose arrays stay where they are, one after another."""

from __future__ import annotations

from tilesolve.kernels.runtime.compiled import INT, as_pointer, compiled, result
from tilesolve.packing.sizes import WORD_BYTES

RUN_WORDS = 4
"""Words of a run: the address of its code, see `guard_fields.RUN`, and what that takes before the
workspace."""


@compiled(INT, INT, INT, INT, returns=INT)
def run_list(runs, count, memory, stop):
    """Run one after another until one fails or the calls are to end; return how many have run.

    Parameters
    ----------
    runs
        Address of `RUN_WORDS` for each.
    count
        How many there are.
    memory
        Address of a workspace for all of them.
    stop
        Address of the word that is not 0 once they are to end.
    """
    for number in range(count):
        words = as_pointer(runs + number * RUN_WORDS * WORD_BYTES)
        if as_pointer(stop)[0]:
            return number
        if not result(words[0], words[1], words[2], words[3], memory):
            return number
    return count
