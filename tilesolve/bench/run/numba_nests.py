"""The obvious loops of a stage for numba: parallel outside, contiguous inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from tilesolve.bench.case import Array
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import OPERATIONS, identity, named_kind
from tilesolve.contractions.statements.promotion import argument_dtypes
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Param,
    Position,
    Read,
    Term,
)
from tilesolve.nests.split import split_sums

_INDENT = "    "
_WIDENED = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
"""Dtypes whose sums numba computes in 64 bits."""


FLAGS = {"reassoc", "contract", "nsz", "nnan"}
"""What loops may do to floating-point numbers: add them up in any order, in vectors."""


def make_numba(
    computation: Computation,
    threads: int,
    arrays: Mapping[str, Array],
    params: Mapping[str, float],
    out: Array,
) -> Callable[[], Array]:
    """Return a run of numba's loops for a computation, with as many threads as are given.

    Sums inside larger terms are statements before them, as one who writes loops has them.
    """
    import numba
    import numpy as np

    numba.set_num_threads(threads)
    computation = split_sums(computation)
    held = {**arrays, computation.output.name: out}
    calls = []
    for stage in computation.stages:
        info = computation.array(stage.name)
        if stage.name not in held:
            held[stage.name] = np.zeros(info.shape, info.dtype)
        space: dict[str, Any] = {"prange": numba.prange, "np": np}
        exec(compile(write_loops(computation, stage), "<numba>", "exec"), space)
        loops = numba.njit(parallel=threads > 1, fastmath=FLAGS, error_model="numpy")
        dtypes = computation.dtypes
        own = [np.dtype(dtypes[name]).type(params[name]) for name in stage.params]
        given = [*(held[name] for name in _arrays(stage)), *own]
        compiled = loops(space["loops"])
        compiled.compile(tuple(map(numba.typeof, given)))
        calls.append(partial(compiled, *given))

    def run() -> Array:
        for call in calls:
            call()
        return out

    return run


def _arrays(stage: Stage) -> list[str]:
    return [*dict.fromkeys((stage.name, *(read.array for read in stage.reads)))]


def write_loops(computation: Computation, stage: Stage) -> str:
    """Return the Python source of a stage's loops.

    Sums run outside of the last letter of the output where more reads are contiguous along that;
    else innermost, into a variable. Values have the dtypes that NumPy gives them.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("y[i] += A[i,k] * x[k]"), {"i": 3, "k": 4})
    >>> print(write_loops(found, found.stages[0]))
    def loops(y, A, x):
        for i in prange(0, 3):
            total = np.float64(0.0)
            for k in range(0, 4):
                total = (total + (A[i,k] * x[k]))
            y[i] = total
    """
    lines = [f"def loops({', '.join([*_arrays(stage), *stage.params])}):"]
    output, target, name = list(stage.output), stage.target, stage.update
    dtype = computation.array(stage.name).dtype
    dtypes = {**computation.dtypes, "total": dtype}
    if stage.reduction is None and name is None:
        lines += _nest(computation, stage, output, f"{target} = {_write(stage.term, dtypes)}")
        return "\n".join(lines)
    name = name or (stage.reduction.name if stage.reduction else "")
    first = f"np.{dtype}({identity(name, dtype)!r})".replace("inf", "np.inf")
    term = stage.reduction.term if stage.reduction else stage.term
    step = _write(Apply(name, (target, term)), dtypes)
    if stage.update is not None:
        lines.append(f"{_INDENT}{stage.name}.fill({first})")
        lines += _nest(computation, stage, stage.letters, f"{_write(target, dtypes)} = {step}")
        return "\n".join(lines)
    bounded = [one for one in stage.where if set(one.letters) <= set(output)]
    start = stage.with_where(bounded)
    if _along(term, stage.summed[-1]) > (_along(term, output[-1]) if output else 0):
        step = _write(Apply(name, (Param("total"), term)), dtypes)
        depth = len(output)
        lines += _nest(computation, start, output, f"total = {first}")
        lines += _nest(computation, stage, stage.summed, f"total = {step}", depth, set(output))
        lines.append(f"{_INDENT * (depth + 1)}{target} = total")
        return "\n".join(lines)
    lines += _nest(computation, start, output, f"{target} = {first}")
    order = [*output[:-1], *stage.summed, *output[-1:]]
    lines += _nest(computation, stage, order, f"{target} = {step}")
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
    divided = bool(outer) or stage.update is not None
    depth, around = outer + 1, set(known)
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


def _write(term: Term, dtypes: Mapping[str, str]) -> str:
    """Return a term as numba's Python, in the dtype that NumPy computes it in."""
    match term:
        case Read():
            inner = (
                str(one) if isinstance(one, Affine) else _write(one, dtypes)
                for one in term.subscripts
            )
            return f"{term.array}[{','.join(inner)}]"
        case Param(name=name):
            return name
        case Position(position=position):
            return f"np.int64({position})"
        case Cast(dtype=dtype, term=inner):
            return f"np.{dtype}({_write(inner, dtypes)})"
        case Choose(test=test, yes=yes, no=no):
            kind = named_kind(term.kind(dtypes))
            chosen = (_cast(one, kind, dtypes) for one in (yes, no))
            return f"({' if {} else '.join(chosen)})".format(_write(test, dtypes))
        case Apply(name=name, arguments=arguments):
            kinds = argument_dtypes(term, [one.kind(dtypes) for one in arguments])
            given = [_cast(one, kind, dtypes) for one, kind in zip(arguments, kinds, strict=True)]
            symbol, kind = OPERATIONS[name].symbol, named_kind(term.kind(dtypes))
            text = f"np.{name}({', '.join(given)})"
            if symbol:
                text = f"({f' {symbol} '.join(given)})" if len(given) > 1 else symbol + given[0]
            return f"np.{kind}({text})" if kind in _WIDENED else text
    return str(term)


def _cast(term: Term, dtype: str, dtypes: Mapping[str, str]) -> str:
    """Return a term as an operation takes it."""
    text, kind = _write(term, dtypes), term.kind(dtypes)
    return text if kind == dtype else f"np.{'bool_' if dtype == 'bool' else dtype}({text})"
