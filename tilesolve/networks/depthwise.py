"""Layers of small groups in networks, depthwise ones too: images come with their padding."""

from __future__ import annotations

from dataclasses import replace

from tilesolve.convolutions.small_groups import has_small_groups
from tilesolve.networks.chains import Chain

Ends = tuple[tuple[int, int], ...]


def is_grouped(chain: Chain, shape: tuple[int, ...]) -> bool:
    """Return whether a chain convolves few channels of its images together."""
    if chain.is_product or chain.split:
        return False
    return has_small_groups(chain.request(shape, None, None).convolution)


def with_frame(chain: Chain, shape: tuple[int, ...]) -> tuple[Chain, tuple[int, ...]]:
    """Return a chain of images that have their zeros around them, and the shape of these."""
    ends = padding_of(chain)
    wide = (n + low + high for n, (low, high) in zip(shape[2:], ends, strict=True))
    arguments = {**chain.arguments, "padding": [(0, 0)] * len(ends)}
    return replace(chain, arguments=arguments), (*shape[:2], *wide)


def padding_of(chain: Chain) -> Ends:
    """Return the zeros around a chain's images."""
    return tuple(tuple(one) for one in chain.arguments["padding"])
