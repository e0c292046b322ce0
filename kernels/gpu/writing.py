"""Kernels while they are written: their arguments, where elements are, and what becomes of sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from tilesolve.contractions.epilogue_terms import SUM
from tilesolve.contractions.statements.terms import Read, Term
from tilesolve.kernels.gpu.forms import FRAGMENTS, Ending
from tilesolve.kernels.gpu.targets import F16, F32, F64, GLOBAL, I16, I32, I64, Target, Values
from tilesolve.kernels.ir.half_precision import round_to_half, widen
from tilesolve.kernels.ir.term_values import TermValues

TYPES = {"float16": F16, "bfloat16": I16, "float32": F32, "float64": F64, "int32": I32}
"""What elements of C, and sums, are in memory."""

MAP_NAME = "_map"
"""What names of tensor maps end with, behind the array's name."""


class Writer:
    """Writes a kernel that takes addresses of arrays, then 32-bit numbers.

    Numbers called after an array and a side of it say how far apart elements are along this side,
    or where in the tables their places begin. The tables begin with where batches do.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        threads: int,
        arrays: Sequence[str],
        numbers: Sequence[str],
    ) -> None:
        maps = [at for at, one in enumerate(arrays) if one.endswith(MAP_NAME)]
        kinds = [target.map_kind if at in maps else GLOBAL for at in range(len(arrays))]
        kinds += [I32] * len(numbers)
        self.target, self.kernel = target, target.kernel(name, kinds, threads)
        if maps:
            target.mark_maps(self.kernel, maps)
        self.b = ir.IRBuilder(self.kernel.append_basic_block("begin"))
        self.given = dict(zip((*arrays, *numbers), self.kernel.args, strict=True))
        self.thread, self.batch = target.thread(self.b), target.block(self.b, 2)

    def _table(self, at: ir.Value) -> ir.Value:
        place = self.b.gep(self.given["tables"], [at], source_etype=I32)
        return self.b.load(place, align=4, typ=I32)

    def place(self, side: str, at: ir.Value, *, linear: bool) -> ir.Value:
        """Return how many elements from the tensor's begin something is along one side."""
        step = self.given[side]
        return self.b.mul(at, step) if linear else self._table(self.b.add(step, at))

    def base(self, array: str, number: int, count: int, kind: ir.Type) -> ir.Value:
        """Return where a tensor's batch begins, of so many tensors that the tables have."""
        at = self.b.add(self.b.mul(self.batch, I32(count)), I32(number))
        begin = self.b.zext(self._table(at), I64)
        return self.b.gep(self.given[array], [begin], source_etype=kind)


class _Elements(TermValues):
    """Terms of a sum and of elements of arrays, which are known."""

    def __init__(self, b: ir.IRBuilder, known: Mapping[Term, ir.Value], dtype: str) -> None:
        names = (one.array for one in known if isinstance(one, Read))
        super().__init__(b, dict.fromkeys(names, dtype), None)
        self.known = known

    def leaf(self, term: Term) -> ir.Value:
        """Return what is known."""
        return self.known[term]


class Results:
    """Writes what becomes of sums: results to C, or parts of sums, as they are, to an address."""

    def __init__(self, writer: Writer, ending: Ending, parts: ir.Value | None = None) -> None:
        self.writer, self.b, self.ending = writer, writer.b, ending
        self.dtype, self.summed = FRAGMENTS[ending.arithmetic].dtypes
        if parts is not None:
            self.ending, self.dtype, self.bases = Ending(ending.arithmetic), self.summed, [parts]
            return
        names = enumerate(ending.arrays, 2)
        count, kind = 2 + len(ending.arrays), TYPES[self.dtype]
        self.bases = [writer.base(name, at, count, kind) for at, name in names]

    def find(self, axis: int, at: ir.Value) -> Values:
        """Return where a row, of axis 0, or a column of C is in each array, as elements."""
        side = ("row", "column")[axis]
        return [
            self.writer.place(f"{name}_{side}", at, linear=linear[axis])
            for name, linear in zip(self.ending.arrays, self.ending.linear, strict=True)
        ]

    def store(self, row: Values, column: Values, one: ir.Value) -> None:
        """Store what becomes of a sum in C, where its row and its column have been found."""
        b = self.b
        places = [b.zext(b.add(*pair), I64) for pair in zip(row, column, strict=True)]
        if self.ending.term != SUM:
            known: dict[Term, ir.Value] = {SUM: one}
            for name, base, at in zip(self.ending.arrays, self.bases, places, strict=True):
                if (read := Read(name, ())) in self.ending.term.reads:
                    known[read] = self._load(b.gep(base, [at], source_etype=TYPES[self.dtype]))
            one = _Elements(b, known, self.summed).value(self.ending.term, self.summed)
        if self.dtype == "bfloat16":
            one = round_to_half(b, one, self.dtype)
        elif self.dtype == "float16":
            one = b.fptrunc(one, F16)
        place = b.gep(self.bases[0], [places[0]], source_etype=one.type)
        b.store(one, b.bitcast(place, GLOBAL))

    def _load(self, place: ir.Value) -> ir.Value:
        """Load an element, as sums are."""
        b, size = self.b, FRAGMENTS[self.ending.arithmetic].result
        found = b.load(place, align=size, typ=TYPES[self.dtype])
        if self.dtype == "bfloat16":
            return widen(b, found, self.dtype)
        return b.fpext(found, F32) if self.dtype == "float16" else found
