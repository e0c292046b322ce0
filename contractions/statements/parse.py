"""Statements as text: Python assignments, one a stage."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.operations import (
    BINARY,
    CALLS,
    DTYPES,
    REDUCTIONS,
    SEARCHES,
    UNARY,
)
from tilesolve.contractions.statements.pieces import (
    Piece,
    find_period,
    intersect,
    is_limited,
    unite,
    write_pieces,
)
from tilesolve.contractions.statements.positions import fold_numbers, fold_positions, list_letters
from tilesolve.contractions.statements.scans import SCANS, Scan
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Number,
    Param,
    Position,
    Read,
    Reduce,
    Term,
)
from tilesolve.contractions.statements.values import converted

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.USub: "-",
    ast.Invert: "~",
}
_SIDES = re.compile(r"(\w)\[\s*\]")
"""An element of an array without axes, as in ``d[]``."""

_TESTS = {"any": "bitwise_or", "all": "bitwise_and"}
_SUMS = {
    **_TESTS,
    **{name: name for name in SEARCHES},
    **{"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum"},
    **{name: name for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
}


def parse_stages(text: str, where: str | Sequence[str] = ()) -> tuple[Stage, ...]:
    r"""Read statements such as ``"C[i,j] += A[i,k] * B[k,j]"``, one a line.

    Letters of the left side are its axes. ``+=``, ``*=``, ``&=``, ``|=`` and ``^=`` run over all
    other letters, and so do ``sum``, ``prod``, ``min`` and ``max`` of one argument; further ones
    name the letters: ``sum(A[i,k] * x[k], k)``. Names without brackets that are no letters are
    parameters.

    `where` has conditions on the letters of the last statement: ``"j <= i"``, ``"0 <= i - j <
    3"``.

    Raises
    ------
    SpecError
        If the text is no such statement; the message shows the column.

    Examples
    --------
    >>> for stage in parse_stages("t[y,x] = (A[y,x] + A[y,x+2]) / 2\nout[y] += t[y,x]"):
    ...     print(stage)
    t[y,x] = (A[y,x] + A[y,x+2]) / 2
    out[y] += t[y,x]
    """
    check_kind(text, str, "a statement", "text such as 'C[i,j] += A[i,k] * B[k,j]'", SpecError)
    found: list[Stage] = []
    pieces = parse_region(where)
    lines = [line for part in text.splitlines() for line in part.split(";") if line.strip()]
    if not lines:
        raise SpecError("no statement is given; one is 'C[i,j] += A[i,k] * B[k,j]'")
    for line in lines:
        known = {one.name for one in found if not one.axes}
        found.append(_Statement(line.strip(), scalars=known).stage())
    return put_in_region(found, pieces)


def put_in_region(stages: Sequence[Stage], pieces: Sequence[Piece]) -> tuple[Stage, ...]:
    """Return statements, the last one of them in a region.

    Examples
    --------
    >>> for stage in parse_stages("o[i] += A[i,k]", "k != i"):
    ...     print(stage)
    o_1[i] += A[i,k], where i > k
    o_2[i] += A[i,k], where k > i
    o[i] = o_1[i] + o_2[i]
    """
    if not stages or pieces == ((),):
        return tuple(stages)
    *others, last = stages
    names = {x.array for one in stages for x in (one.target, *one.reads)}
    return (*others, *write_pieces(last, [(piece, last.term) for piece in pieces], names))


def parse_conditions(text: str | Sequence[str | Condition]) -> tuple[Condition, ...]:
    """Read conditions on letters, all of which hold.

    Examples
    --------
    >>> [str(one) for one in parse_conditions("0 <= i - j < 3")]
    ['i >= j', 'j+2 >= i']
    """
    pieces = parse_region(text)
    if len(pieces) != 1:
        raise SpecError(f"{text!r} is no intersection: it has {len(pieces)} pieces")
    return pieces[0]


def parse_region(text: str | Sequence[str | Condition]) -> tuple[Piece, ...]:
    """Read a region: pieces without a common point, in each of which conditions hold.

    Conditions are joined by ``and`` and ``or``; those of a list hold all.

    Examples
    --------
    >>> [" and ".join(map(str, piece)) for piece in parse_region("i < 3 or j != 5")]
    ['2 >= i', '4 >= j and i >= 3', 'j >= 6 and i >= 3']
    """
    check_kind(text, (str, list, tuple), "where", "text such as 'j <= i'", SpecError)
    texts: list[str | Condition] = [text] if isinstance(text, str) else list(text)
    texts = [one for one in texts if not (isinstance(one, str) and one == "")]
    found: tuple[Piece, ...] = ((),)
    for one in texts:
        check_kind(one, (str, Condition), "where", "text such as 'j <= i'", SpecError)
        region = ((one,),) if isinstance(one, Condition) else _Statement(one, "where").region()
        found = intersect(found, region)
    return found


@dataclass(slots=True)
class _Statement:
    """One statement or condition that is being read.

    `kind` is its name in messages. `letters` are the names that stand in subscripts: a name
    elsewhere is one of them, one of `scalars`, the arrays without axes, or a parameter.
    """

    text: str
    kind: str = "statement"
    letters: set[str] = field(default_factory=set)
    scalars: set[str] = field(default_factory=set)

    def stage(self) -> Stage:
        node = self._parsed()
        if isinstance(node, ast.Assign):
            if len(node.targets) != 1:
                raise self._refused(node.targets[1], "one array is assigned to at a time")
            left, operator = node.targets[0], None
        elif isinstance(node, ast.AugAssign):
            left, operator = node.target, node.op
        else:
            raise self._refused(node, "this is no assignment such as C[i,j] = A[j,i]")
        if not isinstance(left, ast.Subscript | ast.Name):
            raise self._refused(left, "the left side is an element such as C[i,j]")
        self.letters |= list_letters(node) - {*CALLS, *DTYPES, *_SUMS, *SCANS, "where"}
        if isinstance(left, ast.Name):
            self.scalars.add(left.id)
        target = Read(left.id, ()) if isinstance(left, ast.Name) else self._read(left)
        term = self._term(node.value, target)
        if operator is None:
            return Stage.of(target, term)
        name = self._reduction(node, operator)
        if any(not isinstance(one, Affine) or one.plain is None for one in target.subscripts):
            return Stage.of(target, term, update=name)
        over = tuple(letter for letter in term.letters if letter not in target.letters)
        if not over:
            sign = f"{_SYMBOLS[type(operator)]}"
            raise self._refused(
                node, f"{sign}= runs over no letter; write {target} = {target} {sign} …"
            )
        return Stage.of(target, Reduce(name, over, term), augmented=True)

    def region(self) -> tuple[Piece, ...]:
        self.text = self.text.strip()
        return self._pieces(self._parsed("eval"))

    def _pieces(self, node: ast.AST) -> tuple[Piece, ...]:
        """Return the pieces of a region."""
        if isinstance(node, ast.BoolOp):
            parts = [self._pieces(one) for one in node.values]
            return unite(parts) if isinstance(node.op, ast.Or) else reduce(intersect, parts)
        if not isinstance(node, ast.Compare):
            raise self._refused(node, "a condition compares letters, as j <= i does")
        found: tuple[Piece, ...] = ((),)
        sides = [self._position(one) for one in (node.left, *node.comparators)]
        for operator, pair in zip(node.ops, pairwise(sides), strict=True):
            found = intersect(found, self._compared(node, operator, *pair))
        return found

    def _compared(
        self, node: ast.AST, operator: ast.cmpop, left: Affine, right: Affine
    ) -> list[Piece]:
        for one in (left, right):
            if one.divisor > 1:
                raise self._refused(
                    node, f"a condition compares sums of letters; {one} is a quotient"
                )
        letters = (*left.letters, *right.letters)
        match operator:
            case ast.LtE():
                return [_conditions([right - left], letters)]
            case ast.Lt():
                return [_conditions([right - left - 1], letters)]
            case ast.GtE():
                return [_conditions([left - right], letters)]
            case ast.Gt():
                return [_conditions([left - right - 1], letters)]
            case ast.Eq():
                return [_conditions([left - right, right - left], letters)]
            case ast.NotEq():
                sides = (right - left - 1, left - right - 1)
                return [_conditions([one], letters) for one in sides]
            case _:
                raise self._refused(node, "a condition compares by <, <=, >, >=, == or !=")

    def _parsed(self, mode: str = "exec") -> ast.AST:
        try:
            tree = ast.parse(_SIDES.sub(r"\1[()]", self.text), mode=mode)
        except SyntaxError as error:
            raise self._error((error.offset or 1) - 1, error.msg) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise SpecError(f"{self.text!r:.80} cannot be read: {error}") from error
        if isinstance(tree, ast.Expression):
            return tree.body
        assert isinstance(tree, ast.Module)
        if len(tree.body) != 1:
            raise SpecError(f"{self.text!r} is not one statement")
        return tree.body[0]

    def _error(self, column: int, what: str) -> SpecError:
        return SpecError(f"{self.kind} {self.text!r}, at column {column + 1}: {what}")

    def _refused(self, node: ast.AST, what: str) -> SpecError:
        return self._error(getattr(node, "col_offset", 0), what)

    def _reduction(self, node: ast.AST, operator: ast.operator) -> str:
        symbol = _SYMBOLS.get(type(operator), "")
        name = BINARY[symbol].name if symbol in BINARY else ""
        if name not in REDUCTIONS:
            raise self._refused(node, "only +=, *=, &=, |= and ^= run over letters")
        return name

    def _term(self, node: ast.expr, target: Read) -> Term:
        match node:
            case ast.Constant(value=bool() | int() | float() | complex()):
                assert isinstance(node.value, bool | int | float | complex)
                return Number(node.value)
            case ast.Name(id=name) if name in self.scalars:
                return Read(name, ())
            case ast.Name(id=name):
                return Position(Affine.letter(name)) if name in self.letters else Param(name)
            case ast.Subscript():
                return self._read(node, target)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._apply(node, operator, (left, right), target)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._term(operand, target)
            case ast.UnaryOp(op=operator, operand=operand):
                if isinstance(operator, ast.USub) and isinstance(operand, ast.Constant):
                    value = operand.value
                    if isinstance(value, int | float | complex) and not isinstance(value, bool):
                        return Number(-value)
                return self._apply(node, operator, (operand,), target)
            case ast.Compare(left=left, ops=operators, comparators=others):
                sides = pairwise((left, *others))
                found = [
                    self._apply(node, operator, pair, target)
                    for operator, pair in zip(operators, sides, strict=True)
                ]
                return reduce(lambda one, other: one & other, found)
            case ast.IfExp(test=test, body=yes, orelse=no):
                chosen, other, either = (self._term(one, target) for one in (yes, no, test))
                return Choose(either, chosen, other, inline=True)
            case ast.Call():
                return self._call(node, target)
            case ast.BoolOp():
                raise self._refused(
                    node, "elements are compared with & and |, not with 'and' and 'or'"
                )
            case _:
                raise self._refused(node, f"{ast.unparse(node)} is no part of a statement")

    def _apply(
        self, node: ast.expr, operator: ast.AST, parts: Sequence[ast.expr], target: Read
    ) -> Term:
        symbol = _SYMBOLS.get(type(operator))
        operation = (BINARY if len(parts) == 2 else UNARY).get(symbol or "")
        if operation is None:
            raise self._refused(node, f"{ast.unparse(node)}: there is no such operation")
        terms = tuple(self._term(part, target) for part in parts)
        number = fold_numbers(operation.name, terms)
        return number or fold_positions(operation.name, terms) or Apply(operation.name, terms)

    def _call(self, node: ast.Call, target: Read) -> Term:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if node.keywords:
            raise self._refused(node, "functions of statements take no keywords")
        if name in _SUMS and (name not in CALLS or all(map(self._is_letter, node.args[1:]))):
            return self._sum(node, name, target)
        if name in SCANS and len(node.args) == 2 and isinstance(node.args[1], ast.Name):
            return Scan(name, node.args[1].id, self._term(node.args[0], target))
        given = tuple(self._term(one, target) for one in node.args)
        if name == "where" and len(given) == 3:
            return Choose(*given)
        if name in DTYPES and len(given) == 1:
            return converted(given[0], name)
        if name in ("where", *SCANS, *DTYPES):
            usage = {"where": "where(test, yes, no)"}.get(name, f"{name}(A[i])")
            usage = f"{name}(A[i,k], k)" if name in SCANS else usage
            raise self._refused(node, f"{name} is called like {usage}")
        if name not in CALLS:
            known = ", ".join(sorted({*CALLS, *_SUMS, *SCANS, "where"}))
            raise self._refused(
                node, f"no function {name or ast.unparse(node.func)!r}; there are {known}"
            )
        wanted = CALLS[name].function.nin
        several = name in _SUMS and not any(map(self._is_letter, node.args[1:]))
        if len(given) != wanted and not (several and len(given) > wanted):
            raise self._refused(node, f"{name} takes {wanted} arguments, not {len(given)}")
        if several:
            return reduce(lambda one, other: Apply(CALLS[name].name, (one, other)), given)
        return Apply(CALLS[name].name, given)

    def _sum(self, node: ast.Call, name: str, target: Read) -> Term:
        if not node.args:
            raise self._refused(node, f"{name} takes a term")
        term = self._term(node.args[0], target)
        over = []
        for one in node.args[1:]:
            if not isinstance(one, ast.Name) or one.id not in term.letters:
                text = ast.unparse(one)
                number = f"; as a number it is {text}+0" if name in CALLS else ""
                raise self._refused(
                    one, f"{name} runs over letters of its term: {term} has no {text!r}{number}"
                )
            over.append(one.id)
        over = over or [letter for letter in term.letters if letter not in target.letters]
        if not over:
            raise self._refused(node, f"{name} runs over no letter: {target} has all of {term}")
        return Reduce(_SUMS[name], tuple(over), Cast("bool", term) if name in _TESTS else term)

    def _is_letter(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.letters

    def _read(self, node: ast.Subscript, target: Read | None = None) -> Read:
        if not isinstance(node.value, ast.Name):
            raise self._refused(node, "an array is a name, as in A[i,j]")
        inner = node.slice
        given = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        return Read(node.value.id, tuple(self._subscript(one, target) for one in given))

    def _subscript(self, node: ast.expr, target: Read | None) -> Affine | Term:
        if isinstance(node, ast.Slice | ast.Starred):
            raise self._refused(node, "a subscript is a position, not a slice")
        term = self._term(node, target or Read("_", ()))
        if isinstance(term, Position):
            return term.position
        if isinstance(term, Number) and type(term.value) is int:
            return Affine.number(term.value)
        if not (term.reads or find_period(term) or is_limited(term)):
            raise self._refused(
                node,
                f"{term} is no position: those are sums of letters, divided at most, or % a size, "
                "or these within limits that min and max set",
            )
        return term

    def _position(self, node: ast.expr) -> Affine:
        self.letters |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        found = self._subscript(node, None)
        if not isinstance(found, Affine):
            raise self._refused(node, f"a region is bounded by letters and numbers, not by {found}")
        return found


def _conditions(positions: Sequence[Affine], letters: Sequence[str]) -> Piece:
    """Return that positions are not negative, as conditions on the letters that were written.

    Where these cancel out, ``l < l`` is like ``l < 0``.
    """
    found = []
    for position in positions:
        if position.letters or not letters:
            found.append(Condition(position))
        elif position.offset < 0:
            found.append(Condition(Affine.of([(-1, x) for x in dict.fromkeys(letters)], -1)))
    return tuple(found)
