"""Copies: stages that differ only in where they begin to read, as one stage with more axes.

Loops of Python's over shifts of an image write such stages. As one they are planned and compiled
once, and what is added up of all of them is a sum over the further axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilesolve.constants.nests import PIPELINE_COPIES
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Read, Reduce, Term
from tilesolve.nests.regions import slides
from tilesolve.pipelines.graph import rename_stage, substitute
from tilesolve.pipelines.windows import Grid


def join_copies(computation: Computation) -> Computation:
    """Return a computation with one stage in place of many that are alike.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> lines = [f"a{n}[x{n}] = sqrt(I[x{n}+{n}])" for n in range(8)]
    >>> lines.append("o[u] = " + " + ".join(f"a{n}[u] * I[u+{n}]" for n in range(8)))
    >>> sizes = {"u": 9} | {f"x{n}": 9 for n in range(8)}
    >>> for stage in join_copies(bind_stages(parse_stages(chr(10).join(lines)), sizes)).stages:
    ...     print(stage)
    a0[a0_c1,x0] = sqrt(I[a0_c1+x0])
    o[u] = sum(a0[o_c1,u] * I[o_c1+u], o_c1)
    """
    joiner = _Joiner(computation)
    joiner.join()
    return joiner.joined() if joiner.places else computation


Offset = tuple[int, bool]
"""Where a position begins, and whether that is the place of a copy."""


@dataclass(slots=True)
class _Joiner:
    """Finds stages that are alike, from those that read inputs alone on.

    `places` are the one that each such stage is a part of, and where in that it lies.
    """

    computation: Computation
    stages: dict[str, Stage] = field(init=False)
    readers: dict[str, int] = field(init=False)
    places: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    extents: dict[str, int] = field(init=False)
    arrays: dict[str, ArrayInfo] = field(init=False)

    def __post_init__(self) -> None:
        stages = self.computation.stages
        self.stages = {one.name: one for one in stages}
        self.readers = Counter(x for one in stages for x in {read.array for read in one.reads})
        self.extents = dict(self.computation.extents)
        self.arrays = {one.name: one for one in self.computation.arrays}

    def join(self) -> None:
        """Put one stage in place of those that are alike, wherever there are many."""
        depths: dict[str, int] = {}
        levels: dict[int, list[Stage]] = {}
        for stage in self.computation.stages:
            depths[stage.name] = 1 + max([0, *(depths.get(x.array, 0) for x in stage.reads)])
            levels.setdefault(depths[stage.name], []).append(stage)
        for _, several in sorted(levels.items()):
            alike: dict[object, list[tuple[Stage, tuple[Offset, ...]]]] = {}
            for stage in several:
                if self._may_join(stage):
                    form, offsets = self._form(stage)
                    alike.setdefault(form, []).append((stage, offsets))
            for copies in alike.values():
                grid = _grid([offsets for _, offsets in copies])
                if grid is not None:
                    self._put_together([stage for stage, _ in copies], grid)

    def joined(self) -> Computation:
        """Return the computation with what was found."""
        for name in reversed([x for x in self.stages if x not in self.places]):
            if name in self.stages:
                self._sum_up(self.stages[name])
        for name, stage in self.stages.items():
            if name not in self.places:
                found = list[Offset]()
                term = self._bare(stage.term, found)
                filled = self._fill(term, (Affine.number(one) for one, _ in found))
                self.stages[name] = replace(stage, term=filled, augmented=False)
        return replace(
            self.computation,
            stages=tuple(self.stages.values()),
            extents=tuple(self.extents.items()),
            arrays=tuple(self.arrays.values()),
        )

    def _may_join(self, stage: Stage) -> bool:
        """Return whether a stage may be a copy: it computes each element by itself, for others."""
        sums = any(isinstance(one, Reduce) for one in stage.term.all)
        other = stage.where or stage.name in self.computation.outputs
        return slides(stage) and not sums and not other

    def _form(self, stage: Stage) -> tuple[object, tuple[Offset, ...]]:
        """Return what stages that are alike have in common, and the offsets of one."""
        own = {x: f"_{number}" for number, x in enumerate(stage.letters)}
        named, offsets = rename_stage(stage, own), list[Offset]()
        bare = self._bare(named.term, offsets)
        sizes = tuple(self.extents[x] for x in stage.letters)
        return (named.axes, bare, stage.dtype, sizes), tuple(offsets)

    def _bare(self, term: Term, offsets: list[Offset]) -> Term:
        """Return a term whose positions begin at 0, and add where they began to offsets."""
        if not isinstance(term, Read):
            parts = [self._bare(one, offsets) for one in term.parts]
            return term.rebuilt(parts) if parts else term
        name, at = self.places.get(term.array, (term.array, ()))
        offsets += ((one, True) for one in at)
        places: list[Affine | Term] = [Affine.number(0)] * len(at)
        for one in term.subscripts:
            if isinstance(one, Affine):
                offsets.append((one.offset, False))
                places.append(replace(one, offset=0))
            else:
                places.append(self._bare(one, offsets))
        return Read(name, tuple(places))

    def _fill(self, term: Term, given: Iterator[Affine]) -> Term:
        """Return a term whose positions begin at some places."""
        if not isinstance(term, Read):
            parts = [self._fill(one, given) for one in term.parts]
            return term.rebuilt(parts) if parts else term
        places: list[Affine | Term] = []
        for one in term.subscripts:
            if isinstance(one, Affine):
                more = next(given)
                places.append(Affine.of((*one.terms, *more.terms), more.offset, one.divisor))
            else:
                places.append(self._fill(one, given))
        return Read(term.array, tuple(places))

    def _put_together(self, copies: Sequence[Stage], grid: Grid) -> None:
        """Put one stage in place of some."""
        first = copies[0]
        letters = self._new_letters(first.name, grid)
        term = self._fill(self._bare(first.term, []), grid.places(letters))
        for stage, place in zip(copies, grid.members, strict=True):
            self.places[stage.name] = first.name, place
            if stage is not first:
                del self.stages[stage.name], self.arrays[stage.name]
        axes = (*map(Affine.letter, letters), *first.axes)
        self.stages[first.name] = replace(first, axes=axes, term=term, augmented=False)
        info = self.arrays[first.name]
        self.arrays[first.name] = replace(info, shape=(*grid.counts, *info.shape))

    def _new_letters(self, name: str, grid: Grid) -> list[str]:
        """Return letters for the axes of a grid, which have its extents."""
        letters = [f"{name}_c{number}" for number, _ in enumerate(grid.counts, 1)]
        self.extents |= dict(zip(letters, grid.counts, strict=True))
        return letters

    def _sum_up(self, stage: Stage) -> None:
        """Make a stage that adds up all copies of another one a sum, if it is that, in order."""
        kind = stage.dtype or stage.term.kind(self.computation.dtypes)
        sums = any(isinstance(one, Reduce) for one in stage.term.all)
        if kind not in ("float32", "float64") or sums or stage.where or not slides(stage):
            return
        added, gone = self._list_added(stage, kind)
        if not added or not any(read.array in self.places for read in added[0].reads):
            return
        found: list[list[Offset]] = [[] for _ in added]
        forms = [(self._bare(*pair), tuple(pair[1])) for pair in zip(added, found, strict=True)]
        grid = _grid([offsets for _, offsets in forms])
        if grid is None or len({form for form, _ in forms}) > 1:
            return
        pairs = zip(grid.columns, forms[0][1], strict=True)
        moved = {axis for (_, _, axis), (_, copy) in pairs if copy}
        ordered = list(grid.members) == sorted(grid.members)
        if not ordered or not moved.issuperset(range(len(grid.counts))):
            return
        letters = self._new_letters(stage.name, grid)
        term = Reduce("add", tuple(letters), self._fill(forms[0][0], grid.places(letters)))
        self.stages[stage.name] = replace(stage, term=term, dtype=kind, augmented=False)
        self.places[stage.name] = stage.name, ()
        for name in gone:
            del self.stages[name], self.arrays[name]

    def _list_added(self, stage: Stage, kind: str) -> tuple[list[Term], list[str]]:
        """Return all that a stage adds up but zeros, and the stages that add up parts of that."""
        found, gone, waiting = list[Term](), list[str](), [stage.term]
        while waiting:
            one = waiting.pop()
            if isinstance(one, Apply) and one.name == "add":
                waiting += reversed(one.arguments)
                continue
            maker = self._adds_up(one, kind)
            if maker is not None and isinstance(one, Read):
                letters = zip(maker.output_letters(), one.subscripts, strict=True)
                waiting.append(substitute(maker.term, dict(letters)))
                gone.append(maker.name)
            elif one != Number(0):
                found.append(one)
        return found, gone

    def _adds_up(self, term: Term, kind: str) -> Stage | None:
        """Return the stage that adds up what a term is, if it does that for the term alone."""
        if not isinstance(term, Read) or term.array in self.places or term.plain is None:
            return None
        maker = self.stages.get(term.array)
        if maker is None or self.readers[maker.name] > 1 or not self._may_join(maker):
            return None
        adds = isinstance(maker.term, Apply) and maker.term.name == "add"
        same = (maker.dtype or maker.term.kind(self.computation.dtypes)) == kind
        return maker if adds and same else None


def _grid(offsets: Sequence[Sequence[Offset]]) -> Grid | None:
    """Return the grid of many offsets; None if they are few, or none."""
    if len(offsets) < PIPELINE_COPIES:
        return None
    return Grid.of([tuple(one for one, _ in several) for several in offsets])
