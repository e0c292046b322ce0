"""`einsum` and `tensordot` on Dask arrays: lazy, planned for the workers of a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from tilesolve.constants.network import ALTERNATIVES, MOST_ROOMS, ROOM_STEP, SLIVER_SHARE
from tilesolve.contractions.errors import MemoryLimitError, SizeError, SpecError
from tilesolve.contractions.half_precision import summed_dtype
from tilesolve.contractions.letters import fresh
from tilesolve.contractions.problem import OPERAND_DTYPES, Problem
from tilesolve.contractions.subscripts import read
from tilesolve.distributed.clients import Team, find_team
from tilesolve.distributed.graph import PlacedLayer, Promise, Writer, make_array
from tilesolve.distributed.sources import Source, check_array, open_source
from tilesolve.expressions.dispatch import Options, Request
from tilesolve.expressions.paths import find_path, split_path
from tilesolve.expressions.step_kernels import in_ascii
from tilesolve.machine.model import Machine
from tilesolve.planning.network import list_divisions
from tilesolve.planning.worker_schedule import Schedule
from tilesolve.system.units import format_size


def einsum(
    subscripts: str,
    *arrays: Any,
    client: Any = None,
    memory_limit: int | None = None,
) -> da.Array:
    """Contract Dask arrays, each worker its share, with the blocks that move least.

    Nothing is computed before the result is. Chunks of operands may lie as they like: they are put
    together into the blocks of the plan once.

    Parameters
    ----------
    subscripts
        As `tilesolve.einsum` takes them, in text; no letter stands twice in an operand.
    *arrays
        Dask arrays, or what NumPy makes arrays of.
    client
        The client whose workers compute; if None, the one in force, or this process.
    memory_limit
        Bytes that blocks may take on one worker at any time; if None, 60 % of its own limit.

    Raises
    ------
    SpecError, SizeError, DtypeError
        If subscripts and arrays do not fit, chunks have unknown sizes, or elements are no numbers.
    MemoryLimitError
        If blocks do not fit beside each other in that much memory.
    MachineError
        If the client is closed, or has no workers.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((6, 8), chunks=3)
    >>> einsum("ij,kj->ik", x, x).compute(scheduler="sync").tolist()[0]
    [8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    """
    operands = [check_array(array, number) for number, array in enumerate(arrays)]
    form = read(subscripts, [array.ndim for array in operands])
    for number, letters in enumerate(form.operands):
        if form.spec is not None or len(set(letters)) < len(letters):
            raise SpecError(
                f"{form.operand(number)} of {subscripts!r} has a letter twice, or affine "
                "subscripts: take the diagonal first"
            )
    sizes = form.sizes([array.shape for array in operands])
    for number, (letters, array) in enumerate(zip(form.operands, operands, strict=True)):
        for axis, letter in enumerate(letters):
            if array.shape[axis] != sizes[letter]:
                raise SizeError(
                    f"{form.name(letter)} of {form.operand(number)} has extent "
                    f"{array.shape[axis]}, elsewhere {sizes[letter]}: Dask arrays are not broadcast"
                )
    dtype = np.result_type(*operands)
    team = find_team(client, memory_limit)
    *texts, output = in_ascii(",".join((*form.operands, form.output))).split(",")
    plain = dict(zip(in_ascii("".join(sizes)), sizes.values(), strict=True))
    return _contract_all(texts, output, operands, plain, dtype, team)


def tensordot(
    first: Any,
    second: Any,
    axes: int | Sequence[Any] = 2,
    *,
    client: Any = None,
    memory_limit: int | None = None,
) -> da.Array:
    """Sum products over axes as `numpy.tensordot` does; see `einsum`.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((6, 8), chunks=3)
    >>> float(tensordot(x, x, 2).compute(scheduler="sync"))
    48.0
    """
    ranks = np.ndim(first), np.ndim(second)
    if isinstance(axes, int):
        sides = [[*range(ranks[0] - axes, ranks[0])], [*range(axes)]]
    else:
        sides = [np.atleast_1d(one).tolist() for one in axes]
    able = len(sides) == 2 and len(sides[0]) == len(sides[1])
    for rank, side in zip(ranks, sides, strict=False):
        able &= all(-rank <= at < rank for at in side) and len({at % rank for at in side}) == len(
            side
        )
    if not able:
        raise SpecError(
            "axes must be a number, or two lists as long as each other of different axes, of "
            f"arrays that have {ranks[0]} and {ranks[1]}; got {axes!r}"
        )
    pairs = [(a % ranks[0], b % ranks[1]) for a, b in zip(*sides, strict=True)]
    letters = fresh("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", taken=())
    one, other = ([next(letters) for _ in range(rank)] for rank in ranks)
    for a, b in pairs:
        other[b] = one[a]
    summed = {one[a] for a, _ in pairs}
    output = "".join(letter for letter in (*one, *other) if letter not in summed)
    text = f"{''.join(one)},{''.join(other)}->{output}"
    return einsum(text, first, second, client=client, memory_limit=memory_limit)


def promises(array: da.Array) -> tuple[Promise, ...]:
    """Return what all contractions in an array's graph are to take.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((6, 8), chunks=3)
    >>> promises(einsum("ij,kj->ik", x, x))[0].sent
    (0, 0, 0)
    """
    layers = array.dask.layers.values()
    return tuple(layer.promise for layer in layers if isinstance(layer, PlacedLayer))


def _contract_all(
    texts: list[str],
    output: str,
    arrays: list[da.Array],
    sizes: dict[str, int],
    dtype: np.dtype[Any],
    team: Team,
) -> da.Array:
    """Return the contraction of all operands, pair by pair in the order of opt_einsum."""
    if len(arrays) == 1:
        return _reorder(texts[0], output, arrays[0])
    request = Request(sizes, dtype, Options(None, True, None))
    for pair in split_path(texts, output, find_path(request, texts, output)):
        left = [text for at, text in enumerate(texts) if at not in pair.takes]
        wanted = output if not left else "".join(sorted(pair.letters))
        one, other = sorted(pair.takes)
        made = _contract(texts[one], texts[other], wanted, arrays[one], arrays[other], dtype, team)
        arrays = [array for at, array in enumerate(arrays) if at not in pair.takes] + [made]
        texts = [*left, wanted]
    return arrays[0]


def _reorder(text: str, output: str, array: da.Array) -> da.Array:
    """Return an array summed over what the output lacks, with its axes in the output's order."""
    lacking = tuple(axis for axis, letter in enumerate(text) if letter not in output)
    found = array.sum(axis=lacking, dtype=array.dtype) if lacking else array
    left = "".join(letter for letter in text if letter in output)
    return found if left == output else found.transpose([left.index(i) for i in output])


def _contract(
    one: str,
    other: str,
    output: str,
    first: da.Array,
    second: da.Array,
    dtype: np.dtype[Any],
    team: Team,
) -> da.Array:
    """Return the contraction of two arrays."""
    kept = [
        "".join(i for i in text if i in output or i in rest)
        for text, rest in ((one, other), (other, one))
    ]
    first, second = _reorder(one, kept[0], first), _reorder(other, kept[1], second)
    text = f"{kept[0]},{kept[1]}->{output}"
    sizes = dict(zip(kept[0] + kept[1], first.shape + second.shape, strict=True))
    if not all(sizes.values()):
        return da.zeros([sizes[i] for i in output], dtype=dtype)
    # Other dtypes are computed by NumPy; their plan is that of doubles, for as many elements.
    known = dtype.name if dtype.name in OPERAND_DTYPES else "float64"
    problem, machine = Problem.of(text, sizes, known), Machine.load(None)
    sources = [open_source(array, team.held(array)) for array in (first, second)]
    key = tokenize(text, first.name, second.name, team.addresses)
    edges: dict[str, frozenset[int]] = {}
    for letters, source in zip(kept, sources, strict=True):
        for letter, bounds in zip(letters, source.bounds, strict=True):
            edges[letter] = edges.get(letter, frozenset()) | _drop_slivers(bounds)
    found = _find_schedule(problem, machine, team, sources, edges, key, dtype)
    return make_array(found, text, dtype)


def _find_schedule(
    problem: Problem,
    machine: Machine,
    team: Team,
    sources: list[Source],
    edges: dict[str, frozenset[int]],
    key: str,
    dtype: np.dtype[Any],
) -> Writer:
    """Return a schedule that fits: of least moving and tasks at the first room at which any does.

    Tiles are solved for less room where what lies beside them does not fit.
    """
    sums = np.dtype(summed_dtype(dtype.name)).itemsize
    room, peaks = team.cluster.room, list[int]()
    share = problem.itemsize / dtype.itemsize
    for _ in range(MOST_ROOMS):
        cluster = replace(team.cluster, memory=max(1, int(share * team.cluster.memory)))
        try:
            divisions = list_divisions(problem, machine, cluster)
        except MemoryLimitError:
            if not peaks:
                raise
            break
        schedules = [Schedule(division, edges, dtype.itemsize, sums) for division in divisions]
        tried = [
            Writer(schedule, sources, team.addresses, key)
            for schedule in sorted(
                schedules, key=lambda one: one.seconds(one.division.price.volume, one.count)
            )[:ALTERNATIVES]
        ]
        own = [one.peak for one in tried]
        if min(own) <= room:
            able = (one for one, peak in zip(tried, own, strict=True) if peak <= room)
            return min(able, key=lambda one: one.seconds)
        peaks += own
        share *= min(ROOM_STEP, room / min(own))
    largest = [format_size(source.most) for source in sources]
    raise MemoryLimitError(
        f"blocks of {problem} take {format_size(min(peaks))} of the "
        f"{format_size(room)} that they may on a worker, as chunks of A have up to "
        f"{largest[0]} and of B {largest[1]}: make these smaller, or cut them along other axes"
    )


def _drop_slivers(bounds: list[int]) -> frozenset[int]:
    """Return where chunks begin, but for those that are much shorter than the longest.

    Examples
    --------
    >>> sorted(_drop_slivers([0, 38, 76, 80])), sorted(_drop_slivers([0, 2, 10, 18]))
    ([38], [2, 10])
    """
    least = SLIVER_SHARE * max(end - begin for begin, end in pairwise(bounds))
    found = [0]
    for at in bounds[1:-1]:
        if at - found[-1] >= least and bounds[-1] - at >= least:
            found.append(at)
    return frozenset(found[1:])
