"""Loops of threads: no two threads write the same element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.kernels.programs.program import (
    Barrier,
    Buffer,
    Compute,
    Loop,
    Node,
    Start,
)
from tilesolve.kernels.programs.skeleton import Skeleton


def check_threads(skeleton: Skeleton) -> None:
    """Raise `SpecError` if threads would write the same elements.

    A loop of threads walks a letter of an axis of each array that is computed in it, or tiles of
    one, or where tiles begin; or the array is a buffer of each thread's own. Where tiles overlap,
    threads write the same values.
    """
    for node in list_nodes(skeleton.body):
        if isinstance(node, Loop) and node.kind == "threads":
            for number, loops in _computed(node.body, (node,)):
                _check(skeleton, number, loops)


def _computed(
    body: Sequence[Node], around: tuple[Loop | Buffer, ...]
) -> Iterator[tuple[int, tuple[Loop | Buffer, ...]]]:
    """Yield the stages that are computed, with the loops and buffers around each."""
    for node in body:
        if isinstance(node, Compute):
            yield node.stage, around
        elif isinstance(node, Loop | Buffer):
            yield from _computed(node.body, (*around, node))
        elif not isinstance(node, Start | Barrier):
            yield from _computed(node.body, around)


def _check(skeleton: Skeleton, number: int, around: tuple[Loop | Buffer, ...]) -> None:
    stage = skeleton.stages[number]
    if any(isinstance(one, Buffer) and one.name == stage.name for one in around):
        return
    loops = [one for one in around if isinstance(one, Loop)]
    walked = {loops[0].name}
    for loop in loops[1:]:
        if any(walked.intersection(one.letters) for one in loop.low):
            walked.add(loop.name)
    axes = {one.plain for one in stage.axes if isinstance(one, Affine)}
    if not walked & axes:
        raise SpecError(
            f"the loop of threads {loops[0].name} walks no axis of {stage.target}: threads would "
            f"write the same elements in {stage}"
        )
