"""Translation of Python functions of numbers into LLVM IR.

What runs inside a call is written as Python functions of integers, doubles, pointers to these and
tuples of these. Names for numbers outside are constants, as is all that is known before:
a branch that this rules out is not translated. Other integers have 64 bits; their arithmetic is
Python's, but wraps around, and dividing by zero gives zero. A variable has one type. See
docs/decisions/055.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from tilesolve.kernels.codegen.expressions import Expressions, Unit
from tilesolve.kernels.codegen.python_source import Source
from tilesolve.kernels.codegen.scalars import INT, VOID, as_bit, as_value, compare, operate


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


class Body(Expressions):
    """Emits the code of one function.

    Parameters
    ----------
    unit
        The functions that it is one of.
    source
        The function.
    """

    def translate(self) -> None:
        """Emit the whole function."""
        source, begin = self.variables.source, self.builder.append_basic_block("begin")
        self.builder.branch(begin)  # behind the memory of all variables
        self.builder.position_at_end(begin)
        for name, value in zip(source.arguments, self.function.args, strict=True):
            self.bind(name, value)
        self.run(source.tree.body)
        if not self.builder.block.is_terminated:
            self._leave(None)

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Emit statements, up to one that leaves."""
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            try:
                self.find("_do", statement)(statement)
            except (TypeError, KeyError, ValueError, AttributeError) as error:
                if isinstance(error, UntranslatableError):
                    raise
                name = self.variables.source.name
                raise UntranslatableError(f"{name}, line {statement.lineno}: {error}") from error

    def _do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def _do_pass(self, _: ast.Pass) -> None:
        pass

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            before = self.read(self.variables.values[node.target.id])
            after = operate(self.builder, type(node.op), before, self.value(node.value))
            self._assign(node.target, after)
            return
        if isinstance(node.target, ast.Attribute):
            raise TypeError(f"{ast.unparse(node.target)!r} cannot be given a value")
        base, at = self.value(node.target.value), self.value(node.target.slice)
        where, kind = self.element(base, at), base.type.pointee
        before = self.builder.load(where, typ=kind)
        after = operate(self.builder, type(node.op), before, self.value(node.value))
        self.builder.store(as_value(self.builder, after, kind), where)

    def _assign(self, target: ast.expr, value: Any) -> None:
        """Give a name, an element, or a tuple of these a value."""
        if isinstance(target, ast.Name):
            values = self.variables.values
            values[target.id] = self.keep(value, values.get(target.id))
        elif isinstance(target, ast.Subscript):
            base, at = self.value(target.value), self.value(target.slice)
            where = self.element(base, at)
            self.builder.store(as_value(self.builder, value, base.type.pointee), where)
        elif isinstance(target, ast.Tuple):
            for one, part in zip(target.elts, value, strict=True):
                self._assign(one, part)
        else:
            raise TypeError(f"{ast.unparse(target)!r} cannot be given a value")

    def _do_return(self, node: ast.Return) -> None:
        self._leave(None if node.value is None else self.value(node.value))

    def _leave(self, value: Any) -> None:
        """Return from a function, or go behind one that is part of another."""
        builder, own = self.builder, self.variables
        if own.end is not None:
            if value is not None:
                own.found = self.keep(value, own.found)
            builder.branch(own.end)
        elif own.source.returns == VOID:
            builder.ret_void()
        elif isinstance(value, tuple):
            together = ir.Constant(own.source.returns, ir.Undefined)
            for at, one in enumerate(value):
                together = builder.insert_value(together, as_value(builder, one, INT), at)
            builder.ret(together)
        else:
            builder.ret(as_value(builder, value, own.source.returns))

    def _do_if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if not isinstance(test, ir.Value):
            self.run(node.body if test else node.orelse)
            return
        builder = self.builder
        then, other, end = (builder.append_basic_block(name) for name in ("then", "else", "end"))
        builder.cbranch(as_bit(builder, test), then, other)
        ends = []
        for block, statements in ((then, node.body), (other, node.orelse)):
            builder.position_at_end(block)
            self.run(statements)
            ends.append(self.go(end))
        builder.position_at_end(end)
        if not any(ends):
            builder.unreachable()

    def _do_while(self, node: ast.While) -> None:
        builder = self.builder
        again, body, end = (builder.append_basic_block(name) for name in ("again", "body", "end"))
        builder.branch(again)
        builder.position_at_end(again)
        builder.cbranch(as_bit(builder, self.value(node.test)), body, end)
        self._loop(node, body, again, end)

    def _loop(
        self, node: ast.While | ast.For, body: ir.Block, again: ir.Block, end: ir.Block
    ) -> None:
        """Emit what a loop does in a block, and go on behind it."""
        if node.orelse:
            raise TypeError("a loop with 'else' cannot be translated")
        self.builder.position_at_end(body)
        self.variables.loops.append((again, end))
        self.run(node.body)
        self.go(again)
        self.variables.loops.pop()
        self.builder.position_at_end(end)

    def _do_for(self, node: ast.For) -> None:
        builder = self.builder
        if not isinstance(node.iter, ast.Call) or ast.unparse(node.iter.func) != "range":
            raise TypeError("only a loop over a range can be translated")
        bounds = [self.value(one) for one in node.iter.args]
        step = bounds.pop() if len(bounds) == 3 else 1
        first, last = bounds if len(bounds) == 2 else (0, *bounds)
        last = as_value(builder, last, INT)
        test, body, more, end = (
            builder.append_basic_block(name) for name in ("test", "body", "more", "end")
        )
        count = self.keep(first, None)
        builder.branch(test)
        builder.position_at_end(test)
        at = self.read(count)
        builder.cbranch(self._is_within(at, last, step), body, end)
        builder.position_at_end(body)
        self._assign(node.target, at)
        self._loop(node, body, more, end)
        builder.position_at_end(more)
        self.keep(operate(builder, ast.Add, self.read(count), step), count)
        builder.branch(test)
        builder.position_at_end(end)

    def _is_within(self, at: Any, last: Any, step: Any) -> ir.Value:
        """Return whether a range goes on."""
        builder = self.builder
        up, down = (compare(builder, kind, at, last) for kind in (ast.Lt, ast.Gt))
        rises = compare(builder, ast.Gt, step, 0)
        if not isinstance(rises, ir.Value):
            return up if rises else down
        return builder.select(rises, up, down)

    def _do_continue(self, _: ast.Continue) -> None:
        self.builder.branch(self.variables.loops[-1][0])

    def _do_break(self, _: ast.Break) -> None:
        self.builder.branch(self.variables.loops[-1][1])
