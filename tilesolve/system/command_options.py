"""What the subcommands do alike with their options."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, overload

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.spec import Spec

if TYPE_CHECKING:
    import typer

DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
"""Short names of dtypes."""


@overload
def full_dtype(name: str) -> str: ...
@overload
def full_dtype(name: None) -> None: ...
def full_dtype(name: str | None) -> str | None:
    """Return numpy's name of a dtype that may have been given by its short one.

    Examples
    --------
    >>> full_dtype("c64"), full_dtype("float32")
    ('complex64', 'float32')
    """
    return None if name is None else DTYPES.get(name, name)


def read_spec(text: str) -> Spec:
    """Return a spec; letters alone, an operand that is its own output, are taken for a slip.

    Examples
    --------
    >>> read_spec("abc")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SpecError: 'abc' is one tensor alone: a spec has an output and \
operands, such as 'abcd-aebf-dfce' or 'ij,jk->ik'
    """
    if text.strip() and not set("-,") & set(text):
        raise SpecError(
            f"{text!r} is one tensor alone: a spec has an output and operands, "
            "such as 'abcd-aebf-dfce' or 'ij,jk->ik'"
        )
    return Spec.parse(text)


def _given(context: typer.Context) -> Iterator[Any]:
    """Yield the parameters that were given, whatever their values."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source and source.name != "DEFAULT":
            yield parameter


def list_ignored(context: typer.Context, taken: Collection[str]) -> str:
    """Return the options that were given and are none of those taken, with commas between."""
    return ", ".join(found.opts[0] for found in _given(context) if found.name not in taken)


def rebuild_command(context: typer.Context) -> str:
    """Return the command line by which a subcommand was called."""
    words = ["tilesolve", context.command.name or ""]
    for found in _given(context):
        value = context.params[found.name]
        for one in value if isinstance(value, list | tuple) else [value]:
            option = [found.opts[0]] if found.param_type_name == "option" else []
            words += option if one is True else [*option, str(one)]
    return shlex.join(words)
