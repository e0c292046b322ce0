"""Plans whose loops and tiles are drawn, not solved for: of any nest, and found much faster."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, log
from random import Random

import pytest

from tilesolve import Plan, Problem, plan
from tilesolve.contractions.errors import SolverError
from tilesolve.planning.geometric import select, strategy
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.optima import Optimum
from tilesolve.planning.geometric.program import formulate
from tilesolve.planning.geometric.relaxation import Relaxation
from tilesolve.planning.setting import Choice, Setting


@contextmanager
def guessed_tiles(seed: int) -> Iterator[None]:
    """Put drawn loops and tiles in the place of the solver's; they are made whole as its are.

    A problem has the same ones each time. As a decorator it counts for all plans of a test.
    """

    def relax(setting: Setting, **_: object) -> Relaxation:
        luck, offered = Random(f"{seed} {setting.fused.problem}"), list_choices(setting)
        failed: SolverError | None = None
        for choice in luck.sample(offered, len(offered)):
            try:
                return Relaxation((_guess(setting, choice, luck),), len(offered), 0, 1)
            except SolverError as error:
                failed = error
        assert failed is not None
        raise failed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "relax", relax)
        patch.setattr(select, "_ruled_out", lambda *_: [])  # looks at better loops
        yield


def guess_plan(problem: Problem, seed: int, **options: object) -> Plan:
    """Return a plan of drawn loops and tiles, for a test of what holds whatever they are."""
    with guessed_tiles(seed):
        return plan(problem, cache=False, **options)


def _guess(setting: Setting, choice: Choice, luck: Random) -> Optimum:
    program = formulate(setting, choice)
    tiles = {
        symbol: exp(luck.uniform(log(least), log(most)))
        for symbol, (least, most) in program.variables.items()
    }
    times = {name: amount.at(tiles) for name, amount in program.times.items()}
    return Optimum(choice, program.tiles(tiles), times, {}, {})
