"""Fusion: in which loops of a group each stage is computed and kept (Alg. 4 of the thesis)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilesolve.nests.regions import Regions


@dataclass(frozen=True, slots=True)
class Order:
    """Loops over the tiles of a root and within them, as the thesis orders them: innermost first.

    Parameters
    ----------
    intra, inter
        Letters of the root: those walked within tiles, and those that tiles are walked by.
    """

    intra: tuple[str, ...]
    inter: tuple[str, ...]

    @property
    def loops(self) -> tuple[str, ...]:
        """Names of all loops, those within tiles first."""
        return (*(f"{x}i" for x in self.intra), *(f"{x}o" for x in self.inter))

    @property
    def tile(self) -> int:
        """The number of the innermost loop over tiles."""
        return len(self.intra)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Along a letter of the root, how many values of a stage neighbours share.

    `letter` is None where a stage that reads it needs all there is, whatever the tile.
    """

    letter: str | None
    values: int
    extent: int


def find_overlaps(regions: Regions, stage: str) -> Iterator[Overlap]:
    """Yield along what, and how far, those that read a stage overlap."""
    for use in regions.uses:
        if use.producer != stage:
            continue
        for span in use.spans:
            own = regions.spans[use.consumer]
            letter = own[span.letter].letter if span.letter and span.letter in own else None
            if span.overlap and span.extent > 1:
                yield Overlap(letter, span.overlap, span.extent)


def place_stages(regions: Regions, order: Order) -> dict[str, tuple[int, int]]:
    """Return for each stage but the root the numbers of the loops it is computed and kept in.

    The highest loop along which those that read it overlap is where it is computed; it is kept in
    the next one, so that values stay that are needed again. Then no stage is computed or kept
    further within than those that read it.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.nests.regions import find_regions
    >>> text = "b[y,x] = I[y,x] + I[y,x+2]" + chr(10) + "o[u,v] = b[u,v] + b[u+2,v]"
    >>> stages = bind_stages(parse_stages(text), {"y": 99, "x": 97, "u": 97, "v": 97})
    >>> regions = find_regions(stages)
    >>> for order in (Order(("v", "u"), ("v", "u")), Order(("u", "v"), ("v", "u"))):
    ...     print([order.loops[at] for at in place_stages(regions, order)["b"]])
    ['ui', 'vo']
    ['vi', 'vi']
    """
    found: dict[str, tuple[int, int]] = {}
    for stage in reversed(regions.stages):
        if stage == regions.root:
            continue
        follows = all(regions.letter_of(stage, x) for x in order.intra)
        computed, kept = _place(list(find_overlaps(regions, stage)), order, follows=follows)
        for reader in regions.readers(stage):
            if reader in found:
                computed, kept = max(computed, found[reader][0]), max(kept, found[reader][1])
        found[stage] = computed, max(computed, kept)
    return found


def _place(overlaps: Sequence[Overlap], order: Order, *, follows: bool) -> tuple[int, int]:
    """Return where a stage is computed and kept, by how far those that read it overlap.

    One that follows all loops within tiles is needed as a whole along other letters alone.
    """
    inner = min(1, order.tile)
    tiled = [one for one in overlaps if one.letter in order.intra]
    if not tiled:
        whole = any(one.letter is None and one.values >= one.extent for one in overlaps)
        if whole and not follows:
            return order.tile, order.tile
        return inner, inner
    highest = max(tiled, key=lambda one: order.intra.index(str(one.letter)))
    at = order.intra.index(str(highest.letter))
    outer = at + 1
    if at == 0 or highest.values >= highest.extent:
        return outer, outer
    return at, outer
