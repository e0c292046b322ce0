"""Traffic by compiled code: what `traffic` counts in Python, for some tilings of plain arrays.

A contraction's nest is a chain of loops over arrays whose axes are letters, or sums of letters that
no other axis has. For these the same steps are compiled (`traffic_walk`), and tests hold both to
the same figures. All else is counted in Python: statements, symbols, and more tilings at once than
NumPy takes longer for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import PACK_CROSSINGS, WHOLE_SUM_PASSES
from tilesolve.constants.tuning import COMPILED_POINTS, COMPILED_TILINGS
from tilesolve.kernels.runtime import traffic_fields as fields
from tilesolve.model.access import Access, Axis, Size
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import Call, Do, Loop, LoopTree, Work
from tilesolve.model.nest import Output
from tilesolve.packing.sizes import WORD_BYTES

_Sizes: TypeAlias = tuple[tuple[Size, ...], ...]

Found: TypeAlias = tuple[_Sizes, _Sizes, _Sizes, tuple[Size, ...], Size, Size]
"""What moves into each place, both ways, and what packing adds; what is copied, of that what copies
of windows have; and calls."""

_FILLED = ("panels", "windows")
"""Layouts of copies that calls fill."""


class _Copy(NamedTuple):
    """A copy of an access: what it holds, how, and where."""

    access: int
    holds: Access
    layout: str
    level: str


def count_compiled(tree: LoopTree, places: Sequence[LevelView]) -> Found | None:
    """Return what a tree moves into each of some places; None where Python has to count it.

    Parameters
    ----------
    tree
        One nest, or many of the same loops.
    places
        The register file and the caches, nearest first.
    """
    found = find_form(tree, places)
    return found and found[0].count(found[1])


def find_form(
    tree: LoopTree, places: Sequence[LevelView]
) -> tuple[Form, Mapping[str, Sequence[Size]]] | None:
    """Return what nests of the same loops have in common, and the steps of a tree's.

    None where Python has to count it, or where the compiled code is not there yet.
    """
    (work, *others), loops, copies = tree.works, list[tuple[str, str]](), list[_Copy]()
    if (
        others
        or tree.cells
        or not tree.aligned
        or prod(dict(work.extents).values()) > COMPILED_POINTS
    ):
        return None
    nodes, body, within, used = list[Any](), tree.body, [0, 0], [0] * len(work.accesses)
    while len(body) == 1 and not isinstance(body[0], Do):
        nodes.append(body[0])
        body = body[0].body
    steps: dict[str, list[Size]] = {letter: [] for letter, _ in work.extents}
    for node in reversed(nodes):
        if isinstance(node, Loop):
            loops.append((node.letter, node.kind))
            steps[node.letter].append(node.step)
        elif isinstance(node, Call):
            within[0] = len(loops)
        elif node.layout == "registers":
            within[1] = len(loops)
        else:
            copies.append(_Copy(node.access, node.holds, node.layout, node.level))
            used[node.access] = len(loops)
    single = all(one and type(one[0]) is int and one[0] == 1 for one in steps.values())
    if len(body) != 1 or not (steps and single) or not is_counting():
        return None
    touched = _touched_by(work, tuple(copies), tuple(places))
    if touched is None or any(kind == "threads" for _, kind in loops):
        return None
    return _form_of(touched, tuple(loops), tuple(used), (*within, tree.output)), steps


def is_counting() -> bool:
    """Return whether the compiled code is there; if not, what runs plans is made before it."""
    from tilesolve.kernels.runtime import traffic_walk  # loads the compiler's binding
    from tilesolve.kernels.runtime.compiled import is_ready

    return is_ready(traffic_walk.count_tilings, after=["tilesolve.kernels.runtime.macrokernel"])


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What tilings of the same loops have in common.

    Parameters
    ----------
    fields
        Their fields, but for those of tilings.
    arrays
        What these hold the addresses of.
    extents
        Of each letter.
    begins, words
        Where each array of what is worked out begins, in bytes, and how long all are.
    """

    fields: NDArray[np.int64]
    arrays: tuple[_Touched, NDArray[Any]]
    extents: tuple[tuple[str, int], ...]
    begins: NDArray[np.int64]
    words: int

    def count(
        self,
        steps: Mapping[str, Sequence[Size]],
        keep: NDArray[np.bool_] | None = None,
        limits: Sequence[float] | None = None,
    ) -> Found | None:
        """Return what tilings with some steps of each letter move, the innermost step first.

        None if there are too many, or steps are symbols.

        Parameters
        ----------
        steps
            Numbers, or arrays of them.
        keep
            Which tilings are asked for, one after another, if not all. Those are taken out of it
            whose count is not finished.
        limits
            What ends the count of a tiling, as `traffic_fields` has it.
        """
        shape: tuple[int, ...] = ()
        owns = []
        for sizes in steps.values():
            own: tuple[int, ...] = ()
            for size in sizes:
                if isinstance(size, np.ndarray):
                    own = np.broadcast_shapes(own, size.shape)
                elif not isinstance(size, int | float):
                    return None
            shape = np.broadcast_shapes(shape, own) if own else shape
            owns.append(own)
        tilings = prod(shape) if keep is None else int(np.count_nonzero(keep))
        if tilings > COMPILED_TILINGS and limits is None:
            return None
        return self._run(steps, owns, shape if keep is None else (tilings,), keep, limits)

    def _run(
        self,
        steps: Mapping[str, Sequence[Size]],
        owns: Sequence[tuple[int, ...]],
        shape: tuple[int, ...],
        keep: NDArray[np.bool_] | None,
        limits: Sequence[float] | None,
    ) -> Found:
        """Return what tilings move; each letter's steps have a shape of their own."""
        f, letters = self.fields.copy(), len(self.extents)
        depth, _, places, tensors = f[fields.DEPTH : fields.TENSORS + 1].tolist()
        chains, tilings = [prod(own) for own in owns], prod(shape)
        table = depth * sum(chains)
        ends = [0, letters, 2 * letters, *(2 * letters + part * table for part in (1, 2, 3))]
        words = np.zeros(ends[-1] + letters * tilings + self.words, np.int64)
        words[:letters], begin = chains, 0
        numbers = words[ends[-1] : ends[-1] + letters * tilings].reshape(letters, *shape)
        for number, ((letter, extent), own) in enumerate(zip(self.extents, owns, strict=True)):
            words[letters + number] = begin
            end = begin + depth * chains[number]
            sizes = words[ends[2] + begin : ends[2] + end].reshape(*own, depth)
            for at, size in enumerate((*steps[letter], max(1, extent))):
                sizes[..., at] = size
            if own:
                chosen = np.arange(chains[number]).reshape(own)
                numbers[number] = (
                    chosen if keep is None else np.broadcast_to(chosen, keep.shape)[keep]
                )
            begin = end
        found = np.zeros((tensors * (3 * places + 1) + 1, *shape))
        unlimited = [np.inf, *[0.0] * (fields.FIRST_SECONDS - 1 + tensors + 2 * places)]
        most = np.array(limits or unlimited)
        f[fields.LIMITS] = most.ctypes.data
        rows = [tensors * places * part for part in range(4)]
        start, result = words.ctypes.data, found.ctypes.data
        f[fields.CHAINS : fields.NUMBERS + 1] = [start + WORD_BYTES * at for at in ends]
        at_rows = (WORD_BYTES * tilings * row for row in (*rows, rows[3] + tensors))
        f[fields.MOVED : fields.CALLS + 1] = [result + at for at in at_rows]
        f[fields.KEPT_LETTER : fields.POSITIONS + 1] = self.begins + (
            start + WORD_BYTES * (len(words) - self.words)
        )
        f[fields.TILINGS] = tilings
        from tilesolve.kernels.runtime import traffic_walk  # loads the compiler's binding

        traffic_walk.count_tilings(f.ctypes.data)
        if keep is not None:
            counted = np.isfinite(found[-1])
            keep[keep] = counted
            found = found[:, counted]
        each: list[Size] = list(found) if shape else found.tolist()
        moved, packing, volumes = (
            tuple(tuple(each[at : at + tensors]) for at in range(begin, begin + rows[1], tensors))
            for begin in rows[:3]
        )
        copied = tuple(each[rows[3] : -1])
        relaid = sum(copied[t] for t in self.arrays[0].relaid)
        return moved, volumes, packing, copied, relaid, each[-1]


class _Touched:
    """What a work touches: its arrays and copies as forms, and footprints of these, by number."""

    def __init__(self, work: Work, copies: Sequence[_Copy], places: Sequence[LevelView]) -> None:
        self.extents = work.extents
        self.arrays, self.copies = work.accesses, {one.access: one for one in copies}
        self.tensors = range(len(self.arrays))
        self.forms: dict[Access, int] = {}
        self.footprints: dict[tuple[int, int, bool, float], int] = {}
        self.width = work.summed / self.arrays[0].element
        self.kinds, self.levels = [0 for _ in self.tensors], [0 for _ in self.tensors]
        names = [place.name for place in places]
        self.relaid = [t for t, one in self.copies.items() if one.layout == "windows"]
        for t, one in self.copies.items():
            self.kinds[t] = 1 if one.layout in _FILLED else 2
            made_before = one.layout == "prepared"
            self.levels[t] = len(places) if made_before else names.index(one.level)
        self.fields = np.zeros(fields.SIZE, np.int64)
        order = {letter: at for at, (letter, _) in enumerate(work.extents)}
        given = self.at_places(places)
        given |= self.of_forms(order)
        reals = self.in_reals(places)
        self.kept = _keep(self.fields, given, np.int64), _keep(self.fields, reals, np.float64)
        counts = len(places), len(self.arrays), len(self.forms), len(self.footprints)
        self.fields[fields.PLACES : fields.TILINGS] = counts

    def form(self, t: int, *, near: bool) -> int:
        """Return the form of an access: of its copy where that is near."""
        one = self.copies[t].holds if near and t in self.copies else self.arrays[t]
        return self.forms.setdefault(one, len(self.forms))

    def footprint(self, t: int, line: int, *, near: bool = False, largest: bool = False) -> int:
        """Return what `footprints_at` has: of largest boxes or of mean ones."""
        wide, copied = 1.0 if t else self.width, near and t in self.copies
        known = self.form(t, near=near), 1 if copied else line, largest, 1.0 if copied else wide
        return self.footprints.setdefault(known, len(self.footprints))

    def at_places(self, places: Sequence[LevelView]) -> dict[int, list[int]]:
        """Return the fields of accesses, and of places with these."""
        levels, form, footprint = self.levels, self.form, self.footprint
        pairs = [(at, place.line, t) for at, place in enumerate(places) for t in self.tensors]
        return {
            fields.ACCESSED: [form(t, near=False) for t in self.tensors],
            fields.COPIED: self.kinds,
            fields.COPY_LEVEL: levels,
            fields.COPY_FOOTPRINT: [
                footprint(t, 0) if t in self.relaid else footprint(t, 1, near=True)
                for t in self.tensors
            ],
            fields.READ_FORM: [form(t, near=at < levels[t]) for at, _, t in pairs],
            fields.HELD_FOOTPRINT: [
                footprint(t, line, near=at <= levels[t], largest=True) for at, line, t in pairs
            ],
            fields.MEAN_FOOTPRINT: [
                footprint(t, line, near=at < levels[t]) for at, line, t in pairs
            ],
            fields.SOURCE_FOOTPRINT: [
                footprint(t, line, largest=True) if at and self.kinds[t] == 1 else 0
                for at, line, t in pairs
            ],
            fields.OUTPUT_FOOTPRINT: [footprint(0, place.line) for place in places],
        }

    def of_forms(self, order: Mapping[str, int]) -> dict[int, list[int]]:
        """Return the fields of forms and of their footprints, once all are known."""
        forms = self.forms
        rows = [row for one in forms for row in _list_letters(one, len(order))]
        return {
            fields.FOOTPRINT_FORM: [form for form, *_ in self.footprints],
            fields.FOOTPRINT_LINE: [line for _, line, *_ in self.footprints],
            fields.FOOTPRINT_LARGEST: [largest for *_, largest, _ in self.footprints],
            fields.FORM_LETTERS: [sum(1 << order[x] for x in one.letters) for one in forms],
            fields.FORM_AXES: [len(one.letters) for one in forms],
            fields.FORM_ELEMENT: [one.element for one in forms],
            fields.FORM_WINDOWS: [
                0 if one.plain else 1 + (len(one.letters) > len(one.axes)) for one in forms
            ],
            fields.AXIS_LETTER: [order.get(letter, 0) for letter, *_ in rows],
            fields.AXIS_EXTENT: [extent for _, extent, *_ in rows],
            fields.AXIS_PITCH: [pitch for _, _, pitch, *_ in rows],
            fields.AXIS_STEP: [step for *_, step, _ in rows],
            fields.AXIS_ENDS: [ends for *_, ends in rows],
        }

    def in_reals(self, places: Sequence[LevelView]) -> dict[int, list[float]]:
        """Return the fields that are no integers."""
        copies, arrays = self.copies, self.arrays
        return {
            fields.FOOTPRINT_WIDTH: [width for *_, width in self.footprints],
            fields.FORM_BYTES: [one.whole for one in self.forms],
            fields.COPY_WIDTH: [
                copies[t].holds.element / arrays[t].element if t in copies else 1.0
                for t in self.tensors
            ],
            fields.CAPACITY: [place.capacity for place in places],
            fields.OPTIONS: [self.width, WHOLE_SUM_PASSES, PACK_CROSSINGS],
        }


def _is_counted(access: Access) -> bool:
    """Return whether what boxes touch of an access is known here; some may have no shape."""
    if access.plain:
        return access.loaded is None and len(access.rows) == len(access.axes)
    sums = all(axis.terms and axis == Axis(axis.terms) for axis in access.axes)
    alone = sum(len(axis.terms) for axis in access.axes) == len(access.letters)
    return access.loaded is None and sums and alone and len(access.shape) == len(access.axes)


def _list_letters(access: Access, most: int) -> list[tuple[str, int, int, int, bool]]:
    """Return for each letter of an access, and for some more, what fields of axes have."""
    found = [(letter, extent, pitch, 1, True) for letter, extent, pitch in access.rows]
    if not access.plain:
        found = [
            (letter, extent, access.element * pitch * step, step, at == len(axis.terms))
            for axis, extent, pitch in zip(access.axes, access.shape, access.pitches, strict=True)
            for at, (step, letter) in enumerate(axis.terms, start=1)
        ]
    return [*found, *[("", 0, 0, 0, False)] * (most - len(found))]


@lru_cache(maxsize=64)
def _touched_by(
    work: Work, copies: tuple[_Copy, ...], places: tuple[LevelView, ...]
) -> _Touched | None:
    """Return what a work touches; None where that is no box of letters, or sums of these."""
    arrays = work.accesses
    several = [*arrays, *(one.holds for one in copies)]
    plain = all(_is_counted(one) for one in several)
    # What windows reach to is divided by parts of lines, which is exact for powers of two.
    plain = plain and all(place.line & (place.line - 1) == 0 for place in places)
    written = [one.mode != "read" for one in arrays] == [not t for t in range(len(arrays))]
    known = all(one.layout in (*_FILLED, "prepared") for one in copies) and work.share == 1
    known = known and not any(one.layout == "windows" and one.holds.plain for one in copies)
    return _Touched(work, copies, places) if plain and written and known else None


@lru_cache(maxsize=256)
def _form_of(
    touched: _Touched,
    loops: tuple[tuple[str, str], ...],
    used: tuple[int, ...],
    within: tuple[int, int, Output],
) -> Form:
    """Return what tilings with some loops have in common.

    For each access `used` are the loops that use one filling of its copy. `within` are the loops of
    a call, those over which registers hold the output, and how that is written.
    """
    order = {letter: at for at, (letter, _) in enumerate(touched.extents)}
    seen = [letter for letter, _ in loops]
    f, (call, held, output) = touched.fields.copy(), within
    given: dict[int, Sequence[int]] = {
        fields.STEPS: [seen.count(letter) + 1 for letter in order],
        fields.LOOP_LETTER: [order[letter] for letter in seen],
        fields.LOOP_STEP: [seen[: at + 1].count(letter) for at, letter in enumerate(seen)],
        fields.LOOP_SIDE: [kind in ("vector", "unrolled") for _, kind in loops],
        fields.COPY_LOOPS: used,
    }
    kept = _keep(f, given, np.int64)
    depth, steps, tensors = max(given[fields.STEPS]), len(loops) + 1, len(used)
    f[: fields.PLACES] = len(order), depth, len(loops)
    unread = {"stream": 2, "store": 1}.get(output, 0)
    f[[fields.CALL, fields.HELD, fields.UNREAD]] = call, held, unread
    words = [*[steps] * 3, *[depth + 1] * 2, steps, *[len(order)] * 3]
    words += [len(touched.footprints) * steps, *[tensors] * 3, *[len(order)] * 2]
    begins = WORD_BYTES * np.cumsum([0, *words])
    return Form(f, (touched, kept), touched.extents, begins[:-1], sum(words))


def _keep(
    f: NDArray[np.int64], given: Mapping[int, Sequence[float]], kind: type[Any]
) -> NDArray[Any]:
    """Return one array of several, and write the address of each to its field."""
    kept = np.array([size for one in given.values() for size in one], kind)
    ends = np.cumsum([0, *map(len, given.values())])[:-1]
    f[list(given)] = kept.ctypes.data + WORD_BYTES * ends
    return kept
