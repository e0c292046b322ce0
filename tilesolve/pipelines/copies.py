"""Copies: stages that differ only in where they begin to read, as one stage with more axes.

Loops of Python's over shifts of an image write such stages. As one they are planned and compiled
once, and what is added up of all of them is a sum over the further axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilesolve.constants.nests import PIPELINE_COPIES
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Read, Reduce, Term
from tilesolve.nests.regions import slides
from tilesolve.pipelines.graph import substitute
from tilesolve.pipelines.grids import Grid, Offsets, begin_at, find_form, lay_bare


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
            alike: dict[object, list[tuple[Stage, Offsets]]] = {}
            for stage in several:
                if self._may_join(stage):
                    form, offsets = find_form(stage, self.extents, self.places)
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
                term, offsets = lay_bare(stage.term, self.places)
                filled = begin_at(term, map(Affine.number, offsets))
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

    def _put_together(self, copies: Sequence[Stage], grid: Grid) -> None:
        """Put one stage in place of some."""
        first = copies[0]
        letters = self._new_letters(first.name, grid)
        bare, _ = lay_bare(first.term, self.places)
        term = begin_at(bare, grid.places(letters))
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
        forms = [lay_bare(one, self.places) for one in added]
        grid = _grid([offsets for _, offsets in forms])
        if grid is None or len({form for form, _ in forms}) > 1:
            return
        shifted = {x: (name, tuple(n + 1 for n in at)) for x, (name, at) in self.places.items()}
        pairs = zip(grid.columns, forms[0][1], lay_bare(added[0], shifted)[1], strict=True)
        moved = {axis for (_, _, axis), one, other in pairs if one != other}  # places of copies
        ordered = list(grid.members) == sorted(grid.members)
        if not ordered or not moved.issuperset(range(len(grid.counts))):
            return
        letters = self._new_letters(stage.name, grid)
        term = Reduce("add", tuple(letters), begin_at(forms[0][0], grid.places(letters)))
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


def _grid(offsets: Sequence[Offsets]) -> Grid | None:
    """Return the grid of many offsets; None if they are few, or none."""
    return Grid.of(offsets) if len(offsets) >= PIPELINE_COPIES else None
