"""Convolutions as the command line names them."""

from __future__ import annotations

import re

from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.convolution_arguments import PaddingArgument
from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.convolutions.group_plans import GroupPlans
from tilesolve.convolutions.layer_plans import LayerRequest, read_activation
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import NestPlan
from tilesolve.plans.plan import Plan

_PIXELS, _TAPS = ("d", "h", "w"), ("t", "r", "s")
_COUNTS = ("n", "c", "k", "groups")
_ARGUMENTS = ("stride", "dilation", "padding")


def read_convolution(text: str, layout: str, dtype: str) -> Convolution:
    """Read a layer: images n, channels c, filters k, pixels d h w, a window t r s, arguments.

    ``stride``, ``dilation``, ``padding`` and ``groups`` may follow. ``2x1`` has a number for each
    dimension, ``0+1`` zeros before and after, and ``padding`` may be ``same`` or ``valid``.

    Raises
    ------
    SizeError
        If a number is missing, unknown or given twice, or none.
    SpecError
        If there is no such layout.

    Examples
    --------
    >>> print(read_convolution("c=64 h=56 w=56 k=128 r=3 s=3 stride=2 padding=0+1", "NHWC", "f4"))
    3x3 64→128, 56x56, stride 2, padding 0+1, NHWC float32
    """
    if layout not in ("NCHW", "NHWC"):
        raise SpecError(f"layout {layout!r} is not known; NCHW, NHWC are")
    given: dict[str, str] = {}
    for item in text.replace(",", " ").split():
        name, equals, value = item.partition("=")
        if not equals or name not in (*_COUNTS, *_ARGUMENTS, *_PIXELS, *_TAPS):
            raise SizeError(f"expected numbers such as 'c=64 h=56 stride=2', found {item!r}")
        if name in given:
            raise SizeError(f"two numbers for {name!r}: {given[name]} and {value}")
        given[name] = value
    pixels = [name for name in _PIXELS if name in given]
    if tuple(pixels) != _PIXELS[len(_PIXELS) - len(pixels) :] or not pixels:
        raise SizeError(
            f"pixels are given along {', '.join(pixels) or 'nothing'}, not w, hw or dhw"
        )
    counts = {"n": 1, "groups": 1} | {
        name: _read_number(name, value) for name, value in given.items() if name not in _ARGUMENTS
    }
    for name in ("c", "k", *_TAPS[-len(pixels) :]):
        if name not in counts:
            raise SizeError(f"no number for {name!r} in {text!r}")
    if unused := [name for name in _TAPS[: -len(pixels)] if name in counts]:
        raise SizeError(f"the window has {', '.join(unused)}, pixels are given along {pixels}")
    size = tuple(counts[name] for name in pixels)
    n, c, groups = counts["n"], counts["c"], counts["groups"]
    if groups < 1 or c % groups:
        raise SizeError(f"groups={groups} do not divide {c} channels")
    return Convolution.of(
        (n, *size, c) if layout == "NHWC" else (n, c, *size),
        (counts["k"], c // groups, *(counts[name] for name in _TAPS[-len(pixels) :])),
        stride=_read_numbers("stride", given.get("stride", "1")),
        padding=_read_padding(given.get("padding", "0"), len(size)),
        dilation=_read_numbers("dilation", given.get("dilation", "1")),
        groups=groups,
        layout=layout,
        dtype=dtype,
    )


def plan_convolution(
    layer: Convolution,
    machine: Machine | str | None,
    epilogue: str,
    threads: int | None,
    strategy: str,
    tries: int,
    cache: bool,
) -> tuple[Plan | NestPlan, str]:
    """Return the plan of a layer whose weights stay, and its report."""
    request = LayerRequest(
        layer,
        read_activation(epilogue),
        machine=machine,
        threads=threads,
        strategy=strategy,
        tries=tries,
        cache=cache,
    )
    groups = GroupPlans.of(request)
    found = groups.plan.nest if groups else request.plan(layer.flat_problem, request.activation)
    return found, request.report(found)


def _read_number(name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise SizeError(f"{name} must be an integer, got {text!r}")
    return int(text)


def _read_numbers(name: str, text: str) -> int | list[int]:
    found = [_read_number(name, one) for one in text.split("x")]
    return found if len(found) > 1 else found[0]


def _read_padding(text: str, dimensions: int) -> PaddingArgument:
    if text in ("same", "valid"):
        return text
    found = [[_read_number("padding", one) for one in end.split("+")] for end in text.split("x")]
    ends = [end if len(end) > 1 else end[0] for end in found]
    return ends if len(ends) > 1 else ends * dimensions
