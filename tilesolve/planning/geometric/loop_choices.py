"""The choices of innermost loops that stand for all loop permutations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tilesolve.model.fused import Fused
from tilesolve.planning.setting import Choice, Setting


def innermost_classes(fused: Fused) -> Sequence[str]:
    """Return the innermost choices of one level: which tensor its loops leave in place.

    A class goes innermost as a whole. Where its indices are affine, the one that stands
    innermost also finds what neighbouring tiles share, so each such index is a choice.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.model.fused import fuse
    >>> innermost_classes(fuse(Problem.of("abcd-aebf-dfce", 8)))
    ['M', 'N', 'K']
    """
    spec, sizes = fused.problem.spec, fused.problem.sizes
    groups: dict[tuple[bool, ...], list[str]] = {}
    for index in spec.letters:
        if sizes[index] > 1:
            key = tuple(index in tensor.letters for tensor in spec.tensors)
            groups.setdefault(key, []).append(index)
    affine = {i for t in spec.tensors for s in t.subscripts if len(s.terms) > 1 for i in s.letters}
    choices = []
    for key, group in groups.items():
        if all(key) and len(groups) > 1:
            continue  # an index of every tensor leaves none in place
        for first in [i for i in group if i in affine] or group[:1]:
            choices.append(first + "".join(i for i in group if i != first))
    return choices or ["".join(spec.letters)]


def list_choices(setting: Setting) -> list[Choice]:
    """Return all choices: an order around each cache's tile, or no tile of its own.

    The loops around the outermost tile are always there; a nearer cache may share the tile of
    the one before it, which leaves no loops in between. Where the least tile of an index is all of
    it, no loop over it runs around that tile: of choices that differ in such loops one is left.
    """
    if not setting.levels:
        return [()]
    around = [_running_classes(setting, level) for level in range(1, setting.levels + 1)]
    inner: list[list[str | None]] = [[*one, None] for one in around[:-1]]
    return list(product(*inner, around[-1]))


def _running_classes(setting: Setting, level: int) -> list[str]:
    """Return the innermost choices around a level's tile, one for each order of loops that run."""
    sizes = setting.fused.problem.sizes
    whole = {i for i, extent in sizes.items() if setting.smallest(i, level) == extent}
    found: dict[str, str] = {}
    for first in innermost_classes(setting.fused):
        found.setdefault("".join(i for i in first if i not in whole), first)
    return [first for running, first in found.items() if running] or list(found.values())
