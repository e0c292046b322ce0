"""How many arrays become one: the steps, the layouts in between, the memory they take.

A result that a later step takes is written in the layout that this step packs least of: batches,
then the letters that the step sums over, then those that it keeps, as in a packed micro-panel.
Between large planned steps, layouts are compared by the time of both plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from tilesolve.constants import policy
from tilesolve.contractions.roles import Roles
from tilesolve.expressions.dispatch import Request, choose_route, flops
from tilesolve.expressions.paths import Pair, find_path, split_path
from tilesolve.expressions.planned import Planned
from tilesolve.expressions.step_kernels import Kernel, Loops, Matmul, Multiply, in_ascii
from tilesolve.plans.copy_sizes import block_bytes, copy_bytes
from tilesolve.plans.plan import plan
from tilesolve.system.result_buffers import is_new_aligned


@dataclass(frozen=True, slots=True)
class ExpressionStep:
    """One step of an expression.

    `takes` are positions among the arrays that are left: these leave, and the result joins at
    the end. `why` says in the report why that kernel was chosen. `flops` counts operations on
    numbers; `result` and `copies` are bytes.
    """

    takes: tuple[int, ...]
    kernel: Kernel
    why: str
    flops: int
    result: int
    copies: int


def contraction_steps(
    request: Request, operands: Sequence[str], output: str
) -> list[ExpressionStep]:
    """Return the steps that contract two or more tensors.

    `operands` are the letters of each: none twice in one, and none that only one has and the
    output lacks.

    Examples
    --------
    >>> import numpy as np
    >>> request = Request({"i": 50, "j": 60, "k": 70, "l": 2}, np.dtype(float))
    >>> [step.kernel.text for step in contraction_steps(request, ["ij", "jk", "kl"], "il")]
    ['jk,kl->jl', 'ij,jl->il']
    """
    pairs = split_path(operands, output, find_path(request, operands, output))
    layouts = list(operands)
    steps = []
    for number, pair in enumerate(pairs):
        last = number == len(pairs) - 1
        letters = output if last else _layout(request, pairs, number, layouts, output)
        first, second = layouts[pair.first], layouts[pair.second]
        steps.append(_step(request, pair.takes, (first, second, letters), last))
        layouts.append(letters)
    return steps


# Layouts


def _natural(first: str, second: str, letters: frozenset[str]) -> str:
    """Return the letters of a product as its operands have them: batch, rows, columns."""
    both = [x for x in first if x in second]
    alone = [x for x in first + second if x not in both]
    return "".join(x for x in (*both, *alone) if x in letters)


def _layout(
    request: Request, pairs: Sequence[Pair], number: int, layouts: Sequence[str], output: str
) -> str:
    """Return the order of letters in which a pair's result is written for a later pair."""
    pair, made = pairs[number], len(layouts)
    later = next(p for p in pairs if made in (p.first, p.second))
    first, second = layouts[pair.first], layouts[pair.second]
    natural = _natural(first, second, pair.letters)
    other = later.second if later.first == made else later.first
    # An operand that does not exist yet has some order; its letters are known.
    known = layouts[other] if other < made else None
    others = known if known is not None else "".join(sorted(later.letters - pair.letters))
    batch = "".join(x for x in natural if x in others and x in later.letters)
    summed = "".join(x for x in natural if x not in later.letters)
    kept = "".join(x for x in natural if x in later.letters and x not in batch)
    panel = batch + summed + kept
    here, _ = choose_route(request, first, second, natural)
    if here != "plan":
        swapped = _natural(second, first, pair.letters)
        wanted = (panel, batch + kept + summed)
        return swapped if swapped in wanted and natural not in wanted else natural
    if known is None:
        return panel
    final = later.letters == frozenset(output)
    after = output if final else _natural(panel, known, later.letters)
    there, _ = choose_route(request, panel, known, after)
    work = request.size({*first, *second}) + request.size({*panel, *known})
    if there != "plan" or 2 * work < policy.EINSUM_LAYOUT_FLOPS:
        return panel

    def score(letters: str) -> float:
        following = _planned(request, letters, known, after, final).plan.solution.score
        return _planned(request, first, second, letters).plan.solution.score + following

    return min(dict.fromkeys((panel, batch + kept + summed, natural)), key=score)


# Steps


def _step(
    request: Request, takes: tuple[int, int], tensors: tuple[str, str, str], last: bool
) -> ExpressionStep:
    """Return the step that contracts two tensors to a third one in a given layout."""
    first, second, output = tensors
    threads = request.options.threads
    route, why = choose_route(request, first, second, output)
    result = request.nbytes(output)
    kernel: Kernel
    copies = 0
    if route == "plan":
        kernel, copies, also = _planned_step(request, tensors, last)
        why += also
    elif route == "matmul":
        kernel = Matmul.of(first, second, output, request.sizes, threads)
        if threads is not None:
            why += f"; BLAS takes {threads} thread{'s' * (threads > 1)} at most"
        for side, letters in ((kernel.first, first), (kernel.second, second)):
            shape = [request.sizes[x] for x in letters]
            copies += side.copies(shape) * request.nbytes(letters)
        copies += result if last and kernel.axes is not None else 0
    elif route == "multiply":
        kernel = Multiply.of(first, second, output)
    else:
        kernel = Loops.of((first, second), output, request.dtype)
    work = flops((first, second), output, request.sizes, request.dtype)
    return ExpressionStep(takes, kernel, why, work, result, copies)


def _planned_step(
    request: Request, tensors: tuple[str, str, str], last: bool
) -> tuple[Planned, int, str]:
    """Return a planned step, the bytes of its copies, and what its report says of transposes."""
    inner = _batches_in_front(request, tensors, last) if request.transposes_batches else tensors
    first, second, output = tensors
    planned = _planned(request, *inner, last and inner[2] == output)
    axes = _axes(first, inner[0]), _axes(second, inner[1]), _axes(inner[2], output)
    kernel = replace(planned, text=f"{first},{second}->{output}", axes=axes)
    solution = planned.plan.solution
    copies = (sum(copy_bytes(solution)) + block_bytes(solution)) * planned.plan.threads
    copies += solution.partial_outputs * solution.problem.bytes[0]
    why = ""
    for letters, transposed in zip(tensors, inner, strict=True):
        if letters != transposed:
            why += f"; {letters} is transposed to {transposed}, as its last letter is a batch's"
            copies += request.nbytes(letters)
    return kernel, copies, why


def _batches_in_front(
    request: Request, tensors: tuple[str, str, str], last: bool
) -> tuple[str, str, str]:
    """Return the letters of operands and result as they are best contracted.

    Vectors lie along no letter of a batch. Where that is a tensor's last one, an operand is packed
    and the result written element by element, which takes longer than a pass through memory that
    puts the batch in front. Intermediate results have it there.
    """
    first, second, output = tensors
    batches = Roles.of(output, [first, second]).batches

    def transposed(letters: str, least: float) -> str:
        if (
            letters[-1] not in batches
            or request.sizes[letters[-1]] < least
            or request.nbytes(letters) < policy.EINSUM_TRANSPOSE_BYTES
        ):
            return letters
        return "".join(sorted(letters, key=lambda x: x not in batches))

    return (
        transposed(first, policy.EINSUM_BATCH_EXTENT),
        transposed(second, policy.EINSUM_BATCH_EXTENT),
        transposed(output, 1 if last else inf),
    )


def _axes(letters: str, transposed: str) -> tuple[int, ...] | None:
    """Return the order of axes that transposes letters, None if they stay."""
    return None if letters == transposed else tuple(letters.index(x) for x in transposed)


def _planned(
    request: Request, first: str, second: str, output: str, final: bool = False
) -> Planned:
    """Return a contraction by a plan; final: whether its output is where a call wants it."""
    # Letters are renamed in the order in which they appear, so that like steps share a plan.
    text = f"{first},{second}->{output}"
    letters = "".join(dict.fromkeys(first + second))
    extents = dict(zip(in_ascii(letters), (request.sizes[x] for x in letters), strict=True))
    threads = request.options.threads
    aligned = is_new_aligned(request.nbytes(output))
    found = plan(
        in_ascii(text),
        extents,
        dtype=request.dtype.name,
        threads=threads,
        aligned_output=aligned and (request.options.aligned_output or not final),
    )
    return Planned(text, found)
