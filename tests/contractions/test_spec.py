import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import sizes, specs
from turns import examples

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec, Subscript, Tensor


@given(specs())
def test_text_gives_the_spec_back(spec):
    """Reading what a spec writes gives the same spec, in the same form."""
    again = Spec.parse(str(spec))
    assert again == spec
    assert again.form == spec.form
    assert str(again) == str(spec)


@given(specs())
def test_both_forms_are_one_spec(spec):
    """The TCCG and the einsum form of a spec read as equal specs with equal hashes."""
    tccg, einsum = Spec.parse(spec.tccg()), Spec.parse(spec.einsum())
    assert tccg == einsum == spec
    assert hash(tccg) == hash(einsum)
    assert (str(tccg), str(einsum)) == (spec.tccg(), spec.einsum())


@examples(40, 100)
@given(specs(), st.data())
def test_spaces_do_not_matter(spec, data):
    """White space between any two symbols changes nothing."""
    pieces = re.findall(r"\d+|.", str(spec))
    gaps = data.draw(
        st.lists(st.sampled_from(["", " ", "\n\t"]), min_size=len(pieces), max_size=len(pieces))
    )
    text = "".join(gap + piece for gap, piece in zip(gaps, pieces, strict=True)) + " "
    assert Spec.parse(text) == spec


def test_a_space_does_not_join_two_numbers():
    """Digits with a space between are two numbers, so they are refused rather than joined."""
    with pytest.raises(SpecError, match="expected a letter, found '2' at character 4"):
        Spec.parse("[1 2h]-h")


@given(st.lists(st.text("abXY", max_size=3), min_size=1, max_size=3).filter("".join))
def test_implicit_output_follows_numpy(operands):
    """Without an output, the letters that occur once become it in numpy's order."""
    text = ",".join(operands)
    spec = Spec.parse(text)
    extents = {letter: 2 + i for i, letter in enumerate("abXY")}
    arrays = [np.zeros([extents[letter] for letter in operand]) for operand in operands]
    assert spec.output.shape(extents) == np.einsum(text, *arrays).shape


def test_implicit_output_counts_letters_in_brackets():
    """The rule for an implicit output takes letters in brackets for occurrences too."""
    assert str(Spec.parse("c[h+r][w+s],kcrs")) == "c[h+r][w+s],kcrs->hkw"


def test_structure_of_a_strided_convolution():
    """Output, operands, coefficients and letters come out as written."""
    spec = Spec.parse("nkhw-nc[2h+3r][w+s]-kcrs")
    assert str(spec.output) == "nkhw"
    assert spec.operands[0].subscripts[2].terms == ((2, "h"), (3, "r"))
    assert [sub.plain for sub in spec.operands[0].subscripts] == [True, True, False, False]
    assert spec.letters == tuple("nkhwcrs")
    assert spec.operands[0].letters == tuple("nchrws")
    assert spec.tensors == (spec.output, *spec.operands)


def test_brackets_around_one_letter_are_plain():
    """``[h]`` and ``[1h]`` are ``h``; ``[2h]`` is a stride and stays in brackets."""
    assert str(Spec.parse("h-[h][1h][2h]")) == "h-hh[2h]"


@examples(40, 100)
@given(specs().flatmap(lambda spec: st.tuples(st.just(spec), sizes(spec, least=1))))
def test_extent_is_the_span_of_positions(case):
    """The extent of a subscript is one more than the largest position that it takes."""
    spec, extents = case
    for tensor in spec.operands:
        spans = []
        for subscript in tensor.subscripts:
            ranges = [range(extents[letter]) for letter in subscript.letters]
            coefficients = [c for c, _ in subscript.terms]
            spans.append(
                1
                + max(
                    sum(c * n for c, n in zip(coefficients, point, strict=True))
                    for point in itertools.product(*ranges)
                )
            )
        assert tensor.shape(extents) == tuple(spans)


def test_extent_without_points_is_zero():
    """A letter of extent 0 leaves a subscript without positions."""
    assert Subscript(((2, "h"), (1, "r"))).extent({"h": 0, "r": 3}) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_every_tensor_has_a_name_of_its_own(count):
    """Names are C, A, B and then further letters, without repetition."""
    names = Spec.parse("a-" + "-".join(["a"] * count)).names
    assert names[:4] == tuple("CABD")[: count + 1]
    assert len(set(names)) == count + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is empty"),
        ("ab-ac!-cb", "unexpected '!' at character 6 of 'ab-ac!-cb'"),
        ("a.b->a", "unexpected '.' at character 2"),
        ("ab]-ab", "unexpected ']' at character 3"),
        ("a-b,c", "',' after '-' mixes the TCCG and the einsum form at character 4"),
        ("a,b-c", "'-' after ',' mixes the TCCG and the einsum form at character 4"),
        ("a-b->c", "'->' after '-' mixes the TCCG and the einsum form at character 4"),
        ("a->b->c", "'->' after the output at character 5"),
        ("a,b->c,d", "',' after the output at character 7"),
        ("...a->a", "ellipsis is not part of a spec; name every index at character 1"),
        ("a,…b->a", "ellipsis is not part of a spec; name every index at character 3"),
        ("a2b->a", "2 outside brackets; write '[2h]' at character 2"),
        ("h-[h+r", "expected '+' or ']' but the text ends at character 7"),
        ("h-[", "expected a letter but the text ends at character 4"),
        ("h-[]", "expected a letter, found ']' at character 4"),
        ("h-[h+]r", "expected a letter, found ']' at character 6"),
        ("h-[h r]", "expected '+' or ']', found 'r' at character 6"),
        ("h-[h+2[r]]", "expected a letter, found '[' at character 7"),
        ("h-[h-r]", "'-' in brackets, where coefficients must be positive, at character 5"),
        ("h-[-2h]", "'-' in brackets, where coefficients must be positive, at character 4"),
        ("h-[0h]", "coefficient of 'h' must be a positive integer, not 0, at character 3"),
        ("h-[h+h]", "'h' stands twice in the subscript [h+h], at character 3"),
        ("h-[" + "9" * 5000 + "h]", "coefficient of more than 18 digits at character 4"),
        ("h-[²h]", "expected a letter, found '²' at character 4"),
        ("e\N{COMBINING ACUTE ACCENT}-e", "unexpected '\N{COMBINING ACUTE ACCENT}' at character 2"),
        ("abx-ac-cb", "axis 2 of the output 'abx' of 'abx-ac-cb' is 'x', which no operand has"),
        ("aba-ac-cb", "axis 2 of the output 'aba' of 'aba-ac-cb' repeats the letter 'a'"),
        ("[2a]-a", "axis 0 of the output '[2a]' of '[2a]-a' is [2a]; only operands may be affine"),
        (5, "a spec is a string such as 'ij,jk->ik', not 5"),
    ],
)
def test_what_cannot_be_read_is_explained(text, message):
    """Each fault has an error of its own that says where it is."""
    with pytest.raises(SpecError, match=re.escape(message)):
        Spec.parse(text)


def test_unknown_output_letter_names_the_operands():
    """An output letter that no operand has is shown beside all operands."""
    with pytest.raises(SpecError, match=re.escape("(A = 'ac', B = 'cb')")):
        Spec.parse("abx-ac-cb")


@given(st.text("ab2[]+-,> .", max_size=12))
def test_any_text_is_a_spec_or_an_error(text):
    """No text makes the reader fail in a way that is not documented."""
    try:
        spec = Spec.parse(text)
    except SpecError:
        return
    assert Spec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    "build",
    [
        lambda: Subscript(()),
        lambda: Subscript(((1, "ab"),)),
        lambda: Subscript(((1, "2"),)),
        lambda: Subscript(((True, "a"),)),
        lambda: Spec(Tensor(()), ()),
        lambda: Spec(Tensor(()), (Tensor(()),), "latex"),
    ],
)
def test_values_built_by_hand_are_checked(build):
    """The constructors refuse what the reader could not have produced."""
    with pytest.raises(SpecError):
        build()


def test_repeated_letter_in_an_operand_is_a_diagonal():
    """An operand may repeat a letter, and then both axes have its extent."""
    assert Problem.of("ii->i", 3).shapes == ((3,), (3, 3))
