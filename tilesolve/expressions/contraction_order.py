"""How many arrays become one: the order of pairs, the layouts in between, the memory they take.

The order is opt_einsum's. A result that is an operand of a later step is written in the layout
that the later step packs least of: what that step sums over, then what it keeps, the unit-stride
letter among the latter, is the order of a packed panel. For large planned steps this and its
rivals are planned, and the fastest pair of steps counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, cast

import numpy as np

from tilesolve.contractions.errors import MemoryLimitError, SizeError, SpecError
from tilesolve.expressions.dispatch import BESIDE, KERNEL, MOVED, Classes, flops, way
from tilesolve.expressions.step_kernels import Kernel, Loops, Matmul, Multiply, Planned, in_ascii
from tilesolve.plans.copy_sizes import copy_bytes
from tilesolve.plans.plan import plan
from tilesolve.system.checks import check_threads

PRICED = 1e9
"""Flops of a planned step and the planned one that takes its result, from which on layouts are
compared by their plans: below, solving for four plans more costs more than a layout saves."""

Path = Sequence[tuple[int, ...]]
"""Positions of the operands of each step, which leave; the result joins at the end."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an expression.

    Parameters
    ----------
    takes
        Positions among the arrays at hand. They leave, the result joins at the end.
    kernel
        What runs.
    why
        Why that, for the report.
    flops
        Operations on numbers.
    result
        Bytes of the result.
    copies
        Bytes of copies while it runs.

    Examples
    --------
    >>> steps = arranged(["ij", "jk"], "ik", dict.fromkeys("ijk", 100), np.dtype(float))
    >>> steps[0].takes, steps[0].kernel.way, steps[0].flops
    ((0, 1), 'matmul', 2000000)
    """

    takes: tuple[int, ...]
    kernel: Kernel
    why: str
    flops: int
    result: int
    copies: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may ask for.

    Parameters
    ----------
    least
        Flops of a matrix product from which on it is planned.
    threads
        Of plans, see `plan`; and, if a number is given, of numpy's BLAS.
    optimize
        Anything that opt_einsum takes for the order of pairs; False is from left to right.
    memory_limit
        Bytes beside the operands and the result.
    turns
        Whether tensors may be copied with letters of a batch in front.

    Examples
    --------
    >>> Settings().least
    4194304
    """

    least: float = KERNEL
    threads: int | None = None
    optimize: Any = True
    memory_limit: int | None = None
    turns: bool = True

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_threads(self.threads)
        limit = self.memory_limit
        if limit is not None and (not isinstance(limit, int | np.integer) or limit < 0):
            raise SizeError(f"memory_limit is a number of bytes, 0 or more, not {limit!r}")


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two tensors that are contracted: the letters of both, and the result's in any order."""

    takes: tuple[int, int]  # positions among the tensors at hand
    first: int
    second: int
    letters: frozenset[str]


def arranged(
    operands: Sequence[str],
    output: str,
    sizes: Mapping[str, int],
    dtype: np.dtype[Any],
    settings: Settings | None = None,
) -> list[Step]:
    """Return the steps that contract two or more tensors.

    Parameters
    ----------
    operands
        Their letters: none twice in one, and none that only one has and the output lacks.
    output, sizes, dtype
        Of the result, and of each letter.
    settings
        What the user asks for.

    Examples
    --------
    >>> sizes = {"i": 50, "j": 60, "k": 70, "l": 2}
    >>> [step.kernel.text for step in arranged(["ij", "jk", "kl"], "il", sizes, np.dtype(float))]
    ['jk,kl->jl', 'ij,jl->il']
    """
    settings = settings or Settings()
    path = _path(operands, output, sizes, dtype, settings)
    pairs = _pairs(operands, output, path)
    layouts = list(operands)
    steps = []
    for number, pair in enumerate(pairs):
        first, second = layouts[pair.first], layouts[pair.second]
        last = number == len(pairs) - 1
        if last:
            letters = output
        else:
            made = len(layouts)
            later = next(p for p in pairs if made in (p.first, p.second))
            letters = _layout(pair, later, layouts, made, output, sizes, dtype, settings)
        steps.append(_step(pair.takes, first, second, letters, sizes, dtype, settings, last))
        layouts.append(letters)
    return steps


# The order of pairs


def _path(
    operands: Sequence[str],
    output: str,
    sizes: Mapping[str, int],
    dtype: np.dtype[Any],
    settings: Settings,
) -> Path:
    """Return which tensors are contracted, one step after the other."""
    count, asked = len(operands), settings.optimize
    if asked is False:
        return [(0, count - 1 - step if step else 1) for step in range(count - 1)]
    if count == 2:
        return [(0, 1)]
    from opt_einsum import contract_path

    limit = settings.memory_limit
    if limit is not None:  # opt_einsum counts the result too, in elements
        limit = max(limit // dtype.itemsize, prod(sizes[x] for x in output))
    most = limit
    if isinstance(asked, list | tuple) and asked and asked[0] == "einsum_path":
        asked = list(asked[1:])
    elif isinstance(asked, list | tuple) and len(asked) == 2 and isinstance(asked[0], str):
        asked, elements = asked  # numpy's way to say how large intermediate results had better be
        most = elements if limit is None else min(limit, elements)
    try:
        path, _ = contract_path(
            ",".join(operands) + f"->{output}",
            *(tuple(sizes[x] for x in letters) for letters in operands),
            shapes=True,
            optimize="auto" if asked is True else asked,
            memory_limit=most,
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise SpecError(f"opt_einsum finds no order for optimize={asked!r}: {error}") from error
    if limit is not None and any(len(takes) > 2 for takes in path):
        raise MemoryLimitError(
            f"no order of {','.join(operands)}->{output} keeps each intermediate result within "
            f"memory_limit={settings.memory_limit} bytes"
        )
    return cast(Path, path)


def _pairs(operands: Sequence[str], output: str, path: Path) -> list[_Pair]:
    """Return the pairs of a path; a step of more than two goes from left to right."""
    letters = [frozenset(text) for text in operands]
    at_hand = list(range(len(operands)))  # in the path's order, where one alone moves to the end
    arrays = list(at_hand)  # in the order of the steps, where it does not
    found: list[_Pair] = []
    for takes in path:
        known = set(range(len(at_hand)))
        if not takes or len(set(takes)) < len(takes) or not known.issuperset(takes):
            raise SpecError(f"the order {list(path)} takes {takes} of {len(at_hand)} arrays")
        made, *others = [at_hand[position] for position in takes]
        at_hand = [tensor for tensor in at_hand if tensor not in (made, *others)]
        for number, other in enumerate(others, 1):
            outside = frozenset(output).union(
                *(letters[tensor] for tensor in (*at_hand, *others[number:]))
            )
            kept = (letters[made] | letters[other]) & outside
            found.append(_Pair((arrays.index(made), arrays.index(other)), made, other, kept))
            arrays = [tensor for tensor in arrays if tensor not in (made, other)]
            made = len(letters)
            arrays.append(made)
            letters.append(kept)
        at_hand.append(made)
    if len(at_hand) > 1:
        raise SpecError(f"the order {list(path)} leaves {len(at_hand)} arrays")
    return found


# Layouts


def _natural(first: str, second: str, letters: frozenset[str]) -> str:
    """Return the letters of a product as its operands have them: batch, rows, columns."""
    both = [x for x in first if x in second]
    alone = [x for x in first + second if x not in both]
    return "".join(x for x in (*both, *alone) if x in letters)


def _layout(
    pair: _Pair,
    later: _Pair,
    layouts: Sequence[str],
    made: int,
    output: str,
    sizes: Mapping[str, int],
    dtype: np.dtype[Any],
    settings: Settings,
) -> str:
    """Return the order of letters in which a pair's result is written for a later pair."""
    first, second = layouts[pair.first], layouts[pair.second]
    natural = _natural(first, second, pair.letters)
    other = later.second if later.first == made else later.first
    # An operand that is not there yet has some order; its letters are known.
    known = layouts[other] if other < len(layouts) else None
    beside = known if known is not None else "".join(sorted(later.letters - pair.letters))
    batch = "".join(x for x in natural if x in beside and x in later.letters)
    summed = "".join(x for x in natural if x not in later.letters)
    kept = "".join(x for x in natural if x in later.letters and x not in batch)
    panel = batch + summed + kept
    here, _ = way(first, second, natural, sizes, dtype, settings.least)
    if here != "plan":
        turned = _natural(second, first, pair.letters)
        wanted = (panel, batch + kept + summed)
        return turned if turned in wanted and natural not in wanted else natural
    if known is None:
        return panel
    after = output if later.letters == frozenset(output) else _natural(panel, known, later.letters)
    there, _ = way(panel, known, after, sizes, dtype, settings.least)
    work = prod(sizes[x] for x in {*first, *second}) + prod(sizes[x] for x in {*panel, *known})
    if there != "plan" or 2 * work < PRICED:
        return panel

    def seconds(letters: str) -> float:
        ahead = _planned(letters, known, after, sizes, dtype, settings).plan.seconds
        return _planned(first, second, letters, sizes, dtype, settings).plan.seconds + ahead

    return min(dict.fromkeys((panel, batch + kept + summed, natural)), key=seconds)


# Steps


def _step(
    takes: tuple[int, int],
    first: str,
    second: str,
    output: str,
    sizes: Mapping[str, int],
    dtype: np.dtype[Any],
    settings: Settings,
    last: bool,
) -> Step:
    """Return the step that contracts two tensors in a given layout."""
    chosen, why = way(first, second, output, sizes, dtype, settings.least)
    result = prod(sizes[x] for x in output) * dtype.itemsize
    kernel: Kernel
    copies = 0
    if chosen == "plan":
        tensors = first, second, output
        inner = _turned(tensors, sizes, dtype, last) if settings.turns else tensors
        turns = _axes(first, inner[0]), _axes(second, inner[1]), _axes(inner[2], output)
        planned = _planned(*inner, sizes, dtype, settings)
        kernel = replace(planned, text=f"{first},{second}->{output}", turns=turns)
        copies = sum(copy_bytes(planned.plan)) * planned.plan.threads
        for letters, turned in zip(tensors, inner, strict=True):
            if letters != turned:
                why += f"; {letters} is turned to {turned}, as its last letter is a batch's"
                copies += prod(sizes[x] for x in letters) * dtype.itemsize
    elif chosen == "matmul":
        kernel = Matmul.of(first, second, output, sizes, settings.threads)
        if settings.threads is not None:
            why += f"; BLAS takes {settings.threads} thread{'s' * (settings.threads > 1)} at most"
        for side, letters in ((kernel.first, first), (kernel.second, second)):
            shape = [sizes[x] for x in letters]
            copies += side.copies(shape) * prod(shape) * dtype.itemsize
        copies += result if last and kernel.axes is not None else 0
    elif chosen == "multiply":
        kernel = Multiply.of(first, second, output)
    else:
        kernel = Loops.of((first, second), output, dtype)
    work = flops((first, second), output, sizes, dtype)
    return Step(takes, kernel, why, work, result, copies)


def _turned(
    tensors: tuple[str, str, str], sizes: Mapping[str, int], dtype: np.dtype[Any], last: bool
) -> tuple[str, str, str]:
    """Return the letters of operands and result as they are best contracted.

    Vectors lie along no letter of a batch. Where that is a tensor's last one, an operand is packed
    and the result written element by element, which takes longer than a pass through memory that
    puts the batch in front. Intermediate results have it there.
    """
    batch = Classes.of(*tensors).batch

    def turned(letters: str, least: float) -> str:
        size = prod(sizes[x] for x in letters) * dtype.itemsize
        if letters[-1] not in batch or sizes[letters[-1]] < least or size < MOVED:
            return letters
        return "".join(sorted(letters, key=lambda x: x not in batch))

    first, second, output = tensors
    return turned(first, BESIDE), turned(second, BESIDE), turned(output, 1 if last else inf)


def _axes(letters: str, turned: str) -> tuple[int, ...] | None:
    """Return the order of axes that turns letters, None if they stay."""
    return None if letters == turned else tuple(letters.index(x) for x in turned)


def _planned(
    first: str,
    second: str,
    output: str,
    sizes: Mapping[str, int],
    dtype: np.dtype[Any],
    settings: Settings,
) -> Planned:
    # Letters are renamed in the order in which they appear, so that like steps share a plan.
    text = f"{first},{second}->{output}"
    letters = "".join(dict.fromkeys(first + second))
    extents = dict(zip(in_ascii(letters), (sizes[x] for x in letters), strict=True))
    return Planned(text, plan(in_ascii(text), extents, dtype=dtype.name, threads=settings.threads))
