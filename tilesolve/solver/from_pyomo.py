"""Pyomo models read as programs of exponentials, so that a model is written once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pyomo.common.numeric_types import native_numeric_types
from pyomo.core.base.block import Block
from pyomo.core.base.constraint import Constraint
from pyomo.core.base.expression import NamedExpressionData
from pyomo.core.base.objective import Objective, minimize
from pyomo.core.base.param import ParamData
from pyomo.core.base.var import VarData
from pyomo.core.expr import numeric_expr as nodes
from pyomo.core.expr.numvalue import is_potentially_variable, value
from pyomo.repn.util import categorize_valid_components

from tilesolve.constants.policy import MOST_EXPONENTIALS
from tilesolve.contractions.errors import SolverError
from tilesolve.solver.exponentials import Bounded, Program, Sum, assemble


def read(model: Any) -> tuple[Program, list[Any]]:  # noqa: ANN401 - Pyomo has no types
    """Read a Pyomo model whose functions are sums of exponentials, and list its variables in order.

    Exponents are linear forms. Fixed variables and mutable parameters count with the values that
    they have now. Whatever does not have this form, and any integer variable, is refused with its
    name: a relaxation is the caller's to make.

    Parameters
    ----------
    model
        A `ConcreteModel` with one active objective.

    Examples
    --------
    >>> import pyomo.environ as pyo
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var()
    >>> model.cost = pyo.Objective(expr=pyo.sin(model.x))
    >>> read(model)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SolverError: objective 'cost': sin(x) is not a sum of \
exponentials of linear forms
    """
    reader = _Reader()
    return reader.program(model), reader.variables


class _UnsupportedError(Exception):
    """Carries the subexpression that is not of the form, and why."""

    def __init__(self, node: Any, why: str) -> None:  # noqa: ANN401 - any Pyomo node
        super().__init__(why)
        self.node = node


class _Reader:
    """Walks Pyomo's expressions, numbering the variables in the order it meets them."""

    def __init__(self) -> None:
        self.variables: list[Any] = []
        self.index: dict[int, int] = {}

    def program(self, model: Any) -> Program:  # noqa: ANN401
        """Return the whole model; `variables` then holds Pyomo's, in the program's order."""
        kinds = {Objective, Constraint}
        _, strange = categorize_valid_components(model, valid={Block, *kinds})
        for kind, found in strange.items():
            raise SolverError(f"{kind.__name__} {found[0].name!r} is not something IPOPT can hold")
        objectives, constraints = (
            list(model.component_data_objects(kind, active=True, descend_into=True))
            for kind in (Objective, Constraint)
        )
        if len(objectives) != 1:
            raise SolverError(f"the model has {len(objectives)} active objectives, not one")
        sums = [self.function(f"objective {objectives[0].name!r}", objectives[0].expr)]
        for constraint in constraints:
            sums.append(self.function(f"constraint {constraint.name!r}", constraint.body))
        values = (variable.value for variable in self.variables)
        return assemble(
            sums,
            list(map(_bounded, self.variables)),
            list(map(_bounded, constraints)),
            [math.nan if number is None else number for number in values],
            1 if objectives[0].sense == minimize else -1,
        )

    def function(self, label: str, expression: Any) -> Sum:  # noqa: ANN401
        try:
            return self.read(expression)
        except _UnsupportedError as error:
            raise SolverError(f"{label}: {error.node!s:.300} {error}") from None
        except OverflowError:
            raise SolverError(f"{label}: a constant overflows") from None
        except RecursionError:
            raise SolverError(f"{label}: the expression is nested too deeply") from None

    def read(self, node: Any) -> Sum:  # noqa: ANN401
        into = Sum()
        self.add(node, 1.0, into)
        if not math.isfinite(into.constant):
            raise OverflowError
        return into

    def add(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        """Add ``factor × node`` to a sum."""
        kind = type(node)
        handler = _HANDLERS.get(kind)
        if handler is None:
            handler = _HANDLERS[kind] = _handler(kind)
        handler(self, node, factor, into)

    def number(self, node: Any) -> float:  # noqa: ANN401
        """Return the value of something without free variables."""
        try:
            found = node if type(node) in native_numeric_types else value(node, exception=False)
        except (ArithmeticError, ValueError) as error:
            raise _UnsupportedError(node, f"cannot be evaluated: {error}") from None
        if found is None or isinstance(found, complex) or not math.isfinite(found):
            raise _UnsupportedError(node, f"has the value {found}")
        return float(found)

    def constant(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        into.constant += factor * self.number(node)

    def variable(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        if node.fixed:
            into.constant += factor * self.number(node)
            return
        at = self.index.get(id(node))
        if at is None:
            if not node.is_continuous():
                raise _UnsupportedError(node, "is an integer variable: relax it, or fix it")
            at = self.index[id(node)] = len(self.variables)
            self.variables.append(node)
        into.linear[at] = into.linear.get(at, 0.0) + factor

    def monomial(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        coefficient, variable = node.args
        self.variable(variable, factor * self.number(coefficient), into)

    def sum(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        for part in node.args:
            self.add(part, factor, into)

    def negation(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        self.add(node.args[0], -factor, into)

    def product(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        left, right = node.args
        if not is_potentially_variable(left):
            self.add(right, factor * self.number(left), into)
        else:
            _multiply(node, self.read(left), self.read(right), factor, into)

    def division(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        above, below = node.args
        inverse = _power(node, self.read(below), -1.0)
        _multiply(node, self.read(above), inverse, factor, into)

    def power(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        base, exponent = (self.read(part) for part in node.args)
        if not exponent.is_constant:
            raise _UnsupportedError(node, "has a variable exponent: write exp of a linear form")
        _multiply(node, _power(node, base, exponent.constant), Sum(1.0), factor, into)

    def call(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        if node.getname() != "exp":
            self.fixed(node, factor, into)
            return
        inside = self.read(node.args[0])
        if inside.terms:
            raise _UnsupportedError(node, "is the exponential of something that is not linear")
        into.add_exponential(factor, inside.linear, inside.constant)

    def named(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        self.add(node.expr, factor, into)

    def fixed(self, node: Any, factor: float, into: Sum) -> None:  # noqa: ANN401
        """Add what is only understood when it has no free variable, such as a logarithm."""
        if not (hasattr(node, "is_fixed") and node.is_fixed()):
            raise _UnsupportedError(node, "is not a sum of exponentials of linear forms")
        self.constant(node, factor, into)


_Handler = Callable[[_Reader, Any, float, Sum], None]

_HANDLERS: dict[type, _Handler] = {}
"""What reads each node class; filled as classes are met, since Pyomo makes some at run time."""


def _handler(kind: type) -> _Handler:
    """Return what reads a node class; constants first, for they subclass the others."""
    if kind in native_numeric_types:
        return _Reader.constant
    for base, handler in (
        (nodes.NPV_Mixin, _Reader.constant),
        (ParamData, _Reader.constant),
        (VarData, _Reader.variable),
        (nodes.MonomialTermExpression, _Reader.monomial),
        (nodes.SumExpression, _Reader.sum),
        (nodes.NegationExpression, _Reader.negation),
        (nodes.ProductExpression, _Reader.product),
        (nodes.DivisionExpression, _Reader.division),
        (nodes.PowExpression, _Reader.power),
        (nodes.AbsExpression, _Reader.fixed),
        (nodes.UnaryFunctionExpression, _Reader.call),
        (NamedExpressionData, _Reader.named),
    ):
        if issubclass(kind, base):
            return handler
    return _Reader.fixed


def _multiply(node: Any, a: Sum, b: Sum, factor: float, into: Sum) -> None:  # noqa: ANN401
    """Add ``factor × a × b`` to a sum; a linear form multiplies nothing but a constant."""
    for one, other in ((a, b), (b, a)):
        if any(one.linear.values()) and not other.is_constant:
            raise _UnsupportedError(node, "multiplies a linear form by what is not constant")
        for at, coefficient in one.linear.items():
            into.linear[at] = into.linear.get(at, 0.0) + factor * coefficient * other.constant
        for coefficient, row, offset in one.terms:
            into.add_exponential(factor * coefficient * other.constant, row, offset)
    into.constant += factor * a.constant * b.constant
    if len(a.terms) * len(b.terms) + len(into.terms) > MOST_EXPONENTIALS:
        raise _UnsupportedError(node, f"multiplies out to over {MOST_EXPONENTIALS} exponentials")
    for left, left_row, left_offset in a.terms:
        for right, right_row, right_offset in b.terms:
            row = dict(left_row)
            for at, exponent in right_row.items():
                row[at] = row.get(at, 0.0) + exponent
            into.add_exponential(factor * left * right, row, left_offset + right_offset)


def _power(node: Any, base: Sum, exponent: float) -> Sum:  # noqa: ANN401
    """Return a constant or one exponential to any power, a longer sum to a natural one."""
    result = Sum()
    whole = exponent.is_integer()
    if base.is_constant:
        if (base.constant < 0 and not whole) or (base.constant == 0 and exponent < 0):
            raise _UnsupportedError(node, f"raises {base.constant:g} to the power {exponent:g}")
        result.constant = base.constant**exponent
    elif len(base.terms) == 1 and not base.constant and not any(base.linear.values()):
        coefficient, row, offset = base.terms[0]
        if coefficient < 0 and not whole:
            raise _UnsupportedError(node, f"raises a negative to the power {exponent:g}")
        scaled = {at: exponent * part for at, part in row.items()}
        result.add_exponential(coefficient**exponent, scaled, exponent * offset)
    elif whole and 0 <= exponent <= MOST_EXPONENTIALS:
        result = Sum(1.0)
        for _ in range(int(exponent)):
            result, factor = Sum(), result
            _multiply(node, factor, base, 1.0, result)
    else:
        raise _UnsupportedError(node, "divides by, or takes a root of, a sum")
    return result


def _bounded(one: Any) -> Bounded:  # noqa: ANN401
    """Return the bounds of a variable or a constraint, infinite where there are none."""
    return Bounded(
        one.name,
        -math.inf if one.lb is None else one.lb,
        math.inf if one.ub is None else one.ub,
    )
