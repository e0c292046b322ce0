"""The sums of the points of a block, computed in step: what several read is loaded once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from llvmlite import ir

from tilesolve.contractions.statements.stepped_sums import SteppedSum, find_stepped_sum, read_key
from tilesolve.contractions.statements.terms import Apply, Term
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.program import Compute, Node
from tilesolve.kernels.programs.scope import Scope
from tilesolve.kernels.programs.term_emitter import TermEmitter


def emit_in_step(emitter: Emitter, body: Sequence[Node], scopes: Sequence[Scope]) -> None:
    """Emit the sums of a stage at the points of a block; they are kept for `stage_term`.

    Nothing is emitted where points have no such sums, or read what other points write.
    """
    if len(scopes) < 2 or len(body) != 1 or not isinstance(body[0], Compute):
        return
    (number,) = (node.stage for node in body if isinstance(node, Compute))
    found = _find_sum(emitter, number, scopes[0])
    trips = [{x: one.number for x, one in scope.trips.items()} for scope in scopes]
    order = found.order(trips) if found else None
    if found is None or order is None:
        return
    if not any(found.places(trips[0]) & found.places(trip) for trip in trips[1:]):
        return  # they share nothing
    points = [TermEmitter(emitter, number, scope) for scope in scopes]
    kind = points[0].kind(found.sums[-1])
    if any(points[0].kind(one) != kind for one in (*found.addends, *found.sums)):
        return
    sums, loaded = dict[int, ir.Value](), dict[Hashable, ir.Value]()
    for at, step in order:
        point = points[at]
        _load_once(point, found.addends[step], trips[at], loaded)
        if at not in sums and found.begin is not None:
            sums[at] = point.lanes_of(point.value(found.begin, kind))
        value, whole = point.lanes_of(point.value(found.addends[step], kind)), found.sums[step]
        if at in sums and isinstance(whole, Apply):
            value = point.apply(whole, (kind, kind), (sums[at], value))
        sums[at] = value
    for at, scope in enumerate(scopes):
        emitter.kept[_key(number, scope)] = [sums[at]]


def _load_once(
    point: TermEmitter, term: Term, trip: Mapping[str, int], loaded: dict[Hashable, ir.Value]
) -> None:
    """Emit the loads of a term, or take those of other points."""
    for read in term.reads:
        key = read_key(read, trip)
        if key is None:
            continue
        if key not in loaded:
            loaded[key] = point.lanes_of(point.value(read, point.kind(read)))
        point.know(read, loaded[key])


def stage_point(emitter: Emitter, number: int, scope: Scope) -> TermEmitter:
    """Return what emits the term of a stage at a point, where its sum may be known."""
    point, kept = TermEmitter(emitter, number, scope), emitter.kept.get(_key(number, scope))
    if kept and (found := _find_sum(emitter, number, scope)):
        point.know(found.sums[-1], kept[0])
    return point


def _find_sum(emitter: Emitter, number: int, scope: Scope) -> SteppedSum | None:
    """Return the sum of a stage that points of a block compute in step."""
    stage = emitter.stage(number)
    if stage.reduction is not None or stage.update is not None or stage.sequence is not None:
        return None
    found = find_stepped_sum(stage.term, scope.trips)
    return None if found is None or found.reads[0].array == stage.name else found


def _key(number: int, scope: Scope) -> tuple[object, ...]:
    return "in step", number, *((x, one.number) for x, one in scope.trips.items())
