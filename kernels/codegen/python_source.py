"""Python functions that are to be translated, as Python's parser sees them."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from llvmlite import ir


@dataclass(frozen=True, eq=False)
class Source:
    """A Python function to be translated.

    Parameters
    ----------
    python
        The function.
    parameters, returns
        Types of what it takes and returns. Without a type of what it returns it becomes part of
        each function that calls it, for the types of the call.
    """

    python: Any
    parameters: Sequence[ir.Type] = ()
    returns: ir.Type | None = None

    @property
    def name(self) -> str:
        """The name of its code."""
        return f"{self.python.__module__}.{self.python.__qualname__}"

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """What Python's parser makes of it."""
        code = self.python.__code__
        return _parse_file(code.co_filename)[code.co_firstlineno]

    @cached_property
    def names(self) -> dict[str, Any]:
        """What names mean in it that it does not give itself."""
        cells = [cell.cell_contents for cell in self.python.__closure__ or ()]
        outer = dict(zip(self.python.__code__.co_freevars, cells, strict=True))
        return {"min": min, "max": max, **self.python.__globals__, **outer}

    @property
    def arguments(self) -> list[str]:
        """Names of its parameters."""
        return [one.arg for one in self.tree.args.args]

    @cached_property
    def changed(self) -> set[str]:
        """Names that it gives values to."""
        parts = (part for part in ast.walk(self.tree) if isinstance(part, ast.Name))
        return {part.id for part in parts if isinstance(part.ctx, ast.Store)}


@cache
def _parse_file(path: str) -> dict[int, ast.FunctionDef]:
    """Return the functions of a file by the line that each begins in, with its decorators."""
    parsed = ast.parse("".join(linecache.getlines(path)))
    found = [part for part in ast.walk(parsed) if isinstance(part, ast.FunctionDef)]
    return {
        min([part.lineno, *(one.lineno for one in part.decorator_list)]): part for part in found
    }
