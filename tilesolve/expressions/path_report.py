"""numpy's `einsum_path`: the order in which an einsum contracts its operands, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.subscripts import Subscripts, from_lists, read
from tilesolve.expressions.dispatch import Options, Request, flops
from tilesolve.expressions.paths import find_path, given_path
from tilesolve.system.checks import as_array, common_dtype
from tilesolve.system.tables import align_columns


def einsum_path(
    subscripts: Any = "",  # noqa: ANN401 - text, or the first operand of the list format
    *operands: Any,  # noqa: ANN401 - array-likes, and lists in the list format
    optimize: Any = True,  # noqa: ANN401 - what opt_einsum takes
) -> tuple[list[Any], str]:
    """Return the order in which `einsum` contracts its operands, as `numpy.einsum_path` does.

    Parameters
    ----------
    subscripts, *operands
        As `einsum` takes them.
    optimize
        As `einsum` takes it; False contracts all at once.

    Returns
    -------
    path : list
        ``"einsum_path"``, then the positions of the operands of each step, whose result joins at
        the end. `einsum` and `numpy.einsum` take it as `optimize`.
    report : str
        Each step's einsum, and the operations that it takes.

    Raises
    ------
    SpecError, SizeError, DtypeError
        If subscripts and operands do not fit.
    PathError
        If the order in `optimize` does not exist, or leaves operands over.

    Examples
    --------
    >>> a, b, c = np.ones((2, 9)), np.ones((9, 8)), np.ones((8, 3))
    >>> path, report = einsum_path("ij,jk,kl->il", a, b, c)
    >>> path
    ['einsum_path', (0, 1), (0, 1)]
    >>> print(report)
    ij,jk,kl->il i=2 j=9 k=8 l=3
    2 steps, 384 operations; all at once it would take 1296
    the largest intermediate result has 16 elements
    <BLANKLINE>
      computes   letters  operations  remaining
      ij,jk->ik        3         288  kl,ik->il
      kl,ik->il        3          96     il->il
    """
    given: Sequence[Any] = operands
    if not isinstance(subscripts, str | bytes):
        subscripts, given = from_lists((subscripts, *operands))
    if not given:
        raise SpecError(f"einsum_path needs an operand beside {subscripts!r}")
    arrays = [as_array(operand, number) for number, operand in enumerate(given)]
    form = read(subscripts, [array.ndim for array in arrays])
    sizes = form.sizes([array.shape for array in arrays])
    request = Request(sizes, common_dtype([x.dtype for x in arrays]), Options(optimize=optimize))
    count = len(arrays)
    path = given_path(optimize, count)
    if path is None and (count < 3 or not optimize):
        path = [tuple(range(count))]
    if path is None:
        path = find_path(request, form.indices, form.output)
    path = [tuple(sorted(takes)) for takes in path]
    return ["einsum_path", *path], _report(form, sizes, path)


def _report(form: Subscripts, sizes: dict[str, int], path: list[tuple[int, ...]]) -> str:
    """Return what each step of a path computes, and what it takes."""
    real, tensors = np.dtype(float), list(form.indices)
    rows = [("computes", "letters", "operations", "remaining")]
    costs, results = [], []
    for number, takes in enumerate(path, 1):
        taken = [tensors[position] for position in takes]
        tensors = [text for at, text in enumerate(tensors) if at not in takes]
        kept = {*form.output, *"".join(tensors)}
        made = "".join(dict.fromkeys(x for text in taken for x in text if x in kept))
        made = form.output if number == len(path) else made
        tensors.append(made)
        costs.append(flops(taken, made, sizes, real))
        results.append(prod(sizes[x] for x in made))
        computed, left = f"{','.join(taken)}->{made}", f"{','.join(tensors)}->{form.output}"
        rows.append((computed, str(len(set("".join(taken)))), str(costs[-1]), left))
    extents = " ".join(f"{letter}={extent}" for letter, extent in sizes.items())
    whole = flops(form.indices, form.output, sizes, real)
    head = f"{form} {extents}".rstrip()
    many = "1 step" if len(path) == 1 else f"{len(path)} steps"
    cost = f"{many}, {sum(costs)} operations"
    lines = [head, cost + (f"; all at once it would take {whole}" if len(path) > 1 else "")]
    if len(path) > 1:
        lines.append(f"the largest intermediate result has {max(results[:-1])} elements")
    return "\n".join((*lines, "", *align_columns(rows)))
