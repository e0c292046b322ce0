"""Hypothesis strategies and helpers that several test files share."""

from collections.abc import Sequence

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st

from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.problem import DTYPES, Problem
from tilesolve.contractions.spec import Spec, Subscript, Tensor

unshrunk = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))
"""For tests of examples that take long: the first failure is shown as it is.

Looking for a simpler one takes minutes. For that, leave this out where the failure's
`reproduce_failure` is put.
"""


@st.composite
def subscripts(draw, letters: str, affine: bool = True) -> Subscript:
    """Draw a subscript over some letters, mostly a plain one."""
    if not affine or draw(st.integers(0, 3)):
        return Subscript(((1, draw(st.sampled_from(letters))),))
    chosen = draw(st.lists(st.sampled_from(letters), min_size=1, max_size=3, unique=True))
    return Subscript(tuple((draw(st.integers(1, 3)), letter) for letter in chosen))


@st.composite
def specs(
    draw,
    operands: int | tuple[int, int] = (1, 4),
    letters: str = "abijéK",
    affine: bool = True,
    diagonal: bool = True,
    max_order: int = 4,
) -> Spec:
    """Draw a spec: `operands` is a number or a range, `diagonal` allows letters repeated in one."""
    least, most = (operands, operands) if isinstance(operands, int) else operands
    tensors = []
    for _ in range(draw(st.integers(least, most))):
        unique = None if diagonal else (lambda subscript: subscript.letters[0])
        tensors.append(
            draw(st.lists(subscripts(letters, affine), max_size=max_order, unique_by=unique))
        )
    inputs = tuple(Tensor(tuple(tensor)) for tensor in tensors)
    known = list(dict.fromkeys(letter for tensor in inputs for letter in tensor.letters))
    kept = draw(st.permutations(known))[: draw(st.integers(0, len(known)))]
    output = Tensor(tuple(Subscript(((1, letter),)) for letter in kept))
    return Spec(output, inputs, draw(st.sampled_from(["tccg", "einsum"])))


def sizes(spec: Spec, least: int = 0, most: int = 4) -> st.SearchStrategy[dict[str, int]]:
    """Draw an extent for each letter of a spec."""
    return st.fixed_dictionaries({letter: st.integers(least, most) for letter in spec.letters})


@st.composite
def problems(draw, spec=None, least: int = 0, most: int = 4, dtypes=DTYPES) -> Problem:
    """Draw a problem whose spec comes from `spec`, any small one unless given."""
    drawn = draw(specs() if spec is None else spec)
    return Problem.of(drawn, draw(sizes(drawn, least, most)), draw(st.sampled_from(dtypes)))


def draw_whole_numbers(problem: Problem, seed: int = 0) -> list[np.ndarray]:
    """Return operands filled with small whole numbers, whose products and sums are exact."""
    generator = np.random.default_rng(seed)
    arrays = []
    for shape in problem.shapes[1:]:
        values = generator.integers(-3, 4, shape).astype(array_dtype(problem.dtype))
        if problem.dtype.startswith("complex"):
            values = values + 1j * generator.integers(-3, 4, shape)
        arrays.append(np.asarray(values, array_dtype(problem.dtype)))
    return arrays


def rename(spec: Spec, names: dict[str, str], order: Sequence[int], turn: bool = False) -> Spec:
    """Return the spec with letters renamed, operands in another order, bracket terms turned."""

    def renamed(tensor: Tensor) -> Tensor:
        return Tensor(
            tuple(
                Subscript(tuple((c, names[x]) for c, x in sub.terms)[:: -1 if turn else 1])
                for sub in tensor.subscripts
            )
        )

    operands = tuple(renamed(spec.operands[position]) for position in order)
    return Spec(renamed(spec.output), operands, spec.form)
