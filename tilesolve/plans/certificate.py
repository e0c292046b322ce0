"""A proof that integer tiles are optimal, or how far from it they may be.

The integer program picks for every index one chain of nested tiles, and SCIP solves it to proven
optimality. It does so in a process of its own: on programs of many chains SCIP may not
keep its time limit, or end its process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from threading import TIMEOUT_MAX

from tilesolve.contractions.argument_kinds import check_factor
from tilesolve.contractions.errors import SolverError
from tilesolve.model.formulas import name_tile
from tilesolve.planning.geometric.program import Formulation, formulate
from tilesolve.planning.geometric.proofs import list_proved
from tilesolve.planning.geometric.strategy import setting_for
from tilesolve.planning.setting import Choice, Setting
from tilesolve.planning.solution import Solution
from tilesolve.plans.files import dump, load
from tilesolve.solver.chosen_sizes import choose_sizes
from tilesolve.system.subprocess_call import run_in_process

MAX_CHAINS = 20_000
"""Chains of one index beyond which the integer program is not attempted."""

SLACK = 1e-3
"""Relative difference up to which the program's best tiles and a plan's take as long."""

MARGIN_SECONDS = 30.0
"""Seconds that a process may take besides SCIP's: to start, and to write the program down."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What SCIP proved about the tiles of a plan, and weak duality about other loops.

    Parameters
    ----------
    seconds
        The exact time of the plan's class tiles.
    optimum
        That of the best integer tiles of the same innermost loops.
    bound
        What SCIP proved that no such tiles go below.
    chains
        Integer choices that the proof covers.
    ruled_out
        The choices of innermost loops that were not solved, and seconds that none of their tiles
        take less than: checked by arithmetic, without a solver. Those of a convolution, whose
        programs are not convex, have no proof.

    Examples
    --------
    >>> round(Certificate(seconds=1.02, optimum=1.0, bound=1.0, chains=30).gap, 3)
    0.02
    """

    seconds: float
    optimum: float
    bound: float
    chains: int
    ruled_out: tuple[tuple[Choice, float], ...] = ()

    @property
    def gap(self) -> float:
        """Relative excess of the plan's tiles over the proven bound."""
        return self.seconds / self.bound - 1


def certify(solution: Solution, *, limit: float = 300.0) -> Certificate:
    """Solve the integer program of a plan's innermost loops to proven optimality.

    Parameters
    ----------
    solution
        Of a contraction with few enough nested tiles.
    limit
        Seconds that SCIP may take. It is ended `MARGIN_SECONDS` seconds later if it does not stop.

    Raises
    ------
    SolverError
        If SCIP is missing or fails, the limit is reached, or there are too many tiles. Also if the
        solution's tiles take less time than all tiles of the program: where tiles reach across an
        index, the exact price counts reuse that the program does not, so that its bound proves
        nothing. And if what the solution has does not prove that other loops are ruled out.
    PlanError
        If another strategy than the solver found the tiles.
    """
    setting = setting_for(solution)  # there is none for other strategies
    check_factor(limit, "limit", SolverError)
    if limit + MARGIN_SECONDS > TIMEOUT_MAX:
        raise SolverError(f"limit must be less than {TIMEOUT_MAX:g} s, got {limit:g}")
    proved = list_proved(setting, solution.search.ruled_out)
    request = json.dumps({"plan": dump(solution), "limit": limit})
    try:
        answer = json.loads(run_in_process(_answer, request, limit + MARGIN_SECONDS))
    except TimeoutError as error:
        raise SolverError(f"SCIP proved nothing in {limit:g} s, and did not stop") from error
    except ChildProcessError as error:
        raise SolverError(f"SCIP failed, and its process with it: {error}") from error
    if "error" in answer:
        raise SolverError(answer["error"])
    return replace(Certificate(**answer), ruled_out=proved)


def _answer(request: str) -> str:
    """Return the certificate as JSON: the part of `certify` that runs in another process."""
    given = json.loads(request)
    try:
        return json.dumps(asdict(_certified(load(given["plan"]), given["limit"])))
    except SolverError as error:
        return json.dumps({"error": str(error)})


def _certified(solution: Solution, limit: float) -> Certificate:
    """Write the integer program down and solve it."""
    setting = setting_for(solution)
    program = formulate(setting, solution.choice)
    chains = {i: _chains(setting, solution, i) for i in setting.fused.problem.spec.letters}
    options = [_sizes(program, i, found) for i, found in chains.items()]
    best, proven = choose_sizes(program, [one for one in options if one[0]], limit)
    optimum = max(amount.at(best) for amount in program.times.values())
    own = solution.search.integral
    if own < optimum * (1 - SLACK):
        raise SolverError(
            f"nothing is proved: the plan's tiles take {own:.4g} s, less than the "
            f"{optimum:.4g} s of the program's best, which counts on less reuse"
        )
    return Certificate(
        own,
        optimum,
        min(proven, optimum),
        sum(len(found) for found in chains.values()),
    )


def _chains(setting: Setting, solution: Solution, index: str) -> list[tuple[int, ...]]:
    """Return all nested chains of an index, the plan's own among them."""
    extent = setting.fused.problem.sizes[index]
    found: list[tuple[int, ...]] = [()]
    for level in range(1, setting.levels + 1):
        least = setting.smallest(index, level)
        inherits = level > 1 and solution.choice[level - 2] is None
        grown = []
        for chain in found:
            inner = chain[-1] if chain else setting.smallest(index)
            sizes = [inner] if inherits else [*range(inner, extent, inner), extent]
            grown += [(*chain, size) for size in sizes if size >= least]
        found = list(dict.fromkeys(grown))
        if len(found) > MAX_CHAINS:
            raise SolverError(
                f"index {index!r} of extent {extent} has over {MAX_CHAINS} nested tiles, "
                "too many to certify"
            )
    return found


def _sizes(
    program: Formulation, index: str, chains: Sequence[Sequence[int]]
) -> list[dict[str, float]]:
    """Return the sizes of the tiles of each chain of an index that have variables."""
    symbols = [name_tile(at, index, len(chains[0])) for at in range(1, len(chains[0]) + 1)]
    return [
        {
            symbol: float(size)
            for symbol, size in zip(symbols, chain, strict=True)
            if program.aliases[symbol] == symbol
        }
        for chain in chains
    ]
