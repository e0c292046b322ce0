"""Loop programs as values: loops, what is computed in them, and rooms for what they keep.

What is planned and priced is a loop tree. A program is the form that lowering takes of one, with
all that follows from the statements written down: bounds, starts, holds, guards and barriers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.kernels.programs.nodes import Kind, list_nodes


@dataclass(frozen=True, slots=True)
class Loop:
    """``for name in range(max(low), min(high), step)``.

    A loop of step 1 gives a letter of the computation its values. One with a longer step walks
    tiles: its name is its own, and bounds of loops within it depend on it.

    Parameters
    ----------
    name
        A letter, or the name of a loop over tiles of it.
    low, high
        Bounds: the greatest of the first, the least of the second. They depend on loops around.
        The first low bound is where the letter begins: its tile around, if it has one.
    body
        What runs in each trip, in order.
    step
        How far trips are apart.
    kind
        How it runs. A vector loop is innermost and of step 1, and computes as many points at once
        as `computing.vector_lanes` tells; its ends are masked. A loop of threads is outermost, and
        each thread runs a range of its trips. Of a loop that is written out, the difference of
        two bounds is known: no more than `tuning.MAX_TRIPS_WRITTEN_OUT` trips. Where some are
        missing, the others run one by one.

    Notes
    -----
    Loops that are written out right around a vector loop whose bounds do not depend on them run
    within its steps: each step computes one vector for each of their trips. A read across such a
    block is transposed in registers: its lanes lie apart, and its unit axis is walked by a loop
    that is written out, by `tuning.LEAST_TRANSPOSED_ROWS` trips at least and best by as many as
    lanes.
    """

    name: str
    low: tuple[Affine, ...]
    high: tuple[Affine, ...]
    body: tuple[Node, ...]
    step: int = 1
    kind: Kind = "serial"

    @property
    def pace(self) -> Affine:
        """The step, as a position."""
        return Affine.number(self.step)

    def __post_init__(self) -> None:
        if not (self.low and self.high and self.body):
            raise SpecError(f"the loop {self.name} needs bounds and a body")
        if self.step < 1:
            raise SpecError(f"the loop {self.name} has step {self.step}; it must be positive")


@dataclass(frozen=True, slots=True)
class Compute:
    """What a stage computes where its letters stand.

    A stage whose term is a reduction as a whole puts its term into the element that lies there;
    any other one writes the element. Reductions within a larger term run inside of this.

    Parameters
    ----------
    stage
        Its position among the stages of the computation.
    """

    stage: int


@dataclass(frozen=True, slots=True)
class Start:
    """What a reduction begins with, written to the element where the output's letters stand.

    Of an update it is written to all elements of the array.
    """

    stage: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Elements of a reduction stay in registers while the body runs.

    The body is loops over summed letters, with vector loops and loops that are written out over
    letters of the output within them. Elements that these touch are loaded, or begin anew, before
    the body, and are stored behind it. Which they are depends on those of their bounds alone in
    which no summed letter is.

    All loops over letters of the output are written out here, those of kind vector as vectors: one
    over a tile of twice as many values as lanes keeps two vectors a row. Where a tile is smaller
    at an edge, lanes and points beyond it are masked. A vector loop over a summed letter gives each
    lane a sum of its own, which are put together in the end.

    Parameters
    ----------
    stage
        The reduction.
    body
        What runs meanwhile.
    anew
        Whether elements begin with the reduction's identity rather than with what lies there.
    """

    stage: int
    body: tuple[Node, ...]
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """A body that runs where conditions on loops around it hold."""

    conditions: tuple[Condition, ...]
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array of a thread's own that lives while the body runs.

    Parameters
    ----------
    name
        Of an array that a stage of the computation computes: it is kept here, not in memory of
        a call.
    origin
        The position along each axis that lies first; it depends on loops around.
    shape
        How many positions along each axis are kept.
    body
        What runs meanwhile.
    ring
        The axis along which places are used again: a position lies at its remainder by the
        extent.
    """

    name: str
    origin: tuple[Affine, ...]
    shape: tuple[int, ...]
    body: tuple[Node, ...]
    ring: int | None = None


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads wait for one another: what comes later reads what came before."""


Node = Loop | Compute | Start | Hold | Guard | Buffer | Barrier
"""A part of a program."""


@dataclass(frozen=True, slots=True)
class Program:
    """How a computation runs, with bounds that are explicit.

    `nests.programs.write_program` derives it from a loop tree; no plan keeps one.

    Parameters
    ----------
    computation
        What is computed.
    body
        What runs, in order. Loops of threads are parts of it, never within others.
    non_temporal
        Arrays that are written past the caches.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> computation = bind_stages(parse_stages("out[x] = A[x] + 1"), 100)
    >>> zero, end = Affine.number(0), Affine.number(100)
    >>> loop = Loop("x", (zero,), (end,), (Compute(0),), kind="vector")
    >>> [type(node).__name__ for node in Program(computation, (loop,)).nodes]
    ['Loop', 'Compute']
    """

    computation: Computation
    body: tuple[Node, ...]
    non_temporal: frozenset[str] = frozenset()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All parts, each before those within it."""
        return tuple(list_nodes(self.body))
