"""Translation of Python functions of integers into LLVM IR.

What runs inside a call is written as Python functions of integers, doubles, pointers to integers
and tuples of these. Names for numbers outside are constants, as is all that is known before:
a branch that this rules out is not translated. Other integers have 64 bits; their arithmetic is
Python's, but wraps around, and dividing by zero gives zero. A variable has one type. See
docs/decisions/063.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from llvmlite import ir

from tilesolve.kernels.codegen.intrinsics import Intrinsic
from tilesolve.kernels.codegen.python_source import Source
from tilesolve.kernels.codegen.scalars import (
    BIT,
    INT,
    POINTER,
    VOID,
    as_bit,
    as_value,
    compare,
    operate,
    smaller,
)


class UntranslatableError(TypeError):
    """A function has what cannot be translated."""


def translate(module: ir.Module, wanted: Sequence[Source]) -> list[ir.Function]:
    """Add functions to a module, and all that they call; return those, which alone are visible.

    Raises
    ------
    TypeError
        If a function has what cannot be translated; the message names its line.
    """
    unit = Unit(module)
    found = [unit.declare(source) for source in wanted]
    for function in found:
        function.linkage = ""
    while unit.waiting:
        source = unit.waiting.pop()
        Body(unit, source).translate()
    return found


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
class Place:
    """Memory of a variable; LLVM has it in a register in the end."""

    where: ir.Value


@dataclass(slots=True)
class Scope:
    """The variables of a function, and where it goes when it returns.

    Parameters
    ----------
    source
        The function.
    end
        The block behind it if it is part of another one, else None.
    values
        What names stand for: a `Place`, a value that stays, or a tuple of these.
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


class Body:
    """Emits the code of one function.

    Parameters
    ----------
    unit
        The functions that it is one of.
    source
        The function.
    """

    def __init__(self, unit: Unit, source: Source) -> None:
        self._unit, self._scope = unit, Scope(source)
        self._function = unit.declare(source)
        self._entry = self._function.append_basic_block("entry")
        self._builder = ir.IRBuilder(self._entry)

    def translate(self) -> None:
        """Emit the whole function."""
        source, begin = self._scope.source, self._builder.append_basic_block("begin")
        self._builder.branch(begin)  # behind the memory of all variables
        self._builder.position_at_end(begin)
        for name, value in zip(source.arguments, self._function.args, strict=True):
            self._bind(name, value)
        self._run(source.tree.body)
        if not self._builder.block.is_terminated:
            self._leave(None)

    # Variables

    def _bind(self, name: str, value: Any) -> None:
        """Give a parameter its value."""
        if name in self._scope.source.changed:
            self._scope.values[name] = self._keep(value, None)
        else:
            self._scope.values[name] = value

    def _keep(self, value: Any, place: Any) -> Any:
        """Write a value to where a variable is, or to a new place, and return the place."""
        if isinstance(value, tuple):
            places = (None,) * len(value) if place is None else place
            return tuple(self._keep(*both) for both in zip(value, places, strict=True))
        if place is None:
            kind = as_value(self._builder, value).type
            with self._builder.goto_block(self._entry):
                place = Place(self._builder.alloca(kind))
        kind = place.where.allocated_type
        self._builder.store(as_value(self._builder, value, kind), place.where)
        return place

    def _read(self, value: Any) -> Any:
        """Return the value of what a name stands for."""
        if isinstance(value, tuple):
            return tuple(map(self._read, value))
        if isinstance(value, Place):
            return self._builder.load(value.where, typ=value.where.allocated_type)
        return value

    # Statements

    def _run(self, statements: Sequence[ast.stmt]) -> None:
        """Emit statements, up to one that leaves."""
        for statement in statements:
            if self._builder.block.is_terminated:
                return
            try:
                self._find("_do", statement)(statement)
            except (TypeError, KeyError, ValueError, AttributeError) as error:
                if isinstance(error, UntranslatableError):
                    raise
                name = self._scope.source.name
                raise UntranslatableError(f"{name}, line {statement.lineno}: {error}") from error

    def _find(self, kind: str, node: ast.AST) -> Callable[[Any], Any]:
        """Return the method for a part of a function."""
        name = f"{kind}_{type(node).__name__.lower()}"
        if not hasattr(self, name):
            raise TypeError(f"{ast.unparse(node)!r} cannot be translated")
        method: Callable[[Any], Any] = getattr(self, name)
        return method

    def _do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self._value(node.value)

    def _do_pass(self, _: ast.Pass) -> None:
        pass

    def _do_assign(self, node: ast.Assign) -> None:
        value = self._value(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            before = self._read(self._scope.values[node.target.id])
            after = operate(self._builder, type(node.op), before, self._value(node.value))
            self._assign(node.target, after)
            return
        where = self._element(self._value(node.target.value), self._value(node.target.slice))
        before = self._builder.load(where, typ=INT)
        after = operate(self._builder, type(node.op), before, self._value(node.value))
        self._builder.store(as_value(self._builder, after, INT), where)

    def _assign(self, target: ast.expr, value: Any) -> None:
        """Give a name, an element, or a tuple of these a value."""
        if isinstance(target, ast.Name):
            values = self._scope.values
            values[target.id] = self._keep(value, values.get(target.id))
        elif isinstance(target, ast.Subscript):
            where = self._element(self._value(target.value), self._value(target.slice))
            self._builder.store(as_value(self._builder, value, INT), where)
        elif isinstance(target, ast.Tuple):
            for one, part in zip(target.elts, value, strict=True):
                self._assign(one, part)
        else:
            raise TypeError(f"{ast.unparse(target)!r} cannot be given a value")

    def _do_return(self, node: ast.Return) -> None:
        self._leave(None if node.value is None else self._value(node.value))

    def _leave(self, value: Any) -> None:
        """Return from a function, or go behind one that is part of another."""
        builder, scope = self._builder, self._scope
        if scope.end is not None:
            if value is not None:
                scope.found = self._keep(value, scope.found)
            builder.branch(scope.end)
        elif scope.source.returns == VOID:
            builder.ret_void()
        elif isinstance(value, tuple):
            together = scope.source.returns(ir.Undefined)
            for at, one in enumerate(value):
                together = builder.insert_value(together, as_value(builder, one, INT), at)
            builder.ret(together)
        else:
            builder.ret(as_value(builder, value, scope.source.returns))

    def _do_if(self, node: ast.If) -> None:
        test = self._value(node.test)
        if not isinstance(test, ir.Value):
            self._run(node.body if test else node.orelse)
            return
        builder = self._builder
        then, other, end = (builder.append_basic_block(name) for name in ("then", "else", "end"))
        builder.cbranch(as_bit(builder, test), then, other)
        ends = []
        for block, statements in ((then, node.body), (other, node.orelse)):
            builder.position_at_end(block)
            self._run(statements)
            ends.append(self._go(end))
        builder.position_at_end(end)
        if not any(ends):
            builder.unreachable()

    def _go(self, block: ir.Block) -> bool:
        """Go to a block, unless the code has left already; return whether it does."""
        goes = not self._builder.block.is_terminated
        if goes:
            self._builder.branch(block)
        return goes

    def _do_while(self, node: ast.While) -> None:
        builder = self._builder
        again, body, end = (builder.append_basic_block(name) for name in ("again", "body", "end"))
        builder.branch(again)
        builder.position_at_end(again)
        builder.cbranch(as_bit(builder, self._value(node.test)), body, end)
        self._loop(node, body, again, end)

    def _loop(
        self, node: ast.While | ast.For, body: ir.Block, again: ir.Block, end: ir.Block
    ) -> None:
        """Emit what a loop does in a block, and go on behind it."""
        if node.orelse:
            raise TypeError("a loop with 'else' cannot be translated")
        self._builder.position_at_end(body)
        self._scope.loops.append((again, end))
        self._run(node.body)
        self._go(again)
        self._scope.loops.pop()
        self._builder.position_at_end(end)

    def _do_for(self, node: ast.For) -> None:
        builder = self._builder
        if not isinstance(node.iter, ast.Call) or ast.unparse(node.iter.func) != "range":
            raise TypeError("only a loop over a range can be translated")
        bounds = [self._value(one) for one in node.iter.args]
        step = bounds.pop() if len(bounds) == 3 else 1
        first, last = bounds if len(bounds) == 2 else (0, *bounds)
        last = as_value(builder, last, INT)
        test, body, more, end = (
            builder.append_basic_block(name) for name in ("test", "body", "more", "end")
        )
        count = self._keep(first, None)
        builder.branch(test)
        builder.position_at_end(test)
        at = self._read(count)
        builder.cbranch(self._is_within(at, last, step), body, end)
        builder.position_at_end(body)
        self._assign(node.target, at)
        self._loop(node, body, more, end)
        builder.position_at_end(more)
        self._keep(operate(builder, ast.Add, self._read(count), step), count)
        builder.branch(test)
        builder.position_at_end(end)

    def _is_within(self, at: Any, last: Any, step: Any) -> ir.Value:
        """Return whether a range goes on."""
        builder = self._builder
        up, down = (compare(builder, kind, at, last) for kind in (ast.Lt, ast.Gt))
        rises = compare(builder, ast.Gt, step, 0)
        if not isinstance(rises, ir.Value):
            return up if rises else down
        return builder.select(rises, up, down)

    def _do_continue(self, _: ast.Continue) -> None:
        self._builder.branch(self._scope.loops[-1][0])

    def _do_break(self, _: ast.Break) -> None:
        self._builder.branch(self._scope.loops[-1][1])

    # Expressions

    def _value(self, node: ast.expr) -> Any:
        """Emit an expression and return its value."""
        return self._find("_get", node)(node)

    def _get_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _get_name(self, node: ast.Name) -> Any:
        if node.id in self._scope.values:
            return self._read(self._scope.values[node.id])
        return self._scope.source.names[node.id]

    def _get_attribute(self, node: ast.Attribute) -> Any:
        return getattr(self._value(node.value), node.attr)

    def _get_tuple(self, node: ast.Tuple) -> Any:
        return tuple(map(self._value, node.elts))

    def _get_subscript(self, node: ast.Subscript) -> Any:
        base, at = self._value(node.value), self._value(node.slice)
        if isinstance(base, tuple):
            if isinstance(at, int):
                return base[at]
            base = self._unit.tabulate(base)
        return self._builder.load(self._element(base, at), typ=INT)

    def _element(self, base: ir.Value, at: Any) -> ir.Value:
        """Return a pointer to a number at another one."""
        builder = self._builder
        if base.type != POINTER:
            raise TypeError(f"{base.type} has no elements")
        return builder.gep(base, [as_value(builder, at, INT)], source_etype=INT)

    def _get_unaryop(self, node: ast.UnaryOp) -> Any:
        value, builder = self._value(node.operand), self._builder
        if isinstance(node.op, ast.Not):
            return (
                builder.not_(as_bit(builder, value)) if isinstance(value, ir.Value) else not value
            )
        if not isinstance(node.op, ast.USub):
            raise TypeError(f"{ast.unparse(node)!r} cannot be translated")
        return operate(builder, ast.Sub, 0, value)

    def _get_binop(self, node: ast.BinOp) -> Any:
        first, second = self._value(node.left), self._value(node.right)
        return operate(self._builder, type(node.op), first, second)

    def _get_compare(self, node: ast.Compare) -> Any:
        sides = [node.left, *node.comparators]
        first = self._value(sides[0])
        found = None
        for kind, side in zip(node.ops, sides[1:], strict=True):
            second = self._value(side)
            one = self._compare(type(kind), first, second)
            found = one if found is None else self._builder.and_(*map(self._bit, (found, one)))
            first = second
        return found

    def _compare(self, kind: type, first: Any, second: Any) -> Any:
        """Return whether a comparison is true; a tuple has a value if one of its parts is that."""
        if kind is not ast.In:
            return compare(self._builder, kind, first, second)
        found = [self._bit(compare(self._builder, ast.Eq, first, one)) for one in second]
        return reduce(self._builder.or_, found)

    def _bit(self, value: Any) -> ir.Value:
        return as_bit(self._builder, value)

    def _get_boolop(self, node: ast.BoolOp) -> Any:
        first, *others = node.values
        value = self._value(first)
        if not others:
            return value
        rest = node.values[1:]
        other = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        is_and = isinstance(node.op, ast.And)
        if not isinstance(value, ir.Value):
            return self._value(other) if bool(value) == is_and else value
        ways = (lambda: self._value(other)), (lambda: value)
        return self._choose(value, *(ways if is_and else ways[::-1]))

    def _get_ifexp(self, node: ast.IfExp) -> Any:
        test = self._value(node.test)
        if not isinstance(test, ir.Value):
            return self._value(node.body if test else node.orelse)
        return self._choose(test, lambda: self._value(node.body), lambda: self._value(node.orelse))

    def _choose(self, test: ir.Value, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """Return one of two values; what makes the other does not run."""
        builder = self._builder
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
        found = self._builder.phi(first.type)
        for value, block in ends:
            if value.type != first.type:
                raise TypeError(f"{first.type} or {value.type}")
            found.add_incoming(value, block)
        return found

    def _get_call(self, node: ast.Call) -> Any:
        function, builder = self._value(node.func), self._builder
        if node.keywords:
            raise TypeError("arguments by name cannot be translated")
        given = [self._value(one) for one in node.args]
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
            self._unit.declare(source), [as_value(builder, one, kind) for one, kind in kinds]
        )
        if isinstance(source.returns, ir.LiteralStructType):
            count = len(source.returns.elements)
            return tuple(builder.extract_value(result, at) for at in range(count))
        return result

    def _insert(self, source: Source, given: Sequence[Any]) -> Any:
        """Emit a function in the place of its call, and return what it returns."""
        caller, end = self._scope, self._builder.append_basic_block("inserted")
        self._scope = Scope(source, end)
        for name, value in zip(source.arguments, given, strict=True):
            self._bind(name, value)
        self._run(source.tree.body)
        self._go(end)
        self._builder.position_at_end(end)
        found, self._scope = self._scope.found, caller
        return self._read(found)
