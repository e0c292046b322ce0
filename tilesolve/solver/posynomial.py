"""Programs of posynomials: sizes that minimise the longest of some times.

In logarithms of sizes such a program is convex. It is assembled as the arrays that IPOPT solves,
and written as a Pyomo model for those who want to read it, or to solve it by other means; a test
holds both to the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, log, nan
from typing import Any

from tilesolve.contractions.errors import SolverError
from tilesolve.solver.exponentials import Bounded, Program, Sum, assemble
from tilesolve.solver.signomials import Signomial
from tilesolve.system.workers import run_unheard


@dataclass(frozen=True, slots=True, kw_only=True)
class Posynomials:
    """A program in symbols: times to be minimised and limits to be kept.

    Parameters
    ----------
    variables
        Lower and upper bound of each size that is free.
    times
        Seconds, or what else is to be short, by name.
    limits
        Named left-hand sides that must not exceed 1.
    nested
        Pairs of sizes of which the first must not exceed the second.
    unit
        Seconds that the program counts time in.
    weight
        What all times together weigh beside the longest one, so that of equal ones those are
        shortest, too. Where it is None their sum is minimised, and none is the longest.

    Examples
    --------
    >>> x, y = Signomial.symbol("x"), Signomial.symbol("y")
    >>> sides = {"x": (1.0, 9.0), "y": (1.0, 9.0)}
    >>> program = Posynomials(variables=sides, times={"cost": (x + 8) / y}, limits={"room": x * y})
    >>> program.arrays().constraints
    ('longest[cost]', 'limit[room]')
    """

    variables: Mapping[str, tuple[float, float]]
    times: Mapping[str, Signomial]
    limits: Mapping[str, Signomial] = field(default_factory=dict)
    nested: tuple[tuple[str, str], ...] = ()
    unit: float = 1.0
    weight: float | None = 0.0

    def arrays(self, held: Mapping[str, float] | None = None) -> Program:
        """Return the program that IPOPT solves, in logarithms of sizes.

        Parameters
        ----------
        held
            Seconds that some times may take, instead of being minimised.

        Raises
        ------
        SolverError
            If every time is held, or a constant overflows.
        """
        held = held or {}
        open_times = self._open_times(held)
        writer = _Writer()
        objective = Sum()
        if self.weight is not None:
            writer.add_symbol(objective, "time")
        share = 1.0 if self.weight is None else self.weight / len(open_times)
        for name in open_times:
            writer.add(objective, self.times[name], 1 / self.unit, share)
        bodies, bounds = [objective], []
        for name in open_times if self.weight is not None else ():
            bodies.append(writer.sum(self.times[name], 1 / self.unit))
            writer.add_symbol(bodies[-1], "time", -1.0)
            bounds.append(Bounded(f"longest[{name}]", -inf, 0.0))
        for name, seconds in held.items():
            if self.times[name].symbols:
                bodies.append(writer.sum(self.times[name], 1 / self.unit))
                bounds.append(Bounded(f"held[{name}]", -inf, seconds / self.unit))
        for name, limit in self.limits.items():
            bodies.append(writer.sum(limit, 1.0))
            bounds.append(Bounded(f"limit[{name}]", -inf, 1.0))
        for one, other in self.nested:
            bodies.append(Sum(linear={writer.number(one): 1.0, writer.number(other): -1.0}))
            bounds.append(Bounded(f"nested[{one},{other}]", -inf, 0.0))
        sides = [
            Bounded("time", -inf, inf)
            if symbol == "time"
            else Bounded(f"tile[{symbol}]", *map(log, self.variables[symbol]))
            for symbol in writer.numbers
        ]
        start = [1.0 if symbol == "time" else nan for symbol in writer.numbers]
        return assemble(bodies, sides, bounds, start)

    def model(self, held: Mapping[str, float] | None = None) -> Any:  # noqa: ANN401
        """Return the program as a Pyomo model, see `arrays`."""
        held = held or {}
        open_times = self._open_times(held)
        # Pyomo prints that a component failed, where an interrupt comes amid one.
        return run_unheard(lambda: _write_model(self, held, open_times))

    def _open_times(self, held: Iterable[str]) -> list[str]:
        """Return the times that are minimised."""
        found = [name for name in self.times if name not in held]
        if not found:
            raise SolverError("every time is held, nothing is left to minimise")
        return found


class _Writer:
    """Writes signomials as sums of exponentials, numbering symbols in the order it meets them."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, symbol: str) -> int:
        """Return the number of a symbol's variable."""
        return self.numbers.setdefault(symbol, len(self.numbers))

    def add_symbol(self, into: Sum, symbol: str, coefficient: float = 1.0) -> None:
        """Add a multiple of one symbol."""
        into.add_exponential(coefficient, {self.number(symbol): 1.0}, 0.0)

    def sum(self, amount: Signomial, scale: float) -> Sum:
        """Return a multiple of a signomial."""
        found = Sum()
        self.add(found, amount, scale, 1.0)
        return found

    def add(self, into: Sum, amount: Signomial, scale: float, share: float) -> None:
        """Add a share of a multiple of a signomial."""
        for powers, coefficient in amount.terms:
            row = {self.number(symbol): float(power) for symbol, power in powers}
            try:
                into.add_exponential(share * (coefficient * scale), row, 0.0)
            except OverflowError:
                raise SolverError(f"a constant overflows: {coefficient * scale:g}") from None


def _write_model(program: Posynomials, held: Mapping[str, float], open_times: list[str]) -> Any:  # noqa: ANN401 - Pyomo has no types
    import pyomo.environ as pyo

    model = pyo.ConcreteModel(name="tiling")
    model.tile = pyo.Var(
        list(program.variables),
        bounds=lambda _, s: tuple(map(log, program.variables[s])),
        doc="logarithms of tile sizes",
    )

    def written(amount: Signomial, factor: float) -> Any:  # noqa: ANN401
        return sum(
            coefficient * factor
            if not powers
            else coefficient * factor * pyo.exp(sum(p * model.tile[s] for s, p in powers))
            for powers, coefficient in amount.terms
        )

    model.seconds = pyo.Expression(
        list(program.times), rule=lambda _, name: written(program.times[name], 1 / program.unit)
    )
    total = sum(model.seconds[name] for name in open_times)
    if program.weight is not None:
        model.time = pyo.Var(
            initialize=1.0, doc=f"logarithm of the longest time, in {program.unit:g} s"
        )
        model.longest = pyo.Constraint(
            open_times, rule=lambda _, name: model.seconds[name] <= pyo.exp(model.time)
        )
        total = pyo.exp(model.time) + program.weight / len(open_times) * total
    model.held = pyo.Constraint(
        [name for name in held if program.times[name].symbols],
        rule=lambda _, name: model.seconds[name] <= held[name] / program.unit,
    )
    model.limit = pyo.Constraint(
        list(program.limits), rule=lambda _, name: written(program.limits[name], 1.0) <= 1
    )
    model.nested = pyo.Constraint(
        list(program.nested), rule=lambda _, *pair: model.tile[pair[0]] <= model.tile[pair[1]]
    )
    model.objective = pyo.Objective(expr=total)
    return model
