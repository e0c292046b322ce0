"""Where the code of epilogues' steps is: each is compiled for a dtype when it is first used."""

from __future__ import annotations

from functools import cache

from llvmlite import ir

from tilesolve.contractions.epilogue_terms import reads_operand
from tilesolve.contractions.half_precision import summed_dtype
from tilesolve.contractions.statements.terms import Term
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu, compile_module
from tilesolve.kernels.objects import load_object, object_path
from tilesolve.system.locks import make_lock

_SYMBOL = "step"
_lock = make_lock()


def step_address(term: Term, dtype: str) -> int:
    """Return where the code of a step is, for C of a dtype.

    Examples
    --------
    >>> from tilesolve.contractions.epilogue_terms import SUM
    >>> step_address(-SUM, "float16") == step_address(-SUM, "float32")
    True
    """
    read = dtype if reads_operand(term) else summed_dtype(dtype)
    with _lock:
        return _load_step(term, read).address(_SYMBOL)


@cache
def _load_step(term: Term, dtype: str) -> LoadedCode:
    """Return the code of a step: from memory, from disk, or compiled now."""
    cpu = TargetCpu.here()

    def build() -> bytes:
        from tilesolve.kernels.codegen.epilogue_steps import emit_step  # most steps are on disk

        module = ir.Module(name="tilesolve")
        emit_step(module, _SYMBOL, term, dtype, cpu.bits)
        return compile_module(module, cpu, unroll=True)

    return load_object(object_path("functions", f"step-{dtype}", repr(term)), build)
