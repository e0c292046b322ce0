"""Grouping: which stages run together, so that buffers stay in caches (Alg. 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilesolve.constants.nests import PIPELINE_APART_GAIN
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.contraction import find_contraction
from tilesolve.contractions.statements.stage import Stage
from tilesolve.nests.classify import is_contraction
from tilesolve.nests.cuts import cut_stage, largest_part
from tilesolve.nests.regions import find_regions, slides
from tilesolve.nests.request import NestRequest
from tilesolve.pipelines.footprints import list_slides, list_tiled

Names = tuple[str, ...]
"""Stages of a group, in the order in which they run; the last one is the root."""


def is_alone(computation: Computation, stage: Stage) -> bool:
    """Return whether a stage has to run by itself: its elements depend on all, or a plan is better.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("C[i,j] += A[i,k] * B[k,j]"), 256)
    >>> is_alone(found, found.stages[0])
    True
    """
    if not slides(stage) or stage.where or not computation.points(stage):
        return True
    parts = cut_stage(computation, stage)
    if any(one.conditions or one.cuts(stage.summed, computation.sizes) for one in parts):
        return True
    found, _ = find_contraction(largest_part(computation, stage), computation.dtypes)
    return found is not None and found.multiplies and is_contraction(computation, stage)


def pays(together: float, apart: float) -> bool:
    """Return whether stages run together, by what that costs and what they cost one by one.

    Prices are not exact: where they tell little apart, less memory is touched together.

    Examples
    --------
    >>> pays(1.1, 1.0), pays(2.0, 1.0)
    (True, False)
    """
    return together <= PIPELINE_APART_GAIN * apart


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Stages, and who reads them.

    Parameters
    ----------
    request
        Of all stages.
    alone
        Those that run by themselves.
    pinned
        Those whose arrays others need: results, and what is read elsewhere.
    stages, readers
        By their names: in order, and those that read each.
    sources
        All arrays that each is made of.
    parts
        What was asked for some of them before.
    """

    request: NestRequest
    alone: frozenset[str]
    pinned: frozenset[str]
    stages: Mapping[str, Stage]
    readers: Mapping[str, Names]
    sources: Mapping[str, frozenset[str]]
    parts: dict[frozenset[str], NestRequest] = field(default_factory=dict)

    @classmethod
    def of(cls, request: NestRequest, pinned: frozenset[str] = frozenset()) -> Graph:
        """Return the graph of a computation."""
        computation = request.computation
        stages = {one.name: one for one in computation.stages}
        alone = frozenset(one.name for one in stages.values() if is_alone(computation, one))
        readers: dict[str, list[str]] = {name: [] for name in stages}
        sources: dict[str, frozenset[str]] = {}
        for stage in stages.values():
            own = frozenset(read.array for read in stage.reads)
            sources[stage.name] = own.union(*(sources.get(x, own) for x in own))
            for name in dict.fromkeys(read.array for read in stage.reads):
                if name in stages and name != stage.name:
                    readers[name].append(stage.name)
        several = {name: tuple(x) for name, x in readers.items()}
        return cls(request, alone, pinned, stages, several, sources)

    def part(self, names: Iterable[str]) -> NestRequest:
        """Return the request for some of the stages."""
        wanted = frozenset(names)
        if len(wanted) == len(self.stages):
            return self.request
        if wanted not in self.parts:
            several = [one for name, one in self.stages.items() if name in wanted]
            self.parts[wanted] = self.request.of(self.request.computation, *several)
        return self.parts[wanted]

    def fuse(self, names: Sequence[str]) -> list[Names]:
        """Return groups of stages, as few as there can be: their tiles are those of the last one.

        A result that others need, too, is one of them if all of it is needed there. So is one that
        none reads, of the last one's shape, if it is made of the same.
        """
        wanted, root_of, groups = set(names), dict[str, str](), dict[str, list[str]]()
        for name in reversed([x for x in self.stages if x in wanted]):
            readers = self.readers[name]
            roots = {root_of.get(x) for x in readers} or {self._beside(name, groups)}
            root = roots.pop() if len(roots) == 1 else None
            joins = root is not None and not {root, name} & self.alone
            root_of[name] = str(root) if joins else name
            groups.setdefault(root_of[name], []).append(name)
        found: list[Names] = []
        for several in groups.values():
            found += self._following(tuple(reversed(several)))
        return self.in_order(found)

    def _beside(self, name: str, roots: Iterable[str]) -> str | None:
        """Return the root that a result may be computed beside."""
        computation = self.request.computation
        for root in roots:
            shapes = {computation.array(x).shape for x in (name, root)}
            if len(shapes) == 1 and self.sources[name] & self.sources[root]:
                return root
        return None

    def segments(self, names: Names) -> list[Names]:
        """Return a group cut at each stage that several others read (Alg. 7)."""
        cut = {x for x in names if len([y for y in self.readers[x] if y in names]) > 1}
        return self.in_order(self._cut(names, cut | {names[-1]}))

    def head(self, names: Names, root: str) -> tuple[Names, Names]:
        """Return a stage of a group with all that lead to it alone, and the rest."""
        found = {root}
        for name in reversed(names[: names.index(root)]):
            readers = [x for x in self.readers[name] if x in names]
            if readers and set(readers) <= found:
                found.add(name)
        rest = tuple(x for x in names if x not in found)
        return tuple(x for x in names if x in found), rest

    def _following(self, names: Names) -> list[Names]:
        """Return a group without stages that follow none of its root's tiles: they run before.

        So do results that do not follow each letter that threads may divide.
        """
        if len(names) == 1:
            return [names]
        regions = find_regions(self.part(names).computation)
        tiled = list_tiled(regions)
        strips = {*list_slides(regions), *tiled[:1]} if self.request.threads > 1 else ()
        cut = {names[-1]}
        for name in names[:-1]:
            apart = not all(regions.letter_of(name, x) for x in strips)
            apart = name in self.pinned and (apart or not regions.covers(name))
            if apart or not any(regions.letter_of(name, x) for x in tiled):
                cut.add(name)
        return [names] if len(cut) == 1 else self._cut(names, cut)

    def _cut(self, names: Names, roots: set[str]) -> list[Names]:
        """Return a group as several, with some roots and those that come to be read by several."""
        root_of, groups = dict[str, str](), dict[str, list[str]]()
        for name in reversed(names):
            of = {root_of[x] for x in self.readers[name] if x in root_of}
            root_of[name] = of.pop() if len(of) == 1 and name not in roots else name
            groups.setdefault(root_of[name], []).append(name)
        return [tuple(reversed(one)) for one in groups.values()]

    def in_order(self, groups: Iterable[Names]) -> list[Names]:
        """Return groups in an order in which they can run: that of their roots."""
        order = list(self.stages)
        return sorted(groups, key=lambda one: order.index(one[-1]))


def split(
    graph: Graph, names: Names, fits: Callable[[Names], bool], price: Callable[[Names], float]
) -> list[Names]:
    """Return a group that caches do not hold as several that they do (Alg. 8).

    A head that fits is taken off in each way, and the rest is split in turn; the least sum of
    prices wins. A stage alone is left as it is.
    """
    known: dict[Names, tuple[float, list[Names]]] = {}

    def best(rest: Names) -> tuple[float, list[Names]]:
        if rest in known:
            return known[rest]
        if len(rest) == 1 or fits(rest):
            known[rest] = price(rest), [rest]
            return known[rest]
        options = []
        for root in rest[:-1]:
            head, tail = graph.head(rest, root)
            if len(head) > 1 and not fits(head):
                break
            cost, groups = best(tail)
            options.append((price(head) + cost, [head, *groups]))
        known[rest] = min(options, key=lambda one: one[0])
        return known[rest]

    found: list[Names] = []
    for segment in graph.segments(names):
        found += best(segment)[1]
    return graph.in_order(found)


def best_cuts(
    graph: Graph,
    names: Sequence[str],
    fits: Callable[[Names], bool],
    price: Callable[[Names], float],
) -> list[Names]:
    """Return groups of the least price together, by dynamic programming over cuts of the order.

    Parts that caches do not hold do not become longer.
    """
    least: list[tuple[float, list[Names]]] = [(0.0, [])]
    for end in range(1, len(names) + 1):
        options = []
        for begin in reversed(range(end)):
            groups = graph.fuse(names[begin:end])
            if begin < end - 1 and not all(map(fits, groups)):
                break
            cost = sum(map(price, groups))
            options.append((least[begin][0] + cost, [*least[begin][1], *groups]))
        least.append(min(options, key=lambda one: one[0]))
    return least[-1][1]
