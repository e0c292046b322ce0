"""Stages of a graph: statements with letters of their own, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tilesolve.contractions.statements.computation import ArrayInfo, Computation, bind_stages
from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.nests.cuts import cut_stage, list_parts
from tilesolve.pipelines.copies import join_copies
from tilesolve.pipelines.graph import Graph, Node, axis_letters, rename_stage
from tilesolve.pipelines.grouping import is_alone
from tilesolve.pipelines.simplify import bind_part, list_needed
from tilesolve.pipelines.windows import find_shifted, join_windows

_AXES = "xyzwvutsrqponm"
"""What axes are called, from the last one on."""

_SUMMED = "kijlabcdefgh"
"""What letters that are summed are called."""


def make_computation(graph: Graph, results: Sequence[str]) -> Computation:
    """Return what computes some arrays of a graph; the last one is the last of them.

    What others compute where they read it is left out, and so is what none needs.
    """
    live = set(results)
    for name, node in reversed(graph.nodes.items()):
        if name in live and node.term is not None:
            live |= {read.array for read in node.term.reads}
    nodes = [node for name, node in graph.nodes.items() if name in live]
    raw = [_raw_stage(node, number) for number, node in enumerate(nodes) if node.term is not None]
    sizes = {
        letter: n
        for number, node in enumerate(nodes)
        for letter, n in zip(_raw_letters(number), node.shape or (1,), strict=False)
    }
    whole = Computation(
        tuple(raw),
        tuple({**graph.extents, **sizes}.items()),
        tuple(ArrayInfo(node.name, node.shape or (1,), node.dtype) for node in nodes),
        outputs=tuple(results),
    )
    whole = join_copies(whole)
    alone = frozenset(one.name for one in whole.stages if is_alone(whole, one))
    alone |= find_shifted(whole.stages, whole.dtypes)
    needed = list_needed(whole, alone, frozenset(results))
    needed = _without_unread(needed, results)
    stages, extents = join_windows(needed, whole.sizes, whole.dtypes, frozenset(results))
    extents = {**whole.sizes, **extents}
    return _named(graph, replace(whole, stages=tuple(stages), extents=tuple(extents.items())))


def _without_unread(stages: Sequence[Stage], results: Sequence[str]) -> tuple[Stage, ...]:
    """Return the stages that results need: others may need them no more."""
    live, found = set(results), list[Stage]()
    for stage in reversed(stages):
        if stage.name in live:
            found.append(stage)
            live |= {read.array for read in stage.reads}
    return tuple(reversed(found))


def _raw_letters(number: int) -> Iterable[str]:
    """Yield the letters of the axes of a node."""
    return (f"_{axis}_{number}" for axis in range(len(_AXES)))


def _raw_stage(node: Node, number: int) -> Stage:
    """Return what computes a node, in letters that no other one has."""
    axes = axis_letters(max(len(node.shape), 1))
    assert node.term is not None
    names = dict(zip((str(one) for one in axes), _raw_letters(number), strict=False))
    return rename_stage(Stage(node.name, axes, node.term, node.dtype), names)


def _named(graph: Graph, whole: Computation) -> Computation:
    """Return the stages of a computation, called as the function calls them."""
    given = {name: name for name, node in graph.nodes.items() if node.term is None}
    names = dict(given)
    for stage in whole.stages:
        wanted = graph.labels.get(stage.name, "t")
        found, number = wanted, 1
        while found in names.values():
            number += 1
            found = f"{wanted}_{number}"
        names[stage.name] = found
    made: list[Stage] = []
    sizes: dict[str, int] = {}
    for number, stage in enumerate(whole.stages, 1):
        letters = _letters(stage, number)
        sizes |= {letter: whole.sizes[old] for old, letter in letters.items()}
        named = rename_stage(stage, letters, names)
        same = named_kind(stage.term.kind(whole.dtypes)) == stage.dtype
        made.append(Stage(named.name, named.axes, named.term, None if same else stage.dtype))
    used = {one.array for stage in made for one in (stage.target, *stage.reads)}
    arrays = [(names[one.name], one) for one in whole.arrays if names.get(one.name) in used]
    return bind_stages(
        made,
        sizes,
        {name: one.dtype for name, one in arrays if one.name in given},
        {name: one.shape for name, one in arrays},
        tuple(names[one] for one in whole.outputs),
    )


def _letters(stage: Stage, number: int) -> Mapping[str, str]:
    """Return what the letters of a stage are called."""
    axes = zip(reversed(stage.output_letters()), _AXES, strict=False)
    summed = zip(stage.summed, _SUMMED, strict=False)
    return {old: f"{letter}{number}" for old, letter in (*axes, *summed)}


def leave_borders(computation: Computation) -> tuple[Computation, dict[str, str]]:
    """Return a computation that copies no given arrays at borders, and which ones these are.

    That is where stages do not read one another: those that do are computed together.
    """
    stages: list[Stage] = []
    begins: dict[str, str] = {}
    for stage in computation.stages:
        terms = {part.term for part in cut_stage(computation, stage)}
        bases = [x for x in computation.inputs if Read(x, stage.axes) in terms]
        if len(bases) != 1 or len(terms) == 1:
            stages.append(stage)
            continue
        begins[stage.name] = bases[0]
        copied = Read(bases[0], stage.axes)
        stages += (one for one in list_parts(computation, stage) if one.term != copied)
    if not begins or any(read.array in begins for one in computation.stages for read in one.reads):
        return computation, {}
    return bind_part(computation, tuple(stages)), begins
