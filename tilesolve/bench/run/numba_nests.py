"""The obvious loops of a stage for numba: parallel outside, contiguous inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import OPERATIONS, identity
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Param,
    Read,
    Reduce,
    Term,
)

_INDENT = "    "


def make_numba(
    computation: Computation,
    threads: int,
    arrays: Mapping[str, Array],
    params: Mapping[str, float],
    out: Array,
) -> Callable[[], Array]:
    """Return a run of numba's loops for a computation: fast-math, as many threads as are given."""
    import numba
    import numpy as np

    numba.set_num_threads(threads)
    held = dict(arrays)
    calls = []
    for stage in computation.stages:
        info = computation.array(stage.name)
        last = stage is computation.stages[-1]
        held[stage.name] = out if last else np.empty(info.shape, info.dtype)
        names = [*dict.fromkeys((stage.name, *(read.array for read in stage.reads)))]
        space: dict[str, Any] = {"prange": numba.prange, "np": np}
        exec(compile(write_loops(computation, stage), "<numba>", "exec"), space)
        loops = numba.njit(parallel=threads > 1, fastmath=True)(space["loops"])
        own = [params[name] for name in stage.term.params]
        calls.append((loops, [held[name] for name in names], own))

    def run() -> Array:
        for loops, given, own in calls:
            loops(*given, *own)
        return out

    return run


def write_loops(computation: Computation, stage: Stage) -> str:
    """Return the Python source of a stage's loops.

    Sums run outside of the last letter of the output where more reads are contiguous along that;
    else innermost, into a variable.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("y[i] += A[i,k] * x[k]"), {"i": 3, "k": 4})
    >>> print(write_loops(found, found.stages[0]))
    def loops(y, A, x):
        for i in prange(0, 3):
            total = y.dtype.type(0.0)
            for k in range(0, 4):
                total = total + (A[i,k] * x[k])
            y[i] = total
    """
    if stage.update is not None or any(isinstance(one, Reduce) for one in stage.term.all[1:]):
        raise BenchmarkError(f"no obvious parallel loops for {stage}")
    names = [*dict.fromkeys((stage.name, *(read.array for read in stage.reads)))]
    lines = [f"def loops({', '.join([*names, *stage.term.params])}):"]
    output, target = list(stage.output), str(stage.target)
    if stage.reduction is None:
        lines += _nest(computation, stage, output, f"{target} = {_write(stage.term)}")
        return "\n".join(lines)
    first = identity(stage.reduction.name, computation.array(stage.name).dtype)
    bounded = [one for one in stage.where if set(one.letters) <= set(output)]
    start = stage.with_where(bounded)
    term = stage.reduction.term
    if _along(term, stage.summed[-1]) > (_along(term, output[-1]) if output else 0):
        step = _write(Apply(stage.reduction.name, (Param("total"), term)))
        depth = len(output)
        lines += _nest(computation, start, output, f"total = {stage.name}.dtype.type({first!r})")
        lines += _nest(computation, stage, stage.summed, f"total = {step}", depth, set(output))
        lines.append(f"{_INDENT * (depth + 1)}{target} = total")
        return "\n".join(lines)
    lines += _nest(computation, start, output, f"{target} = {first!r}")
    apply = Apply(stage.reduction.name, (stage.target, term))
    order = [*output[:-1], *stage.summed, *output[-1:]]
    lines += _nest(computation, stage, order, f"{target} = {_write(apply)}")
    return "\n".join(lines)


def _along(term: Term, letter: str) -> int:
    """Return how many reads have a letter in their last axis."""
    last = [read.subscripts[-1] for read in term.reads if read.subscripts]
    return sum(letter in one.letters for one in last)


def _nest(
    computation: Computation,
    stage: Stage,
    order: Iterable[str],
    body: str,
    outer: int = 0,
    known: Iterable[str] = (),
) -> Iterator[str]:
    """Yield the lines of loops within others; the first one over the output is divided."""
    depth, around, divided = outer + 1, set(known), bool(outer)
    for letter in order:
        parallel = not divided and letter in stage.output
        divided = divided or parallel
        low, high = ["0"], [str(computation.sizes[letter])]
        for condition in stage.where:
            factor = condition.position.factor(letter)
            others = set(condition.letters) - {letter}
            if not factor or not others <= around:
                continue
            rest = condition.position + Affine.of([(-factor, letter)])
            if factor > 0:
                low.append(f"-(({rest})//{factor})")
            else:
                high.append(f"({rest})//{-factor}+1")
        bounds = ", ".join(
            ends[0] if len(ends) == 1 else f"{name}({', '.join(ends)})"
            for name, ends in (("max", low), ("min", high))
        )
        yield f"{_INDENT * depth}for {letter} in {'prange' if parallel else 'range'}({bounds}):"
        around.add(letter)
        depth += 1
    yield _INDENT * depth + body


def _write(term: Term) -> str:
    """Return a term as numba's Python."""
    match term:
        case Read():
            inner = (one if isinstance(one, Affine) else _write(one) for one in term.subscripts)
            return f"{term.array}[{','.join(map(str, inner))}]"
        case Param(name=name):
            return name
        case Cast(dtype=dtype, term=inner):
            return f"np.{dtype}({_write(inner)})"
        case Choose(test=test, yes=yes, no=no):
            return f"({_write(yes)} if {_write(test)} else {_write(no)})"
        case Apply(name=name, arguments=arguments):
            symbol, given = OPERATIONS[name].symbol, [_write(one) for one in arguments]
            if not symbol:
                return f"np.{name}({', '.join(given)})"
            wrapped = [
                text
                if not isinstance(one, Apply) or not OPERATIONS[one.name].symbol
                else f"({text})"
                for one, text in zip(arguments, given, strict=True)
            ]
            return symbol + wrapped[0] if len(given) == 1 else f" {symbol} ".join(wrapped)
    return f"({term})" if not str(term).isalnum() else str(term)
