"""Solutions: what a strategy found for a problem on a machine, as one value.

Plans, reports, files and what runs all take a `Solution`; none of them changes it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from tilesolve.constants.policy import DIVIDED_EXTENT, PARTIAL_OUTPUTS_SHARE
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.access import touched_bytes
from tilesolve.model.fused import Fused, fuse_share
from tilesolve.model.nest import Nest, Output
from tilesolve.model.price import Price, list_levels, packing_share
from tilesolve.model.score import begin_seconds, score_price
from tilesolve.model.starts import charge_sources, start_arrays
from tilesolve.planning.composition.scheme import Scheme
from tilesolve.planning.setting import Choice, RuledOut
from tilesolve.planning.waiting import crossing_seconds, store_seconds, waiting_seconds

Chains = tuple[tuple[str, tuple[int, ...]], ...]
"""For each class its tile sizes, nearest cache first."""


@dataclass(frozen=True, slots=True)
class Search:
    """How the geometric program found the tiles.

    Parameters
    ----------
    considered, pruned, solved
        Choices of innermost loops: all, ruled out by a bound, solved.
    by_ipopt
        Programs that IPOPT was asked for, as the interior point did not arrive: of choices, of
        bounds and of refinements.
    permutations
        Loop permutations that the choices stand for, in the paper's count.
    relaxed
        Seconds of each server and of the arithmetic at the continuous optimum, as pairs.
    tiles
        The continuous tile sizes, by symbol, as pairs.
    elasticities
        By how many percent the time falls when a bandwidth, a capacity or the arithmetic
        grows by one percent, as pairs.
    spread
        Relative difference between several starts; 0 where one is enough.
    integral
        Seconds of the integer class tiles, before they became boxes.
    priced
        Integer tilings that were compared.
    ruled_out
        The pruned choices, with what proves their bounds.
    runner_up
        The second best choice and its seconds; None if there is just one.
    """

    considered: int
    pruned: int
    solved: int
    by_ipopt: int
    permutations: int
    relaxed: tuple[tuple[str, float], ...]
    tiles: tuple[tuple[str, float], ...]
    elasticities: tuple[tuple[str, float], ...]
    spread: float
    integral: float
    priced: int
    ruled_out: tuple[RuledOut, ...]
    runner_up: tuple[Choice, float] | None

    @property
    def strategy(self) -> str:
        """The name of what found it."""
        return "solver"


@dataclass(frozen=True, slots=True)
class Composed:
    """A scheme, and how it was found, or that it was given.

    Parameters
    ----------
    scheme
        Of the whole problem.
    strategy
        The name of what found it; ``"scheme"`` where it was given.
    considered, kept
        Schemes that there were, and those that were priced.
    """

    scheme: Scheme
    strategy: str
    considered: int
    kept: int


@dataclass(frozen=True, slots=True)
class Sliced:
    """How SConv's analysis cut a layer.

    Parameters
    ----------
    slices
        The schedule and the tiles, as text.
    """

    slices: str

    @property
    def strategy(self) -> str:
        """The name of what found it."""
        return "slicing"


@dataclass(frozen=True, slots=True)
class Solution:
    """How to run a problem on a machine, what that is predicted to cost, and where it comes from.

    Parameters
    ----------
    problem
        What is computed.
    machine
        Where.
    threads
        Cores that share the work.
    split
        The letter whose range the threads divide; None for one thread. Of a sum each thread has a
        part, and what they find is added.
    vector
        The letter that vectors lie along, if that is not the output's last one.
    epilogue
        What is done to each element of C in the end; None for nothing.
    output
        How C is written.
    microkernel
        The register tile and its costs.
    levels
        The caches that tiles were chosen for, nearest first.
    choice
        For each of these tiles the classes of the loops around it, innermost first.
    classes
        For each class the chosen tile sizes, nearest cache first.
    nearest
        The box of the nearest chosen tile, as pairs; its loops may run with those of others.
    nest
        Loops and boxes over letters, of one thread's share: as they run for arrays in C order.
    cost
        What the nest costs, level by level.
    origin
        How it was found.
    """

    problem: Problem
    machine: Machine
    threads: int
    split: str | None
    vector: str | None
    epilogue: Epilogue | None
    output: Output
    microkernel: Microkernel
    levels: tuple[str, ...]
    choice: Choice
    classes: Chains
    nearest: tuple[tuple[str, int], ...]
    nest: Nest
    cost: Price
    origin: Search | Composed | Sliced

    def __repr__(self) -> str:
        return (
            f"<Solution {self.problem} on {self.machine.name}: {self.cost!r}, by {self.strategy}>"
        )

    @property
    def share(self) -> Problem:
        """The part of the problem that one thread computes, as tiles are found for it."""
        return share_of(self.problem, self.split, self.threads).with_vector(self.vector)

    @property
    def fused(self) -> Fused:
        """The share over classes; extents of 0 count as 1, since tiles have logarithms."""
        return fuse_share(self.share)

    @property
    def parts(self) -> list[tuple[Problem, dict[str, int]]]:
        """What each thread computes: a problem, and where its letters begin."""
        split = self.split
        if split is None:
            return [(self.problem.with_vector(self.vector), {})]
        whole, step = self.problem.sizes[split], self.share.sizes[split]
        found = []
        for begin in range(0, max(1, whole), max(1, step)):
            sizes = {**self.problem.sizes, split: min(step, whole - begin)}
            found.append((self.problem.part(sizes).with_vector(self.vector), {split: begin}))
        return found

    @property
    def partial_outputs(self) -> int:
        """How many arrays there are beside C for what threads find that divide a sum."""
        return count_partials(self.problem, self.split, self.threads)

    @property
    def search(self) -> Search:
        """How the geometric program found it.

        Raises
        ------
        PlanError
            If another strategy did.
        """
        if not isinstance(self.origin, Search):
            raise PlanError(f"the plan was made by {self.strategy!r}, not by the solver")
        return self.origin

    @property
    def strategy(self) -> str:
        """The name of what found it; ``"scheme"`` where that was given."""
        return self.origin.strategy

    @property
    def seconds(self) -> float:
        """The predicted time: the score, which is the least that was found."""
        return self.score

    @property
    def score(self) -> float:
        """The seconds that it is compared by with other solutions of its problem."""
        return self._score(self.cost, self.waiting)

    def score_after(self, between: Sequence[float]) -> float:
        """Return the score amid other works, of tensors that caches may hold.

        Parameters
        ----------
        between
            How many bytes all threads touched since each tensor was, the output first.
        """
        places, own = list_levels(self.machine, self.threads), [x / self.threads for x in between]
        started = start_arrays(self.cost, places, "cold", own)
        return self._score(charge_sources(started), self._waiting(started))

    def _score(self, cost: Price, waiting: float) -> float:
        costs = self.machine.costs
        return begin_seconds(cost, costs) + score_price(cost, costs.level_overlap, waiting)

    @property
    def waiting(self) -> float:
        """Seconds lost at ends of runs in memory, for late lines, stores of C, and other cores."""
        return self._waiting(self.cost)

    def _waiting(self, cost: Price) -> float:
        priced = self.share, self.nest, cost, self.machine
        waiting = waiting_seconds(*priced, dict(self.nearest)) + store_seconds(*priced)
        return waiting + crossing_seconds(self.problem, self.split, self.threads, self.machine)

    @property
    def packing_share(self) -> float:
        """The share of the predicted time that packing has."""
        return packing_share(
            *(self.cost, self.nest, self.machine, self.microkernel),
            *(self.problem.dtype, self.threads),
        )

    @property
    def flops(self) -> float:
        """Predicted flop/s of all threads together."""
        return self.problem.flops / self.seconds if self.seconds else 0.0

    @property
    def roofline(self) -> float:
        """Seconds that no implementation beats: arithmetic at peak, each tensor moved once."""
        return self.roofline_at(self.machine.peak(self.problem.dtype, self.threads))

    def roofline_at(self, peak: float) -> float:
        """Return the roofline where all threads together reach another peak, in flop/s."""
        bandwidth = self.machine.bandwidth(self.machine.memory, self.threads)
        return max(self.problem.flops / peak, sum(touched_bytes(self.problem)) / bandwidth)


def class_tiles(nest: Nest, share: Problem) -> tuple[tuple[str, ...], Choice, Chains]:
    """Return the levels, the loops and the tiles of classes that a nest over letters has.

    Examples
    --------
    >>> problem = Problem.of("abcd-aebf-dfce", 8)
    >>> nest = Nest.of(problem, [("register", "", 2), ("L1", "efabcd", 4), ("memory", "dcba", 8)])
    >>> class_tiles(nest, problem)
    (('L1',), ('N',), (('M', (16,)), ('N', (16,)), ('K', (16,))))
    """
    groups, tiles = fuse_share(share).groups, nest.bands[1:]
    index = {letter: name for name, letters in groups for letter in letters}
    first: list[str | None] = []
    for tile, around in pairwise(tiles):
        running = (index[i] for i in around.order if around[i] > tile[i])
        first.append(next(running, None))
    chains = tuple(
        (name, tuple(prod(band[i] for i in letters) for band in tiles[:-1]))
        for name, letters in groups
    )
    return tuple(band.level for band in tiles[:-1]), tuple(first), chains


def share_of(problem: Problem, split: str | None, threads: int) -> Problem:
    """Return the part of a problem that one of several threads computes.

    Examples
    --------
    >>> share_of(Problem.of("ik-ij-jk", 10), "i", 3).sizes["i"]
    4
    """
    if split is None:
        return problem
    sizes = dict(problem.sizes)
    sizes[split] = -(-sizes[split] // threads)
    return problem.part(sizes)


def count_partials(problem: Problem, split: str | None, threads: int) -> int:
    """Return how many partial outputs there are where threads divide a letter: none unless a sum.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", 10)
    >>> [count_partials(problem, letter, 3) for letter in (None, "i", "j")]
    [0, 0, 2]
    """
    if split is None or split in problem.spec.output.letters:
        return 0
    whole = max(1, problem.sizes[split])
    return -(-whole // -(-whole // threads)) - 1


def divisible_sums(problem: Problem, threads: int) -> tuple[str, ...]:
    """Return the sums that threads may divide: none if partial outputs would be large.

    None of halves either: their partial outputs would be rounded before they are added. And none
    where values are not added up, nor of layers of which a letter of C can be divided: what
    follows them would be a pass of its own, over outputs that new memory is needed for.

    Examples
    --------
    >>> divisible_sums(Problem.of("ik-ij-jk", {"i": 40, "j": 2000, "k": 40}), 2)
    ('j',)
    >>> divisible_sums(Problem.of("ik-ij-jk", 40), 2)
    ()
    """
    output, *operands = problem.bytes
    longest = max((problem.sizes[i] for i in problem.spec.output.letters), default=0)
    if problem.constant and longest >= DIVIDED_EXTENT * threads:
        return ()
    added = not is_half(problem.dtype) and (problem.pairing is None or problem.pairing.adds)
    if not added or (threads - 1) * output > PARTIAL_OUTPUTS_SHARE * sum(operands):
        return ()
    return tuple(i for i in problem.sizes if i not in problem.spec.output.letters)


def split_letters(problem: Problem, threads: int) -> list[str | None]:
    """Return the letters that threads may divide: the longest of each class of the output.

    Of each class also the longest letter whose parts are alike and cut no tensor's lines: an
    operand that is read in place should begin with a line, see docs/decisions/010-parts.md. Those
    of sums come last, where they may be divided.

    Examples
    --------
    >>> split_letters(Problem.of("ik-ij-jk", {"i": 2000, "j": 40, "k": 40}), 2)
    ['i', 'k']
    >>> split_letters(Problem.of("ik-ij-jk", {"i": 40, "j": 2000, "k": 40}), 2)
    ['i', 'k', 'j']
    """
    if threads == 1:
        return [None]
    own, sums = set(problem.spec.output.letters), set(divisible_sums(problem, threads))
    found: list[str | None] = []
    for among in (own, sums):
        letters = _longest_letters(problem, threads, among)
        found += letters or ([None] if among is own else [])
    return found


def _longest_letters(problem: Problem, threads: int, among: Set[str]) -> list[str]:
    """Return the longest of some letters of each class, and the longest that cuts no lines."""
    sizes = problem.sizes
    tensors = range(len(problem.spec.tensors))
    contiguous = {
        i for t in tensors for i, step in problem.strides(t).items() if step == problem.itemsize
    }
    found: dict[str, None] = {}
    for group in (c.letters for c in problem.classes if among >= set(c.letters)):
        whole = [i for i in group if i not in contiguous and sizes[i] % threads == 0]
        found |= {
            max(letters, key=sizes.__getitem__): None for letters in (group, whole) if letters
        }
    return [i for i in found if sizes[i] > 1]
