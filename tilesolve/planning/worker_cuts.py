"""Cuts of shares: into tiles that stay in memory, and into chunks that tasks compute.

They decide what a worker holds at once, which is promised before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import NamedTuple

from tilesolve.constants.network import (
    BLOCK_INSTANCES,
    CHUNKS_PER_THREAD,
    GOOD_CHUNK_BYTES,
    LEAST_CHUNK_BYTES,
    TILE_GROWTH,
)
from tilesolve.contractions.problem import Problem
from tilesolve.machine.cluster import Cluster
from tilesolve.model.fused import Fused, fuse_share
from tilesolve.planning.worker_shares import Sharing, split_class


class Keeps(NamedTuple):
    """What stays on a worker: blocks of operands that its loops come back to, finished results.

    What does not stay comes again, or is taken to leave.
    """

    blocks: bool
    results: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """How one letter is cut: into so many parts at most among workers, tiles of these, and chunks.

    Parameters
    ----------
    share
        The extent in the longest of the parts.
    """

    share: int
    workers: int = 1
    tiles: int = 1
    chunks: int = 1


def even_bounds(extent: int, count: int) -> tuple[int, ...]:
    """Return where parts begin and end that are all about as long.

    Examples
    --------
    >>> even_bounds(10, 4)
    (0, 3, 5, 8, 10)
    """
    return tuple((extent * at + count // 2) // count for at in range(count + 1))


def largest_parts(cut: Mapping[str, Cut], *, chunks: bool) -> dict[str, int]:
    """Return the largest tile of each letter, or the largest chunk."""
    return {
        i: max(1, ceil(one.share / (one.tiles * (one.chunks if chunks else 1))))
        for i, one in cut.items()
    }


def fit_cuts(
    share: Problem,
    sharing: Sharing,
    tiles: Mapping[str, int],
    fused: Fused,
    order: str,
    cluster: Cluster,
    *,
    results: bool,
) -> tuple[dict[str, Cut], Keeps]:
    """Return the cuts of a tile with the fewest steps that fit, and what is kept.

    There are none if nothing fits. The class of the innermost loop only streams by: it is cut into
    as many tiles as there is room for. Operands that loops come back to are kept if they fit, else
    they come again.
    """
    size, pieces = fused.problem.sizes, dict(sharing.parts)
    first = next((i for i in order if size[i] > 1), order[0])
    counts = {i: 1 if i == first else ceil(size[i] / tiles[i]) for i in size}
    while True:
        cut: dict[str, Cut] = {}
        chunks = _cut_output(share, fused, {i: ceil(size[i] / counts[i]) for i in size}, cluster)
        for index, letters in fused.groups:
            extents = tuple(share.sizes[i] for i in letters)
            parts = split_class(extents, counts[index], exact=False) or extents
            for i, part in zip(letters, parts, strict=True):
                most = max(1, share.sizes[i] // part)
                own = pieces.get(i, 1), part, min(chunks.get(i, 1), most)
                cut[i] = Cut(share.sizes[i], *own)
        for blocks in (True, False):
            keeps = Keeps(blocks, results)
            if sum(held_parts(share, cut, order, cluster.threads, keeps)) <= cluster.room:
                return {i: cut[i] for i in share.sizes}, keeps
        if counts[first] >= size[first]:
            return {}, keeps
        counts[first] = min(size[first], max(counts[first] + 1, int(counts[first] * TILE_GROWTH)))


def _cut_output(
    share: Problem, fused: Fused, tiles: Mapping[str, int], cluster: Cluster
) -> dict[str, int]:
    """Return into how many chunks letters of C's tiles are cut: its longest, if C is large."""
    output = share.spec.output.letters
    able = [index for index, letters in fused.groups if letters[0] in output]
    size = prod(tiles[index] for index in able) * share.itemsize
    most = min(CHUNKS_PER_THREAD * cluster.threads, size // GOOD_CHUNK_BYTES)
    wanted = max(most, min(cluster.threads, size // LEAST_CHUNK_BYTES))
    if wanted < 2 or not able:
        return {}
    longest = fused.letters(max(able, key=tiles.__getitem__))
    return {max(longest, key=share.sizes.__getitem__): wanted}


def comes_back(
    problem: Problem, cut: Mapping[str, Cut], order: str, letters: Sequence[str]
) -> bool:
    """Return whether a loop over others runs around one over these letters."""
    own = False
    for letter in loop_letters(problem, order):
        if cut[letter].tiles > 1:
            own |= letter in letters
            if own and letter not in letters:
                return True
    return False


@lru_cache(maxsize=256)
def loop_letters(problem: Problem, order: str) -> tuple[str, ...]:
    """Return the letters of the loops over tiles, innermost first."""
    fused = fuse_share(problem)
    return tuple(letter for index in order for letter in reversed(fused.letters(index)))


def held_parts(
    problem: Problem, cut: Mapping[str, Cut], order: str, threads: int, keeps: Keeps
) -> list[int]:
    """Return the bytes of C, A and B that are on one worker at once.

    Of an operand that a loop moves, blocks in use, on the way, and left behind; or all of it, if it
    is kept.
    """
    tile, chunk = (largest_parts(cut, chunks=own) for own in (False, True))
    running = [i for i in loop_letters(problem, order) if cut[i].tiles > 1]
    found = []
    for tensor in problem.spec.tensors:
        held, own = prod(tile[i] for i in tensor.letters), set(tensor.letters) & set(running)
        share = held * prod(cut[i].tiles for i in tensor.letters)
        if tensor is problem.spec.output:
            sizes = share, held, prod(chunk[i] for i in tensor.letters)
            held = held_results(problem, cut, order, threads, keeps, sizes)
        elif keeps.blocks and comes_back(problem, cut, order, tensor.letters):
            held = share
        elif own:
            held *= BLOCK_INSTANCES if running[0] in own else 2
        found.append(held * problem.itemsize)
    return found


def held_results(
    problem: Problem,
    cut: Mapping[str, Cut],
    order: str,
    threads: int,
    keeps: Keeps,
    sizes: tuple[int, int, int],
) -> int:
    """Return how many elements of C are on one worker, given those of its share, tile and chunk.

    They are the tile's, or the share's if a loop comes back to tiles or finished chunks stay; and
    chunks that leave, or that come from workers that sums are split among.
    """
    share, tile, chunk = sizes
    output = problem.spec.output.letters
    stays = keeps.results or comes_back(problem, cut, order, output)
    split = any(one.workers > 1 for i, one in cut.items() if i not in output)
    return (share if stays else tile) + (0 if stays and not split else threads * chunk)
