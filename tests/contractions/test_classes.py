from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given
from strategies import specs
from turns import examples

from tilesolve.contractions.classes import find_classes, graph
from tilesolve.contractions.letters import fresh
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.model.fused import fuse


def where(spec, letter):
    """The positions of the tensors in which a letter stands."""
    return tuple(i for i, tensor in enumerate(spec.tensors) if letter in tensor.letters)


def is_plain(spec, letter):
    """Whether a letter stands once and by itself in each of its tensors."""
    text = [[str(sub) for sub in tensor.subscripts] for tensor in spec.tensors]
    return all(sum(letter in sub for sub in tensor) <= 1 for tensor in text) and all(
        sub == letter for tensor in text for sub in tensor if letter in sub
    )


@examples(40, 100)
@given(specs())
def test_graph_joins_indices_to_their_tensors(spec):
    """The graph is bipartite, with an edge for each tensor that an index stands in."""
    found = graph(spec)
    assert all({kind for kind, _ in edge} == {"index", "tensor"} for edge in found.edges)
    assert nx.is_bipartite(found)
    for letter in spec.letters:
        neighbours = {position for _, position in found["index", letter]}
        assert neighbours == set(where(spec, letter))
        plain = all(edge["plain"] for edge in found["index", letter].values())
        assert plain == is_plain(spec, letter)


@given(specs())
def test_classes_partition_the_indices(spec):
    """Every letter is in one class, and two share one if they are plain and stand together."""
    found = find_classes(spec)
    assert sorted(x for c in found for x in c.letters) == sorted(spec.letters)
    home = {letter: c for c in found for letter in c.letters}
    for x in spec.letters:
        assert home[x].tensors == where(spec, x)
        for y in spec.letters:
            together = x == y or (
                is_plain(spec, x) and is_plain(spec, y) and where(spec, x) == where(spec, y)
            )
            assert (home[x] is home[y]) == together


@given(specs())
def test_class_names_are_unique(spec):
    """No two classes have one name, even where indices are called M, N, K or B."""
    names = [c.name for c in find_classes(spec)]
    assert len(set(names)) == len(names)


@given(specs(operands=2))
def test_the_four_classes_of_two_operands(spec):
    """M, N, K and B are the plain indices of the tensors that define them, and come first."""
    named = {"M": (0, 1), "N": (0, 2), "K": (1, 2), "B": (0, 1, 2)}
    found = find_classes(spec)
    expected = [
        name
        for name, tensors in named.items()
        if any(is_plain(spec, x) and where(spec, x) == tensors for x in spec.letters)
    ]
    assert [c.name for c in found][: len(expected)] == expected
    for c in found:
        assert (c.name in named) == (c.name in expected)
        assert named.get(c.name, c.tensors) == c.tensors
    rest = [spec.letters.index(c.letters[0]) for c in found[len(expected) :]]
    assert rest == sorted(rest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcd-aebf-dfce", "M:ab N:cd K:ef"),
        ("abcd-dbea-ec", "M:abd N:c K:e"),
        ("bmn-bmk-bkn", "M:m N:n K:k B:b"),
        ("nkhw-nc[2h+r][w+s]-kcrs", "M:n N:k K:c h:h w:w r:r s:s"),
        ("i-iijk-i", "i:i jk:jk"),
        ("MN-MK-KN", "M:M N:N K:K"),
        ("K-[K+r]-r", "K':K r:r"),
        ("ad-ab-bc-cd", "a:a d:d b:b c:c"),
        ("ba-ab", "ba:ba"),
        ("-", ""),
    ],
)
def test_classes_by_example(text, expected):
    """Contractions, batches, convolutions, diagonals, chains and transpositions."""
    found = " ".join(f"{c.name}:{''.join(c.letters)}" for c in find_classes(Spec.parse(text)))
    assert found == expected


def test_a_problem_has_the_classes_of_its_spec():
    """Sizes play no part in the classes."""
    spec = Spec.parse("abc-acd-db")
    assert Problem.of(spec, 3).classes == find_classes(spec)


def test_there_are_letters_for_all_classes():
    """Five tensors have more classes of several letters than an alphabet has names for them."""
    tensors, letters = [""] * 5, fresh("")
    homes = [home for size in range(2, 6) for home in combinations(range(5), size)]
    for home in homes:
        both = next(letters) + next(letters)
        for number in home:
            tensors[number] += both
    problem = Problem.of("-".join(tensors), 2)
    found = fuse(problem)
    assert {letters for _, letters in found.groups} == {c.letters for c in problem.classes}
    assert len(found.problem.sizes) == len(homes) == 26
    assert set(found.problem.sizes.values()) == {4}
