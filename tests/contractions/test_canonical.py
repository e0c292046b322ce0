import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import draw_whole_numbers, problems, rename, specs
from turns import examples

from tilesolve.contractions.canonical import canonicalize
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference
from tilesolve.contractions.spec import Spec


def rewritten(problem, letters, order, turn=False):
    """The same problem in other letters and another order of operands."""
    names = dict(zip(problem.spec.letters, letters, strict=False))
    spec = rename(problem.spec, names, order, turn)
    sizes = {names[letter]: extent for letter, extent in problem.extents}
    return Problem.of(spec, sizes, problem.dtype)


@st.composite
def symmetric_specs(draw):
    """Products of many small operands with few letters, in which much looks alike."""
    pairs = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=2).map("".join)
    operands = draw(st.lists(pairs, min_size=2, max_size=7))
    known = sorted(set("".join(operands)))
    output = draw(st.permutations(known))[: draw(st.integers(0, min(2, len(known))))]
    return Spec.parse("-".join(["".join(output), *operands]))


anything = st.one_of(
    problems(specs(operands=(1, 5)), most=3),
    problems(symmetric_specs(), least=2, most=2),
    problems(symmetric_specs(), least=1, most=2),
)


@given(anything, st.data())
def test_invariant_under_renaming_and_reordering(problem, data):
    """Other letters, another order of operands or of bracket terms: the same canonical problem."""
    letters = data.draw(st.permutations("pqrstuvwxyz"))
    order = data.draw(st.permutations(range(len(problem.spec.operands))))
    other = rewritten(problem, letters, order, data.draw(st.booleans()))
    assert canonicalize(other).problem == canonicalize(problem).problem


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("-a-b", "a=1 b=2"), ("-b-a", "a=1 b=2")),
        (("-ab-ab-cd-cd", "a=2 b=2 c=3 d=3"), ("-ab-cd-ab-cd", "a=3 b=3 c=2 d=2")),
        (("ab-bc-ca", 2), ("xy-zx-yz", 2)),
        (("h-[h+2r+2s]-rs", "h=5 r=2 s=2"), ("h-sr-[2r+h+2s]", "h=5 r=2 s=2")),
    ],
)
def test_one_problem_written_in_two_ways(first, second):
    """Letters that only their extent tells apart, and orders of operands and terms, by example."""
    assert canonicalize(Problem.of(*first)).problem == canonicalize(Problem.of(*second)).problem


@given(anything)
def test_idempotent(problem):
    """The canonical form of a canonical problem is itself."""
    once = canonicalize(problem).problem
    again = canonicalize(once)
    assert again.problem == once
    assert str(again.problem) == str(once)


@given(anything)
def test_the_way_there_is_a_renaming(problem):
    """Applying the renaming and the order to the problem gives the canonical one: none is lost."""
    found = canonicalize(problem)
    names = dict(found.letters)
    assert list(names) == list(problem.spec.letters)
    assert sorted(found.operands) == list(range(len(problem.spec.operands)))
    renamed = rename(problem.spec, names, found.operands)
    target = found.problem.spec

    def terms(spec):
        return [[sorted(sub.terms) for sub in tensor.subscripts] for tensor in spec.tensors]

    assert terms(renamed) == terms(target)
    assert found.problem.sizes == {names[x]: extent for x, extent in problem.extents}
    assert found.problem.dtype == problem.dtype
    assert "".join(target.letters) == "abcdefghijkl"[: len(target.letters)] or any(
        not sub.plain for tensor in target.operands for sub in tensor.subscripts
    )


@examples(40, 100)
@given(problems(specs(operands=(1, 3)), most=3))
def test_the_canonical_problem_computes_the_same(problem):
    """Operands in the canonical order give the result of the original problem."""
    found = canonicalize(problem)
    arrays = draw_whole_numbers(problem)
    moved = [arrays[position] for position in found.operands]
    assert np.array_equal(reference(problem, *arrays), reference(found.problem, *moved))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("ab-ac-cb", "a=2 b=3 c=4", "f8"), ("ab-ac-cb", "a=3 b=2 c=4", "f8")),
        (("ab-ac-cb", "a=2 b=3 c=4", "f8"), ("ab-ac-cb", "a=2 b=3 c=4", "f4")),
        (("ab-ac-cb", "a=2 b=2 c=2", "f8"), ("ab-ca-cb", "a=2 b=2 c=2", "f8")),
        (("ab-ac-cb", "a=2 b=2 c=2", "f8"), ("ba-ac-cb", "a=2 b=2 c=2", "f8")),
        (("h-[2h+r]-r", 3, "f8"), ("h-[h+2r]-r", 3, "f8")),
        (("-ab-ab-cd-cd", 2, "f8"), ("-ab-bc-cd-da", 2, "f8")),
    ],
)
def test_different_problems_stay_different(first, second):
    """Other extents, dtype, layout, coefficients or links are not one plan."""
    assert canonicalize(Problem.of(*first)).problem != canonicalize(Problem.of(*second)).problem


@pytest.mark.parametrize(
    "text",
    [
        "-" + "-".join(["ab"] * 12),
        "-" + "-".join("abcdefghijkl"),
        "-ab-bc-cd-de-ef-fg-gh-hi-ij-jk-kl-la",
        "-ab-bc-ca-de-ef-fg-gh-hi-ij-jk-kl-ld",
        "-ab-ba-cd-dc-ef-fe-gh-hg-ij-ji-kl-lk",
    ],
)
def test_twelve_like_operands_end(text):
    """A dozen operands that look alike are ordered without trying every permutation."""
    problem = Problem.of(text, 2)
    order = np.random.default_rng(0).permutation(12)
    other = rewritten(problem, "zyxwvutsrqpo", order)
    assert canonicalize(problem).problem == canonicalize(other).problem


def test_more_letters_than_the_alphabet_has():
    """Canonical letters go on in other alphabets and stay distinct."""
    letters = "".join(chr(0x4E00 + i) for i in range(70))
    found = canonicalize(Problem.of(f"{letters}-{letters[::-1]}", 1))
    assert len(set(found.problem.spec.letters)) == 70
    assert canonicalize(found.problem).problem == found.problem
