"""A bound on the time of all tilings: what no loops and no tiles of a setting go below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from tilesolve.constants.policy import STARTS
from tilesolve.contractions.errors import SolverError
from tilesolve.model.fused import Fused
from tilesolve.planning.geometric.loop_choices import innermost_classes
from tilesolve.planning.geometric.optima import optimum
from tilesolve.planning.geometric.program import formulate, is_convex
from tilesolve.planning.setting import Setting
from tilesolve.solver.duality import find_dual_bound


@lru_cache(maxsize=64)
def find_bound(setting: Setting) -> float:
    """Return seconds that no tiling takes less than: the longest of the levels' and arithmetic's.

    What a level keeps while a loop around runs is a box that fits there, and some class of loops
    leaves one tensor of it in place. So the best box of any size, for the best class, moves no more
    than any nest does, if operands are read in place and nothing is lost for lines or the tiles of
    other levels. Arithmetic takes the longest calls that fit, and the fewest copies. Weak duality
    makes sure of that for contractions, whatever IPOPT did. The programs of convolutions are not
    convex: for them the least of several starts counts, without a proof.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.planning.geometric.make_setting import make_setting
    >>> from tilesolve.planning.register_tile import choose_register_tile
    >>> machine, share = Machine.load("i7-6700k"), Problem.of("ik-ij-jk", 512)
    >>> kernel = choose_register_tile(share, machine)
    >>> setting = make_setting(share, machine, 1, "store", kernel)
    >>> find_bound(setting) >= share.flops / machine.peak("float64")
    True
    """
    free = replace(setting, lines=(), runs=())
    bare = replace(free, packed=(None,) * len(setting.packed), kinds=())
    classes = list(_list_orders(setting.fused))
    found = [setting.fused.problem.flops / setting.rate]
    for level, place in enumerate(setting.places):
        around = classes if level else classes[:1]
        near = setting.places[level : level + 1] if level else setting.places[1:2]
        limits = [f"capacity_{one.name}" for one in near]
        found.append(_least(bare, bare, around, place.server, limits))
    limits = [f"capacity_{one.name}" for one in setting.places[1:]]
    found.append(_least(free, bare, classes, "compute", limits))
    return max(found)


def _list_orders(fused: Fused, order: str = "") -> Iterator[str]:
    """Yield orders of classes, innermost first, as far as each leaves some tensor in place.

    A tensor that two classes leave in place stays over both, whichever is first, if no other one
    runs in between: so it is not enough to know the first.
    """
    tensors = [tensor.letters for tensor in fused.problem.spec.tensors]
    still = [letters for letters in tensors if not set(order).intersection(letters)]
    others = [one for one in innermost_classes(fused) if not set(order).intersection(one)]
    more = [one for one in others if any(not set(one).intersection(x) for x in still)]
    for one in more:
        yield from _list_orders(fused, order + one)
    if not more:
        yield order or "".join(fused.problem.spec.letters)


def _least(
    timed: Setting, limited: Setting, classes: Sequence[str], name: str, limits: Sequence[str]
) -> float:
    """Return the least of one time of a setting, with some limits of another one and no others.

    Nothing is known where IPOPT fails, as it may where programs are not convex.
    """
    convex = is_convex(timed.fused.problem.spec)
    found = []
    for first in classes:
        choice = (first,) * timed.levels
        times = formulate(timed, choice, loose=True).times
        program = formulate(limited, choice, loose=True)
        kept = {limit: one for limit, one in program.limits.items() if limit in limits}
        small = replace(program, times={name: times[name]}, limits=kept, weight=None)
        try:
            best = optimum(small, choice, starts=1 if convex else STARTS)
        except SolverError:
            return 0.0
        sure = find_dual_bound(small, best.tiles, best.multipliers) if convex else best.seconds
        found.append(sure)
    return min(found)
