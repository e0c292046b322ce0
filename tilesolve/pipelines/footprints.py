"""Groups and tiles: what tiles of a group keep, compute and load, for numbers and for symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tilesolve.constants.nests import PIPELINE_TILED_EXTENT
from tilesolve.contractions.statements.stage import Stage
from tilesolve.model.access import Size
from tilesolve.nests.arithmetic import points_of_vector, step_seconds
from tilesolve.nests.cuts import largest_part
from tilesolve.nests.group_trees import Level
from tilesolve.nests.references import find_references
from tilesolve.nests.regions import Regions
from tilesolve.nests.request import NestRequest
from tilesolve.pipelines.fusion import Order, find_overlaps, place_stages


@dataclass(frozen=True)
class GroupTiles:
    """A group whose tiles are to be found, for one choice of the loop along which rings slide.

    Parameters
    ----------
    request
        The stages of the group, the root last.
    regions
        What boxes of the root need.
    slide
        The letter of the root along which rings slide; None where tiles overlap.
    rows
        How many of its values each trip has.
    planes
        Letters of the root that are walked one by one around what slides, such as channels.
    """

    request: NestRequest
    regions: Regions
    slide: str | None
    rows: int = 1
    planes: tuple[str, ...] = ()

    @cached_property
    def tiled(self) -> tuple[str, ...]:
        """The letters of the root that get tiles, in its order."""
        return list_tiled(self.regions)

    @cached_property
    def column(self) -> str:
        """The letter along which vectors lie."""
        return list(self.regions.extents)[-1]

    @cached_property
    def strip(self) -> str:
        """The letter whose tiles threads divide."""
        return self.slide or self.tiled[0]

    @cached_property
    def order(self) -> Order:
        """Its loops as the thesis has them: vectors innermost, what slides around all others."""
        inter = tuple(x for x in reversed(self.tiled) if x != self.strip)
        intra = tuple(x for x in reversed(self.tiled) if x != self.slide)
        slide = () if self.slide is None else (self.slide,)
        return Order((*intra, *slide), (*inter, self.strip))

    @cached_property
    def kept(self) -> Mapping[str, str]:
        """How each stage is kept: in a ``ring``, as ``rows``, or as a ``tile``."""
        names = {}
        for stage, (computed, kept) in place_stages(self.regions, self.order).items():
            tile = self.order.tile
            if self.slide is None or computed >= tile:
                names[stage] = "tile"
            else:
                names[stage] = "ring" if kept >= tile else "rows"
        return names

    def levels(self, shared: int) -> dict[str, Level]:
        """Return the levels of stages within so many shared loops."""
        within = {
            "ring": Level(shared, max(shared - 1, 1)),
            "rows": Level(shared, shared),
            "tile": Level(shared - (self.slide is not None), shared - (self.slide is not None)),
        }
        return {stage: within[kind] for stage, kind in self.kept.items()}

    def sides(self, tiles: Mapping[str, Size]) -> dict[str, Size]:
        """Return the side of a tile along each letter of the root."""
        return {**self.regions.extents, **dict.fromkeys(self.planes, 1.0), **tiles}

    def room(self, tiles: Mapping[str, Size]) -> Size:
        """Return the bytes that all buffers of a tile take."""
        found: Size = 0.0
        for stage, kind in self.kept.items():
            found = found + self.kept_bytes(stage, kind, tiles)
        return found

    def kept_bytes(self, stage: str, kind: str, tiles: Mapping[str, Size]) -> Size:
        """Return the bytes that a stage takes: of a ring what is in use at once, else a tile."""
        sides = self.sides(tiles)
        found: Size = float(np.dtype(self.request.computation.dtypes[stage]).itemsize)
        for span in self.regions.spans[stage].values():
            if self.slide is not None and span.letter == self.slide and kind != "tile":
                along = [x for x in find_overlaps(self.regions, stage) if x.letter == self.slide]
                overlap = max((x.values for x in along), default=0)
                found = found * min(float(span.scale) * self.rows + overlap, span.extent)
            else:
                found = found * span.size(sides)
        return found

    def seconds(self, tiles: Mapping[str, Size]) -> Size:
        """Return about what all tiles take: arithmetic and starts of rows, and what is loaded.

        It is the part of the price that tiles decide, and a posynomial of them.
        """
        request, extents = self.request, self.regions.extents
        machine, threads = request.machine, request.threads
        sides = self.sides(tiles)
        count: Size = 1.0 / threads
        for letter in (*self.tiled, *self.planes):
            count = count * (extents[letter] / sides[letter])
        byte = threads / machine.bandwidth(machine.memory, threads)
        start = machine.costs.tile_cycles / machine.frequency
        found: Size = 0.0
        for whole in request.computation.stages:
            stage = largest_part(request.computation, whole)
            spans = self.regions.spans[stage.name]
            *rows, last = [one.size(sides) for one in spans.values()] or [1.0]
            dtypes = request.computation.dtypes
            lanes = points_of_vector(stage, dtypes, machine)
            summed = prod(request.computation.sizes[x] for x in stage.summed)
            column = stage.output[-1] if stage.output else None
            vector = summed * step_seconds(stage, dtypes, machine, threads, column)
            vectors = (last + lanes / 2) * (1 / lanes)
            around: Size = 1.0
            for row in rows:
                around = around * row
            each = vectors * vector + start / self.rows
            found = found + around * each * count + self._loads(stage, sides) * byte * count
        return found

    def _loads(self, stage: Stage, sides: Mapping[str, Size]) -> Size:
        """Return the bytes of arrays from outside that a stage reads for a tile."""
        computation = self.request.computation
        spans = self.regions.spans[stage.name]
        box: dict[str, Any] = {x: one.size(sides) for x, one in spans.items()}
        box |= {x: float(computation.sizes[x]) for x in stage.summed}
        found: Size = 0.0
        for one in find_references(computation, stage):
            if one.mode == "write" or one.array in self.regions.spans or one.gathered:
                continue
            bytes_: Size = float(one.element)
            for side in one.reaches(box):
                bytes_ = bytes_ * side
            found = found + bytes_
        return found


def list_tiled(regions: Regions) -> tuple[str, ...]:
    """Return the letters of a root that get tiles: those that have many values."""
    found = [x for x, extent in regions.extents.items() if extent > PIPELINE_TILED_EXTENT]
    return tuple(found)


def list_slides(regions: Regions) -> tuple[str, ...]:
    """Return the letters of a root along which rings may slide: all stages follow these."""
    rows = [x for x in list_tiled(regions) if x != list(regions.extents)[-1]]
    return tuple(x for x in rows if all(regions.letter_of(s, x) for s in regions.stages))


def list_planes(regions: Regions) -> tuple[str, ...]:
    """Return short letters of a root along which no stage needs what another value has.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.nests.regions import find_regions
    >>> text = "b[c,y,x] = I[c,y,x] + 1" + chr(10) + "o[d,u,v] = b[d,u,v] + b[d,u+1,v]"
    >>> sizes = {"c": 3, "d": 3, "y": 65, "u": 64, "x": 64, "v": 64}
    >>> list_planes(find_regions(bind_stages(parse_stages(text), sizes)))
    ('d',)
    """
    shared = {one.letter for x in regions.stages for one in find_overlaps(regions, x)}
    return tuple(
        letter
        for letter, extent in list(regions.extents.items())[:-1]
        if 1 < extent <= PIPELINE_TILED_EXTENT and letter not in shared
        if all(regions.letter_of(stage, letter) for stage in regions.stages)
    )
