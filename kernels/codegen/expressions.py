"""Expressions of Python functions as LLVM IR, and what their variables are; see `translation`."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from llvmlite import ir

from tilesolve.kernels.codegen.python_source import Source
from tilesolve.kernels.codegen.scalars import (
    INT,
    POINTER,
    REALS,
    as_bit,
    as_value,
    compare,
    operate,
    smaller,
)
from tilesolve.kernels.ir.arithmetic import BIT
from tilesolve.kernels.ir.intrinsics import Intrinsic


@dataclass(slots=True)
class Unit:
    """The functions of a module, with those that still have to be translated."""

    module: ir.Module
    waiting: list[Source] = field(default_factory=list)

    def declare(self, source: Source) -> ir.Function:
        """Return the function of a source, and have it translated if it is new."""
        if source.name not in self.module.globals:
            kind = ir.FunctionType(source.returns, source.parameters)
            found = ir.Function(self.module, kind, source.name)
            found.linkage = "internal"
            found.attributes.add("nounwind")
            self.waiting.append(source)
        return self.module.globals[source.name]

    def tabulate(self, numbers: tuple[int, ...]) -> ir.Value:
        """Return a constant array of numbers."""
        kind = ir.ArrayType(INT, len(numbers))
        table = ir.GlobalVariable(self.module, kind, self.module.get_unique_name("numbers"))
        table.linkage, table.global_constant = "internal", True
        table.initializer = kind([INT(number) for number in numbers])
        return table.bitcast(POINTER)


@dataclass(frozen=True, slots=True)
class Slot:
    """Memory of a variable; LLVM has it in a register in the end."""

    where: ir.Value


@dataclass(slots=True)
class Variables:
    """The variables of a function, and where it goes when it returns.

    Parameters
    ----------
    source
        The function.
    end
        The block behind it if it is part of another one, else None.
    values
        What names stand for: a `Slot`, a value that stays, or a tuple of these.
    found
        Places of what it returns, if it is part of another one.
    loops
        For each loop around, the block to go on in and the one behind it.
    """

    source: Source
    end: ir.Block | None = None
    values: dict[str, Any] = field(default_factory=dict)
    found: Any = None
    loops: list[tuple[ir.Block, ir.Block]] = field(default_factory=list)


class Expressions(ABC):
    """What emits the expressions of one function.

    Parameters
    ----------
    unit
        The functions that it is one of.
    source
        The function.
    """

    def __init__(self, unit: Unit, source: Source) -> None:
        self.unit, self.variables = unit, Variables(source)
        self.function = unit.declare(source)
        self.entry = self.function.append_basic_block("entry")
        self.builder = ir.IRBuilder(self.entry)

    @abstractmethod
    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Emit statements, up to one that leaves."""

    def find(self, kind: str, node: ast.AST) -> Callable[[Any], Any]:
        """Return the method for a part of a function."""
        name = f"{kind}_{type(node).__name__.lower()}"
        if not hasattr(self, name):
            raise TypeError(f"{ast.unparse(node)!r} cannot be translated")
        method: Callable[[Any], Any] = getattr(self, name)
        return method

    def bind(self, name: str, value: Any) -> None:
        """Give a parameter its value."""
        if name in self.variables.source.changed:
            self.variables.values[name] = self.keep(value, None)
        else:
            self.variables.values[name] = value

    def keep(self, value: Any, place: Any) -> Any:
        """Write a value to where a variable is, or to a new place, and return the place."""
        if isinstance(value, tuple):
            places = (None,) * len(value) if place is None else place
            return tuple(self.keep(*both) for both in zip(value, places, strict=True))
        if place is None:
            kind = as_value(self.builder, value).type
            with self.builder.goto_block(self.entry):
                place = Slot(self.builder.alloca(kind))
        kind = place.where.allocated_type
        self.builder.store(as_value(self.builder, value, kind), place.where)
        return place

    def go(self, block: ir.Block) -> bool:
        """Go to a block, unless the code has left already; return whether it does."""
        goes = not self.builder.block.is_terminated
        if goes:
            self.builder.branch(block)
        return goes

    def read(self, value: Any) -> Any:
        """Return the value of what a name stands for."""
        if isinstance(value, tuple):
            return tuple(map(self.read, value))
        if isinstance(value, Slot):
            return self.builder.load(value.where, typ=value.where.allocated_type)
        return value

    def value(self, node: ast.expr) -> Any:
        """Emit an expression and return its value."""
        return self.find("_get", node)(node)

    def _get_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _get_name(self, node: ast.Name) -> Any:
        if node.id in self.variables.values:
            return self.read(self.variables.values[node.id])
        return self.variables.source.names[node.id]

    def _get_attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.value(node.value), node.attr)

    def _get_tuple(self, node: ast.Tuple) -> Any:
        return tuple(map(self.value, node.elts))

    def _get_subscript(self, node: ast.Subscript) -> Any:
        base, at = self.value(node.value), self.value(node.slice)
        if isinstance(base, tuple):
            if isinstance(at, int):
                return base[at]
            base = self.unit.tabulate(base)
        return self.builder.load(self.element(base, at), typ=base.type.pointee)

    def element(self, base: ir.Value, at: Any) -> ir.Value:
        """Return a pointer to a number at another one."""
        builder = self.builder
        if base.type not in (POINTER, REALS):
            raise TypeError(f"{base.type} has no elements")
        return builder.gep(base, [as_value(builder, at, INT)], source_etype=base.type.pointee)

    def _get_unaryop(self, node: ast.UnaryOp) -> Any:
        value, builder = self.value(node.operand), self.builder
        if isinstance(node.op, ast.Not):
            return (
                builder.not_(as_bit(builder, value)) if isinstance(value, ir.Value) else not value
            )
        if not isinstance(node.op, ast.USub):
            raise TypeError(f"{ast.unparse(node)!r} cannot be translated")
        return operate(builder, ast.Sub, 0, value)

    def _get_binop(self, node: ast.BinOp) -> Any:
        first, second = self.value(node.left), self.value(node.right)
        return operate(self.builder, type(node.op), first, second)

    def _get_compare(self, node: ast.Compare) -> Any:
        sides = [node.left, *node.comparators]
        first = self.value(sides[0])
        found = None
        for kind, side in zip(node.ops, sides[1:], strict=True):
            second = self.value(side)
            one = self._compare(type(kind), first, second)
            found = one if found is None else self.builder.and_(*map(self._bit, (found, one)))
            first = second
        return found

    def _compare(self, kind: type, first: Any, second: Any) -> Any:
        """Return whether a comparison is true; a tuple has a value if one of its parts is that."""
        if kind is not ast.In:
            return compare(self.builder, kind, first, second)
        found = [self._bit(compare(self.builder, ast.Eq, first, one)) for one in second]
        return reduce(self.builder.or_, found)

    def _bit(self, value: Any) -> ir.Value:
        return as_bit(self.builder, value)

    def _get_boolop(self, node: ast.BoolOp) -> Any:
        first, *others = node.values
        value = self.value(first)
        if not others:
            return value
        rest = node.values[1:]
        other = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        is_and = isinstance(node.op, ast.And)
        if not isinstance(value, ir.Value):
            return self.value(other) if bool(value) == is_and else value
        ways = (lambda: self.value(other)), (lambda: value)
        return self._choose(value, *(ways if is_and else ways[::-1]))

    def _get_ifexp(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        if not isinstance(test, ir.Value):
            return self.value(node.body if test else node.orelse)
        return self._choose(test, lambda: self.value(node.body), lambda: self.value(node.orelse))

    def _choose(self, test: ir.Value, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """Return one of two values; what makes the other does not run."""
        builder = self.builder
        blocks = [builder.append_basic_block(name) for name in ("yes", "no", "chosen")]
        builder.cbranch(as_bit(builder, test), *blocks[:2])
        ways = []
        for block, make in zip(blocks, (yes, no), strict=False):
            builder.position_at_end(block)
            value = make()
            if not isinstance(value, ir.Value) or value.type != BIT:
                value = as_value(builder, value)
            ways.append((value, builder.block))
        alike = all(isinstance(value, ir.Value) and value.type == BIT for value, _ in ways)
        ends = []
        for value, block in ways:
            builder.position_at_end(block)
            ends.append((value if alike else as_value(builder, value), block))
            builder.branch(blocks[2])
        builder.position_at_end(blocks[2])
        return self._join(ends)

    def _join(self, ends: Sequence[tuple[Any, ir.Block]]) -> Any:
        """Return the value that a block gets from the one that it is entered from."""
        first = ends[0][0]
        if isinstance(first, tuple):
            return tuple(
                self._join([(value[at], block) for value, block in ends])
                for at in range(len(first))
            )
        found = self.builder.phi(first.type)
        for value, block in ends:
            if value.type != first.type:
                raise TypeError(f"{first.type} or {value.type}")
            found.add_incoming(value, block)
        return found

    def _get_call(self, node: ast.Call) -> Any:
        function, builder = self.value(node.func), self.builder
        if node.keywords:
            raise TypeError("arguments by name cannot be translated")
        given = [self.value(one) for one in node.args]
        if function in (min, max):
            found, *others = given
            for one in others:
                found = smaller(builder, found, one, largest=function is max)
            return found
        if isinstance(function, Intrinsic):
            return function.emit(builder, *(as_value(builder, one) for one in given))
        source = getattr(function, "source", None)
        if not isinstance(source, Source):
            raise TypeError(f"{ast.unparse(node.func)!r} cannot be called")
        if source.returns is None:
            return self._insert(source, given)
        kinds = zip(given, source.parameters, strict=True)
        result = builder.call(
            self.unit.declare(source), [as_value(builder, one, kind) for one, kind in kinds]
        )
        if isinstance(source.returns, ir.LiteralStructType):
            count = len(source.returns.elements)
            return tuple(builder.extract_value(result, at) for at in range(count))
        return result

    def _insert(self, source: Source, given: Sequence[Any]) -> Any:
        """Emit a function in the place of its call, and return what it returns."""
        caller, end = self.variables, self.builder.append_basic_block("inserted")
        self.variables = Variables(source, end)
        for name, value in zip(source.arguments, given, strict=True):
            self.bind(name, value)
        self.run(source.tree.body)
        self.go(end)
        self.builder.position_at_end(end)
        found, self.variables = self.variables.found, caller
        return self.read(found)
