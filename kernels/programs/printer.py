"""Programs as text: loops with their bounds and kinds, and the statements within them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.programs.program import (
    Barrier,
    Buffer,
    Compute,
    Guard,
    Hold,
    Loop,
    Node,
    Program,
    Start,
)


def print_program(program: Program) -> str:
    """Return a program as text.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> computation = bind_stages(parse_stages("out[y,x] = A[y,x] + 1"), {"y": 8, "x": 100})
    >>> zero, y, x = Affine.number(0), Affine.number(8), Affine.number(100)
    >>> inner = Loop("x", (zero,), (x,), (Compute(0),), kind="vector")
    >>> print(print_program(Program(computation, (Loop("y", (zero,), (y,), (inner,)),))))
    for y in 0 .. 8:
      vector x in 0 .. 100:
        out[y,x] = A[y,x] + 1
    """
    lines = list(_lines(program, program.body, 0))
    if program.non_temporal:
        lines.append(f"past the caches: {', '.join(sorted(program.non_temporal))}")
    return "\n".join(lines)


_WORDS = {"serial": "for", "vector": "vector", "unrolled": "unrolled", "threads": "threads"}


def _lines(program: Program, body: Sequence[Node], depth: int) -> Iterator[str]:
    indent = "  " * depth
    stages = program.computation.stages
    for node in body:
        match node:
            case Compute(stage=number):
                stage = stages[number]
                yield indent + (_step(program, number) if stage.reduction else _plain(stage))
            case Start(stage=number):
                stage = stages[number]
                name = stage.update or (stage.reduction.name if stage.reduction else "")
                yield f"{indent}{stage.target} = nothing of {name}"
            case Barrier():
                yield f"{indent}all threads wait"
            case Loop():
                yield f"{indent}{_WORDS[node.kind]} {_range(node)}:"
                yield from _lines(program, node.body, depth + 1)
            case Hold(stage=number, anew=anew):
                begun = ", begun anew" if anew else ""
                yield f"{indent}hold {stages[number].target} in registers{begun}:"
                yield from _lines(program, node.body, depth + 1)
            case Guard(conditions=conditions):
                yield f"{indent}if {' and '.join(map(str, conditions))}:"
                yield from _lines(program, node.body, depth + 1)
            case Buffer():
                yield f"{indent}buffer {_buffer(node)}:"
                yield from _lines(program, node.body, depth + 1)


def _plain(stage: object) -> str:
    """Return a statement without its region, which loops and guards show."""
    return str(stage).split(", where ")[0]


def _step(program: Program, number: int) -> str:
    """Return a step of a reduction."""
    stage = program.computation.stages[number]
    assert stage.reduction is not None
    signs = {"add": "+=", "multiply": "*=", "bitwise_and": "&="}
    signs |= {"bitwise_or": "|=", "bitwise_xor": "^="}
    name, term = stage.reduction.name, stage.reduction.term
    if name in signs:
        return f"{stage.target} {signs[name]} {term}"
    return f"{stage.target} = {name}({stage.target}, {term})"


def _range(loop: Loop) -> str:
    low, high = _extreme("max", loop.low), _extreme("min", loop.high)
    step = f" by {loop.step}" if loop.step > 1 else ""
    return f"{loop.name} in {low} .. {high}{step}"


def _extreme(name: str, positions: Sequence[Affine]) -> str:
    texts = list(map(str, positions))
    return texts[0] if len(texts) == 1 else f"{name}({', '.join(texts)})"


def _buffer(buffer: Buffer) -> str:
    axes = [
        f"{origin} + {extent}" for origin, extent in zip(buffer.origin, buffer.shape, strict=True)
    ]
    if buffer.ring is not None:
        axes[buffer.ring] = f"ring of {buffer.shape[buffer.ring]}"
    return f"{buffer.name}[{', '.join(axes)}]"
