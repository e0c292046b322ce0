"""Computed positions: what is known of them before code is made, by their dtypes and arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilesolve.constants import tuning
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.intervals import find_interval
from tilesolve.contractions.statements.terms import Read, Term
from tilesolve.kernels.programs.range_checks import RangeCheck, range_checks


def list_needless(computation: Computation) -> Iterator[RangeCheck]:
    """Yield the checks that never fail: what a dtype holds is no position outside.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> def count(extent):
    ...     stages, dtypes = parse_stages("o[i] = T[v[i]]"), {"v": "uint8", "T": "float32"}
    ...     return len(list(list_needless(bind_stages(stages, {"i": 9}, dtypes, {"T": (extent,)}))))
    >>> count(255), count(256)
    (0, 1)
    """
    for check in range_checks(computation.stages):
        position, stage = check.read.subscripts[check.axis], computation.stages[check.stage]
        assert isinstance(position, Term)
        interval = find_interval(position, computation.dtypes, computation.box(stage))
        extent = computation.array(check.read.array).shape[check.axis]
        if interval is not None and interval[0] >= 0 and interval[1] < extent:
            yield check


def list_far(computation: Computation) -> Iterator[str]:
    """Yield the arrays at computed positions from whose size on vectors gather best."""
    for name in dict.fromkeys(one.read.array for one in range_checks(computation.stages)):
        if computation.array(name).bytes > tuning.MAX_NEAR_TABLE_BYTES:
            yield name


def list_spread(computation: Computation) -> Iterator[tuple[int, int]]:
    """Yield the stages whose updates are spread, and how many elements a table has at most.

    They add integers to an array with one axis, which is short, or whose positions are few by their
    dtype.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> def spread(text, dtype, bins):
    ...     return list(list_spread(bind_stages(parse_stages(text), 9000, dtype, {"h": (bins,)})))
    >>> spread("h[v[i] >> 4] += 1", "uint8", 300), spread("h[v[i]] += 1", "int64", 9)
    ([(0, 16)], [(0, 256)])
    """
    for number, stage in enumerate(computation.stages):
        integer = np.dtype(computation.dtypes[stage.name]).kind in "iu"
        if stage.update != "add" or not integer or len(stage.axes) != 1:
            continue
        (position,) = stage.axes
        if isinstance(position, Affine):
            continue
        interval = find_interval(position, computation.dtypes, computation.box(stage))
        reach = 0 if interval is None else interval[1] + 1
        count = min(reach, *computation.array(stage.name).shape)
        enough = computation.points(stage) >= count * tuning.SPREAD_UPDATES
        if 0 < count <= tuning.MAX_SPREAD_TABLE and enough:
            yield number, min(reach, tuning.MAX_SPREAD_TABLE)


def list_picked(computation: Computation) -> Iterator[tuple[Read, int]]:
    """Yield reads of tables of bytes by bytes, and how many elements of the table they reach.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> pixels = bind_stages(parse_stages("o[i] = T[v[i]]"), {"i": 9}, "uint8", {"T": (300,)})
    >>> [(str(read), count) for read, count in list_picked(pixels)]
    [('T[v[i]]', 256)]
    """
    dtypes = computation.dtypes
    for check in list_needless(computation):
        position, stage = check.read.subscripts[check.axis], computation.stages[check.stage]
        assert isinstance(position, Term)
        single = len(check.read.subscripts) == np.dtype(dtypes[check.read.array]).itemsize == 1
        if single and check.read != stage.target and position.kind(dtypes) == "uint8":
            interval = find_interval(position, dtypes, computation.box(stage))
            assert interval is not None
            yield check.read, interval[1] + 1
