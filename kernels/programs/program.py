"""Loop programs as values: loops, what is computed in them, and rooms for what they keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation

Kind = Literal["serial", "vector", "unrolled", "threads"]
"""How a loop runs: trip by trip, all lanes at once, written out, or divided among threads."""


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
    body
        What runs in each trip, in order.
    step
        How far trips are apart.
    kind
        How it runs. A vector loop is innermost and of step 1; a loop of threads is outermost; a
        loop that is written out has a step of 1 and a number of trips that is known, but for
        the last ones.
    """

    name: str
    low: tuple[Affine, ...]
    high: tuple[Affine, ...]
    body: tuple[Node, ...]
    step: int = 1
    kind: Kind = "serial"

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
    """What a reduction begins with, written to the element where the output's letters stand."""

    stage: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Elements of a reduction stay in registers while the body runs.

    The body is loops over summed letters, with vector loops and loops that are written out over
    letters of the output within them. Elements that these touch are loaded, or begin anew, before
    the body, and are stored behind it.

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
class Room:
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


Node = Loop | Compute | Start | Hold | Guard | Room | Barrier
"""A part of a program."""


@dataclass(frozen=True, slots=True)
class Program:
    """How a computation runs.

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
        return tuple(_all(self.body))


def _all(body: tuple[Node, ...]) -> Iterator[Node]:
    for node in body:
        yield node
        if not isinstance(node, Compute | Start | Barrier):
            yield from _all(node.body)
