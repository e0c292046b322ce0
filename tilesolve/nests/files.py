"""Plans of nests as JSON: how each statement is run, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import ArrayInfo, Computation, bind_stages
from tilesolve.contractions.statements.parse import parse_conditions, parse_stages
from tilesolve.kernels.programs.nodes import Kind, list_nodes
from tilesolve.model.loop_tree import (
    Call,
    LoopTree,
    Node,
    list_loops,
    list_works,
    nest_loops,
)
from tilesolve.model.nest import Output
from tilesolve.nests.group_trees import with_works
from tilesolve.nests.node_files import read_node, write_node
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import make_tree, over, rows_tree
from tilesolve.nests.solutions import (
    BandSolution,
    BlockSolution,
    ContractionSolution,
    FusedSolution,
    LoopSolution,
    NestSolution,
)
from tilesolve.nests.solved import SolvedNest
from tilesolve.nests.windows import choose_block, windows_tree
from tilesolve.plans.files import (
    CODECS,
    dump_data,
    load_data,
    read_machine,
    refuse_damage,
    seal,
    unseal,
)
from tilesolve.plans.plan import Plan
from tilesolve.plans.values import Codec, ValueFormat

HOLDS = "a plan of a nest"
"""What such JSON says that it holds."""

NEST_FORMAT = 9
"""Version of the JSON; a file of another version is refused.

Those before the fifth one had the request and the loops as text, by which they were planned again.
"""

Arrays = Mapping[str, ArrayInfo]
_S = TypeVar("_S", bound=NestSolution)


def dump_nest(solution: SolvedNest) -> str:
    """Return how a computation is run as JSON."""
    return seal(HOLDS, NEST_FORMAT, VALUES.write(solution))


def load_nest(text: str) -> SolvedNest:
    """Read how a computation is run from JSON.

    Raises
    ------
    PlanError
        If the text is no plan, of another version, or damaged.

    Examples
    --------
    >>> load_nest("{}")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PlanError: this is 'a plan', not 'a plan of a nest'
    """
    data = unseal(text, HOLDS, NEST_FORMAT)
    with refuse_damage():
        rest = {name: one for name, one in data.items() if name not in ("format", "holds")}
        found = VALUES.read(SolvedNest, rest)
        found = replace(found, solutions=tuple(map(_with_works, found.solutions)))
        _check_nest(found)
        return found


def _write_computation(computation: Computation) -> dict[str, Any]:
    stages = [
        {
            "statement": str(stage.with_where(())),
            "where": [str(one) for one in stage.where],
            "dtype": stage.dtype,
        }
        for stage in computation.stages
    ]
    return {
        "stages": stages,
        "sizes": dict(computation.sizes),
        "shapes": {array.name: list(array.shape) for array in computation.arrays},
        "dtypes": dict(computation.dtypes),
        "outputs": list(computation.outputs),
    }


def _read_computation(data: Mapping[str, Any]) -> Computation:
    stages = []
    for one in data["stages"]:
        (stage,) = parse_stages(one["statement"])
        where = parse_conditions(one["where"])
        stages.append(replace(stage, dtype=one["dtype"], where=where))
    shapes = {name: tuple(shape) for name, shape in data["shapes"].items()}
    return bind_stages(stages, data["sizes"], data["dtypes"], shapes, data["outputs"])


def _write_tree(tree: LoopTree) -> dict[str, Any]:
    """Return loops, how many of them a call has, and whether the output goes past the caches.

    Of several works it is all nodes.
    """
    if len(tree.works) > 1:
        return {"nodes": list(map(write_node, tree.body)), "streamed": tree.output == "stream"}
    call = next((one for one in list_nodes(tree.body) if isinstance(one, Call)), None)
    return {
        "loops": [[loop.letter, loop.step, loop.kind] for loop in tree.loops],
        "called": len(list(list_loops((call,)))) if call else 0,
        "streamed": tree.output == "stream",
    }


def _read_tree(data: Mapping[str, Any]) -> LoopTree:
    """Return loops without the works that they do: the statement of their solution says these."""
    output: Output = "stream" if VALUES.read(bool, data["streamed"]) else "store"
    if "nodes" in data:
        return LoopTree((), tuple(map(read_node, data["nodes"])), output, aligned=False)
    loops = VALUES.read(tuple[tuple[str, int, Kind], ...], data["loops"])
    called = VALUES.read(int, data["called"])
    if not 0 <= called <= len(loops) or any(step < 1 for _, step, _ in loops):
        raise ValueError(f"no call has {called} of the loops {loops}")
    items = [over(*one) for one in loops]
    body: tuple[Node, ...] = (Call(nest_loops(items[len(loops) - called :], ())),)
    return LoopTree((), nest_loops(items[: len(loops) - called], body), output)


def _list_sharing(request: NestRequest, rows: Mapping[str, int], streamed: bool) -> list[LoopTree]:
    """Return the loops of rows that are written out, and share what they load."""
    if not rows or request.statement.reduction is not None:
        return []
    found = [windows_tree(request, rows)] if choose_block(request) == rows else []
    if not found and len(rows) == 1:
        ((row, count),) = rows.items()
        found = [rows_tree(request, row, count, streamed=streamed)]
    return found


def _with_works(solution: _S) -> _S:
    """Return a solution whose loops do what its statement says."""
    if isinstance(solution, FusedSolution):
        tree = replace(solution.loops, threads=solution.request.threads)
        _check_works(solution, tree)
        return replace(solution, loops=with_works(solution.request, tree))
    if isinstance(solution, LoopSolution):
        read = _write_tree(solution.loops)
        loops = [over(*one) for one in read["loops"]]
        tree = make_tree(solution.request, loops, read["called"], streamed=read["streamed"])
        written = {one.letter for one in loops if one.kind == "unrolled"}
        rows = {one.letter: one.step for one in loops if one.letter in written and one.step > 1}
        for other in _list_sharing(solution.request, rows, read["streamed"]):
            if _write_tree(other) == read:
                tree = other
        stage = solution.statement
        alone = stage.reduction is None and stage.update is None
        needed = {*stage.output, *(() if alone else stage.summed)}
        if lacking := sorted(needed - {loop.letter for loop in tree.loops if loop.single}):
            raise PlanError(f"no loop of {stage} walks {', '.join(lacking)}")
        return replace(solution, loops=tree)
    if isinstance(solution, BlockSolution):
        return replace(solution, kinds=tuple(tuple(map(_with_works, x)) for x in solution.kinds))
    if isinstance(solution, BandSolution):
        return replace(solution, kinds=tuple(tuple(map(_with_works, x)) for x in solution.kinds))
    return solution


def _check_works(solution: FusedSolution, tree: LoopTree) -> None:
    """Raise `PlanError` unless a tree does each stage once, behind those that it reads."""
    stages, done = solution.computation.stages, set[str]()
    works = list_works(tree.body)
    given = set(solution.computation.inputs)
    if sorted(works) != list(range(len(stages))):
        raise PlanError(f"its loops do not compute each stage of {solution.computation} once")
    for work in works:
        missing = {read.array for read in stages[work].reads} - given - done
        if missing:
            raise PlanError(f"{stages[work]} runs before {', '.join(sorted(missing))} is there")
        done.add(stages[work].name)


def _read_plan(data: Mapping[str, Any]) -> Plan:
    return Plan(load_data(data, read_machine(data["machine"])))


CODECS_OF_NESTS: Mapping[type, Codec] = {
    **CODECS,
    Computation: (_write_computation, _read_computation),
    LoopTree: (_write_tree, _read_tree),
    Plan: (lambda plan: dump_data(plan.solution), _read_plan),
}
"""What is written otherwise than field by field."""

VALUES = ValueFormat(CODECS_OF_NESTS)
"""How solutions of nests are written."""


def _check_nest(found: SolvedNest) -> None:
    """Raise `PlanError` unless statements follow from one another and end with what is asked."""
    whole = found.request.computation
    given = {name: whole.array(name) for name in whole.inputs}
    for one in found.solutions:
        if any(whole.sizes.get(x, n) != n for x, n in one.computation.extents):
            raise PlanError(f"{one.statement} has other extents than {whole}")
    made = _follow(found.solutions, given)
    for name in whole.outputs:
        if made.get(name) != whole.array(name):
            raise PlanError(f"its statements do not compute {name}")


def _follow(solutions: Sequence[NestSolution], given: Arrays) -> Arrays:
    """Return all arrays once statements have run on some; raise `PlanError` where one is none."""
    known = dict(given)
    for one in solutions:
        computation = one.computation
        for name in computation.inputs:
            if known.get(name) != computation.array(name):
                raise PlanError(f"{one.statement} has another array {name} than is there")
        if isinstance(one, BlockSolution):
            _check_blocks(one)
        elif isinstance(one, BandSolution):
            _check_bands(one)
        elif isinstance(one, ContractionSolution):
            problems = [
                product.problem(computation, computation.output.dtype)
                for product in one.contraction.products
            ]
            if problems != [plan.problem for plan in one.plans]:
                raise PlanError(f"its plans are not of {one.statement}")
        known |= {name: computation.array(name) for name in computation.outputs}
    return known


def _check_bands(solution: BandSolution) -> None:
    """Raise `PlanError` unless parts of bands lie within the arrays and buffers of their stages."""
    whole = {info.name: list(info.shape) for info in solution.computation.arrays}
    for buffer in solution.buffers:
        whole[buffer.array][buffer.axis] = buffer.rows
    for step in (one for strip in solution.strips for one in strip):
        block = solution.kinds[step.kind]
        own = {info.name: info for one in block for info in one.computation.arrays}
        made = {name for one in block for name in one.computation.outputs}
        _follow(block, {name: own[name] for name, *_ in step.arrays if name not in made})
        for name, array, axis, first in step.arrays:
            for at, (count, most) in enumerate(zip(own[name].shape, whole[array], strict=True)):
                begin = first if at == axis else 0
                if not 0 <= begin <= most - count:
                    raise PlanError(f"a band of {solution.statement.name} lies outside of {array}")


def _check_blocks(solution: BlockSolution) -> None:
    """Raise `PlanError` unless blocks lie within the arrays of their statement."""
    target = solution.statement.target
    parts = {**solution.arrays, target.array: target}
    if not 0 <= solution.begun <= len(solution.places):
        raise PlanError(f"{solution.begun} of {len(solution.places)} blocks begin elements")
    for block in solution.kinds:
        own = {info.name: info for one in block for info in one.computation.arrays}
        _follow(block, {name: own[name] for name in own if name in parts})
    for kind, origin in solution.places:
        own = {info.name: info for one in solution.kinds[kind] for info in one.computation.arrays}
        for name in own.keys() & parts.keys():
            whole = solution.computation.array(parts[name].array).shape
            firsts = [one.at(origin) for one in parts[name].plain or ()]
            for first, count, most in zip(firsts, own[name].shape, whole, strict=True):
                if not 0 <= first <= most - count:
                    raise PlanError(f"a block of {solution.statement} lies outside of {name}")
