"""What times packing while plans run: functions in the place of those that pack.

A record has a word each for the system's clock, the number of the clock, both functions that pack,
and the nanoseconds that these took so far.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np

from tilesolve.kernels.runtime import state
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    address,
    as_pointer,
    compiled,
    inlined,
    invoke,
    on_stack,
    result,
)
from tilesolve.packing.offsets import Integers

_CLOCK, _CLOCK_NUMBER, _PACK_SEGMENT, _COPY_WINDOWS, _NANOSECONDS, _WORDS = range(6)


@inlined
def _read_clock(watch):
    """Return nanoseconds."""
    place = on_stack(2)
    invoke(watch[_CLOCK], watch[_CLOCK_NUMBER], place)
    found = as_pointer(place)
    return 1_000_000_000 * found[0] + found[1]


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, returns=INT)
def _time_pack_segment(s, side, x, k, b, X, K, B):
    """Call `pack_segment`; what was packed already takes no time."""
    watch = as_pointer(s[state.STOPWATCH])
    begin = _read_clock(watch)
    packed = result(watch[_PACK_SEGMENT], s, side, x, k, b, X, K, B)
    if packed:
        watch[_NANOSECONDS] += _read_clock(watch) - begin
    return packed


@compiled(INT, INT, INT, INT)
def _time_copy_windows(s, source, target, record):
    """Call `copy_windows`."""
    watch = as_pointer(as_pointer(s)[state.STOPWATCH])
    begin = _read_clock(watch)
    invoke(watch[_COPY_WINDOWS], s, source, target, record)
    watch[_NANOSECONDS] += _read_clock(watch) - begin


_FIELDS = [state.PACK_SEGMENT, state.COPY_WINDOWS]


def start_timing(fields: Integers) -> Integers:
    """Have runs that begin with a state's fields be timed; return their record."""
    clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p)
    watch = np.zeros(_WORDS, np.int64)
    watch[_CLOCK], watch[_CLOCK_NUMBER] = clock.value or 0, time.CLOCK_MONOTONIC
    watch[_PACK_SEGMENT : _COPY_WINDOWS + 1] = fields[_FIELDS]
    timed = [address(_time_pack_segment), address(_time_copy_windows)]
    fields[_FIELDS], fields[state.STOPWATCH] = timed, watch.ctypes.data
    return watch


def stop_timing(fields: Integers, watch: Integers) -> float:
    """Have runs be as they were before; return the seconds of packing in between."""
    fields[_FIELDS] = watch[_PACK_SEGMENT : _COPY_WINDOWS + 1]
    fields[state.STOPWATCH] = 0
    return float(watch[_NANOSECONDS]) / 1e9
