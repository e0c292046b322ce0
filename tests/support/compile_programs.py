"""Programs that are compiled at once."""

from tilesolve.kernels.programs.compiled_program import CompiledProgram, plan_program
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.program import Program


def compile_program(
    program: Program, layout: Layout | None = None, bits: int | None = None
) -> CompiledProgram:
    """Return a program as machine code for this CPU: from disk, or compiled now and kept there.

    Examples
    --------
    >>> import numpy as np
    >>> from tilesolve.contractions.statements.affine import Affine
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.kernels.programs.program import Compute, Loop
    >>> computation = bind_stages(parse_stages("out[x] = 2 * A[x] + 1"), 3)
    >>> zero, end = Affine.number(0), Affine.number(3)
    >>> program = Program(computation, (Loop("x", (zero,), (end,), (Compute(0),), kind="vector"),))
    >>> out = np.empty(3)
    >>> compile_program(program).run({"A": np.array([1.0, 2.0, 3.0]), "out": out})
    >>> out
    array([3., 5., 7.])
    """
    found = plan_program(program, layout, bits)
    found.code.load()
    return found
