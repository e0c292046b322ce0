"""Plans as Python text for Halide: its functions, and our decisions as their schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import (
    OPERATIONS,
    identity,
    is_complex,
    named_kind,
)
from tilesolve.contractions.statements.promotion import argument_dtypes
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Number,
    Param,
    Position,
    Read,
    Term,
)
from tilesolve.model.loop_tree import Loop
from tilesolve.nests.arithmetic import lanes_of
from tilesolve.nests.groups import Placed
from tilesolve.nests.solutions import FusedSolution, LoopSolution, NestSolution
from tilesolve.nests.solved import SolvedNest
from tilesolve.nests.split import split_sums

_CALLS = {
    "negative": "-",
    "invert": "~",
    "minimum": "hl.min",
    "maximum": "hl.max",
    "absolute": "hl.abs",
    "rint": "hl.round",
    **{name: f"hl.{name}" for name in ("sqrt", "exp", "log", "floor", "ceil")},
}
"""Operations that are functions of Halide, or stand before an expression."""

_HEAD = '''"""A pipeline for Halide."""

import halide as hl


def make(inputs, params={}):
    """Return the pipeline of arrays by name, which stay as long as it runs."""
'''


def write_halide(solved: SolvedNest) -> str:
    """Return Python text with a function `make` that returns how Halide runs a computation."""
    whole = solved.request.computation
    each = [(one, _written(one)) for one in solved.solutions]
    times = Counter(stage.name for _, found in each for stage in found.stages)
    parts, schedule = list[tuple[Stage, Computation]](), list[str]()
    for one, found in each:
        names = {stage.name for stage in found.stages}
        made = {stage.name for stage, _ in parts}
        if max(times[name] for name in names) == 1:
            parts += [(stage, found) for stage in found.stages]
            schedule += _schedule(one, found)
        elif not names <= made:  # of an array that is computed in parts, which has no choices then
            stages = list(_with_makers(whole, names, {*times, *made}))
            parts += [(stage, whole) for stage in stages]
            for name in names:
                schedule += _schedule(one, solved.request.of(whole, _find(whole, name)).computation)
    return write_make(parts, whole, schedule, around=True)


def _with_makers(whole: Computation, names: set[str], known: set[str]) -> Iterator[Stage]:
    """Yield stages, and before them those that compute what they read within them."""
    for stage in whole.stages:
        if stage.name in names:
            made = {one.name for one in whole.stages}
            lacking = {read.array for read in stage.reads if read.array in made} - known
            yield from _with_makers(whole, lacking, known)
            known |= lacking
            yield stage


def _find(whole: Computation, name: str) -> Stage:
    return next(one for one in whole.stages if one.name == name)


def write_make(
    parts: Sequence[tuple[Stage, Computation]],
    whole: Computation,
    schedule: Sequence[str] = (),
    *,
    around: bool = False,
) -> str:
    """Return Python text with a function `make` of stages, and what schedules them.

    `around` as `write_functions` has it.
    """
    lines = [*write_functions(parts, around=around), *schedule]
    for name in whole.outputs:
        shape = [(0, extent) for extent in reversed(whole.array(name).shape)]
        lines.append(f"f_{name}.set_estimates({shape})")
    lines.append(f"return hl.Pipeline([{', '.join(f'f_{name}' for name in whole.outputs)}])")
    return _HEAD + "".join(f"    {line}\n" for line in lines)


def _written(solution: NestSolution) -> Computation:
    """Return the stages of a solution, those before an epilogue by themselves."""
    loops = isinstance(solution, FusedSolution | LoopSolution)
    return solution.computation if loops else split_sums(solution.computation)


def _schedule(solution: NestSolution, found: Computation) -> Iterator[str]:
    """Yield lines that schedule the stages of a solution."""
    request = solution.request
    placed = solution.placed if isinstance(solution, FusedSolution) else {}
    root = found.stages[-1].name
    for stage in (found.stages[-1], *found.stages[:-1]):  # whose loops others name
        lanes = lanes_of(found.array(stage.name).dtype, request.machine)
        one = placed.get(stage.name)
        if one is None or (stage.name in found.outputs and stage.name != root):
            yield f"f_{stage.name}.compute_root()"
            kinds = {stage.output[0]: "threads"} if request.threads > 1 and stage.output else {}
            loops = [Loop(x, 1, (), "threads" if x in kinds else "serial") for x in stage.output]
            loops[-1:] = [Loop(x, 1, (), "vector") for x in stage.output[-1:]]
            yield from _Loops(stage, found, lanes).lines(loops)
            continue
        if stage.name == root:
            shared = [Loop(x.letter, x.step, ()) for x in one.tiles]
            if request.threads > 1 and shared:
                shared[0] = Loop(shared[0].letter, shared[0].step, (), "threads")
            loops = [*shared, *one.own]
        else:
            at = one.tiles[-1].name
            yield f"f_{stage.name}.compute_at(f_{root}, v_{at})"
            if one.kept is not None and 0 < one.kept < len(one.tiles):
                yield f"f_{stage.name}.store_at(f_{root}, v_{one.tiles[one.kept - 1].name})"
            loops = _own_loops(one, stage)
        yield from _Loops(stage, found, lanes).lines(loops)


def _own_loops(placed: Placed, stage: Stage) -> list[Loop]:
    """Return the loops of a stage by itself, over its own letters.

    Rows that are written out are as many as a trip of the root's loop has.
    """
    spans = placed.regions.spans[placed.stage]
    back = {spans[own].letter or own: own for own in stage.output}
    steps = {tile.letter: tile.step for tile in placed.tiles}
    walked = {one.letter for one in placed.own if one.kind == "serial"}
    loops = list[Loop]()
    for one in placed.own:
        own = back.get(one.letter, one.letter)
        if one.kind == "unrolled" and one.letter in steps and one.letter not in walked:
            loops.insert(0, Loop(own, steps[one.letter], ()))
        loops.append(Loop(own, one.step, (), one.kind))
    return loops


class _Loops:
    """Writes the loops of a function."""

    def __init__(self, stage: Stage, computation: Computation, lanes: int) -> None:
        self.stage, self.computation, self.lanes = stage, computation, lanes

    @property
    def _is_plain(self) -> bool:
        """Whether no stage has choices and limits, whose copies Halide compiles for minutes."""
        stages = self.computation.stages
        return not any(isinstance(x, Choose) for one in stages for x in one.term.all) and all(
            isinstance(x, Affine) for one in stages for read in one.reads for x in read.subscripts
        )

    def lines(self, loops: Sequence[Loop]) -> Iterator[str]:
        """Yield lines that split variables, order the loops, and say how each runs."""
        name, summed = f"f_{self.stage.name}", tuple(reversed(self.stage.summed))
        if self.stage.reduction is None:
            yield from self.of(name, loops, ())
        else:
            pure = [one for one in loops if one.letter in self.stage.output]
            yield from self.of(name, pure, ())
            domain = [f"r_{self.stage.name}[{at}]" for at in range(len(summed))]
            yield from self.of(f"{name}.update(0)", pure, domain)

    def of(self, name: str, loops: Sequence[Loop], domain: Sequence[str]) -> Iterator[str]:
        """Yield the lines of one definition; what it sums over runs within its other loops."""
        splits, order, held, ways = [], list[str](), list[str](), list[str]()
        for one in loops:
            inner = f"v_{one.letter}"
            if one.kind == "vector":
                lanes = min(self.lanes, self.computation.sizes[one.letter])
                within = f"{inner}_vector"
                splits.append((inner, inner, within, lanes))
                order.append(inner)
                held.append(within)
                ways.append(f".vectorize({within})")
            elif one.kind == "unrolled":
                if all(inner != old for old, *_ in splits):
                    whole = f"{inner}_whole"
                    splits.append((inner, whole, inner, self.computation.sizes[one.letter]))
                    order.append(whole)
                held.append(inner)
                ways += [f".unroll({inner})"] if self._is_plain else []
            else:
                outer = f"{inner}_{one.step}"
                step = min(int(one.step), self.computation.sizes[one.letter])
                splits.append((inner, outer, inner, step))
                order.append(outer)
                ways += [f".parallel({outer})"] if one.kind == "threads" else []
        rest = [f"v_{x}" for x in self.stage.output if f"v_{x}" not in (*order, *held)]
        ordered = [*order, *rest, *reversed(domain), *held]
        for _, outer, inner, _ in splits:
            for new in (outer, inner):
                if new not in {f"v_{x}" for x in self.stage.output}:
                    yield f"{new} = hl.Var({new[2:]!r})"
        # Sums may neither read beyond arrays nor add twice; nor may rows that rings begin with.
        exact, root = self.stage.reduction is not None, self.computation.stages[-1].name
        for old, outer, inner, step in splits:
            guarded = exact or (self.stage.name != root and not inner.endswith("_vector"))
            tail = ", hl.TailStrategy.GuardWithIf" if guarded else ""
            yield f"{name}.split({old}, {outer}, {inner}, {step}{tail})"
        if len(ordered) > 1:
            yield f"{name}.reorder({', '.join(reversed(ordered))})"
        yield from (f"{name}{way}" for way in ways)


def write_functions(
    parts: Sequence[tuple[Stage, Computation]], *, around: bool = False
) -> Iterator[str]:
    """Yield lines that define a function `f_NAME` of each stage, with variables `v_LETTER`.

    Parameters
    ----------
    parts
        Stages in order, each with a computation that has its arrays.
    around
        Whether inputs have elements around them: what begins a ring reads some that none needs.

    Raises
    ------
    PlanError
        If a stage is of parts of an array, complex, an update, or has a term that is not written.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("o[x] = A[x] + A[x+1]"), 8, "float32")
    >>> print(*write_functions([(found.stages[0], found)]), sep=chr(10))
    v_x = hl.Var('x')
    f_A = hl.ImageParam(hl.Float(32), 1, 'A')
    f_A.set(hl.Buffer(inputs['A']))
    f_A.set_estimates([(0, 9)])
    f_o = hl.Func('o_made')
    f_o[v_x] = (f_A[v_x] + f_A[v_x + 1])
    """
    made: dict[str, None] = {}
    names = dict.fromkeys(letter for stage, _ in parts for letter in stage.output)
    yield from (f"v_{letter} = hl.Var({letter!r})" for letter in names)
    for stage, computation in parts:
        if is_complex(*computation.dtypes.values()):
            raise PlanError(f"not written for Halide: {stage}, of complex numbers")
        if stage.name in made or stage.update is not None or stage.in_place:
            raise PlanError(f"not written for Halide: {stage}, of parts of an array or an update")
        for name in dict.fromkeys(read.array for read in stage.reads):
            if name not in made:
                yield from _input(name, computation)
                if around:
                    yield f"f_{name} = hl.BoundaryConditions.repeat_edge(f_{name})"
                made[name] = None
        yield from _Definition(stage, computation).lines()
        made[stage.name] = None


def kind_of(dtype: str) -> str:
    """Return Halide's type of a dtype."""
    found = np.dtype(dtype)
    makers = {"f": "Float", "i": "Int", "u": "UInt"}
    return "hl.Bool()" if found.kind == "b" else f"hl.{makers[found.kind]}({8 * found.itemsize})"


def write_number(value: float, dtype: str) -> str:
    """Return a number in a dtype as text.

    Examples
    --------
    >>> write_number(2, "float32"), write_number(3, "uint16")
    ('hl.f32(2.0)', 'hl.u16(3)')
    """
    found = np.dtype(dtype)
    if found.kind == "b":
        return f"hl.cast(hl.Bool(), {int(value)})"
    text = f"float({str(float(value))!r})" if not np.isfinite(value) else repr(float(value))
    return f"hl.{found.kind}{8 * found.itemsize}({text if found.kind == 'f' else int(value)})"


def _input(name: str, computation: Computation) -> Iterator[str]:
    """Yield lines that define an input."""
    info = computation.array(name)
    yield f"f_{name} = hl.ImageParam({kind_of(info.dtype)}, {len(info.shape)}, {name!r})"
    yield f"f_{name}.set(hl.Buffer(inputs[{name!r}]))"
    yield f"f_{name}.set_estimates({[(0, extent) for extent in reversed(info.shape)]})"


@dataclass(frozen=True, slots=True)
class _Definition:
    """Writes the function of a stage."""

    stage: Stage
    computation: Computation

    def lines(self) -> Iterator[str]:
        """Yield lines that define the function; sums run in the order of their letters."""
        stage, sizes = self.stage, self.computation.sizes
        letters = {letter: f"v_{letter}" for letter in stage.output}
        place = ", ".join(letters[letter] for letter in reversed(stage.output)) or "()"
        dtype = self.computation.array(stage.name).dtype
        name, reduction = f"f_{stage.name}", stage.reduction
        yield f"{name} = hl.Func({stage.name + '_made'!r})"
        if reduction is None:
            if stage.where:
                raise PlanError(f"not written for Halide: {stage}, in a region")
            yield f"{name}[{place}] = {self.value(stage.term, dtype, letters)}"
            return
        summed = tuple(reversed(stage.summed))
        domain = f"r_{stage.name}"
        yield f"{domain} = hl.RDom({[(0, sizes[x]) for x in summed]})"
        letters |= {letter: f"{domain}[{at}]" for at, letter in enumerate(summed)}
        for one in stage.where:
            yield f"{domain}.where({self.position(one.position, letters)} >= 0)"
        yield f"{name}[{place}] = {write_number(identity(reduction.name, dtype).real, dtype)}"
        value = self.value(reduction.term, dtype, letters)
        summed_up = self.apply(reduction.name, [f"{name}[{place}]", value], dtype)
        yield f"{name}[{place}] = {summed_up}"

    def position(self, position: Affine, letters: Mapping[str, str]) -> str:
        """Return a position as text."""
        parts = [
            letters[letter] if factor == 1 else f"{factor} * {letters[letter]}"
            for factor, letter in position.terms
        ]
        if position.offset or not parts:
            parts.append(str(position.offset))
        found = " + ".join(parts).replace("+ -", "- ")
        return f"({found}) / {position.divisor}" if position.divisor > 1 else found

    def apply(self, name: str, given: Sequence[str], dtype: str) -> str:
        """Return an operation of expressions of a dtype as text."""
        operation = OPERATIONS.get(name)
        symbol = operation.symbol.replace("//", "/") if operation else ""
        divides = name in ("floor_divide", "remainder") and np.dtype(dtype).kind == "f"
        if symbol and len(given) > 1 and name != "power" and not divides:
            return f"({f' {symbol} '.join(given)})"
        if name in _CALLS:
            return f"{_CALLS[name]}({', '.join(given)})"
        raise PlanError(f"not written for Halide: {name} of {dtype}, in {self.stage}")

    def value(self, term: Term, dtype: str, letters: Mapping[str, str]) -> str:
        """Return a term in a dtype as text."""
        if isinstance(term, Number):
            return write_number(term.value.real, dtype)
        found = self.term(term, letters)
        if term.kind(self.computation.dtypes) == dtype:
            return found
        return f"hl.cast({kind_of(dtype)}, {found})"

    def term(self, term: Term, letters: Mapping[str, str]) -> str:
        """Return a term as text, in the dtypes that NumPy computes in."""
        dtypes = self.computation.dtypes
        match term:
            case Param(name=name):
                return f"hl.cast({kind_of(dtypes[name])}, params[{name!r}])"
            case Position(position=position):
                return f"hl.cast(hl.Int(64), {self.position(position, letters)})"
            case Read(array=array, subscripts=subscripts):
                place = [
                    self.position(one, letters)
                    if isinstance(one, Affine)
                    else f"hl.cast(hl.Int(32), {self.value(one, 'int64', letters)})"
                    for one in reversed(subscripts)
                ]
                return f"f_{array}[{', '.join(place) or '()'}]"
            case Cast(dtype=dtype, term=inner):
                return self.value(inner, dtype, letters)
            case Choose(test=test, yes=yes, no=no):
                kind = named_kind(term.kind(dtypes))
                parts = [self.value(one, kind, letters) for one in (yes, no)]
                return f"hl.select({self.value(test, 'bool', letters)}, {', '.join(parts)})"
            case Apply(name=name, arguments=arguments):
                kinds = argument_dtypes(term, [one.kind(dtypes) for one in arguments])
                pairs = zip(arguments, kinds, strict=True)
                given = [self.value(one, kind, letters) for one, kind in pairs]
                return self.apply(name, given, kinds[0])
        raise PlanError(f"not written for Halide: {term} within a larger term")
