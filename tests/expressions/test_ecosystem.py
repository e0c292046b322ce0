"""Libraries that let a user choose who contracts: ours is chosen, and results stay theirs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilesolve
from tilesolve.expressions import einsum as einsum_module

IMPLEMENTATION = (tilesolve.einsum, tilesolve.tensordot)
"""As cotengra 0.8 unpacks it; its documentation names the two the other way round."""


def network(module, tensors=100, seed=6):
    """Return a random tensor network's einsum and arrays."""
    inputs, output, _, sizes = module.utils.rand_equation(tensors, 3, n_out=2, d_max=2, seed=seed)
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal([sizes[x] for x in term]) / 2 for term in inputs]
    return inputs, output, sizes, arrays


def test_opt_einsum_takes_it_as_a_backend():
    """`contract(..., backend="tilesolve")` gives what opt_einsum gives with numpy."""
    opt_einsum = pytest.importorskip("opt_einsum")
    rng = np.random.default_rng(0)
    for text, shapes in [
        ("ij,jk,kl->il", [(30, 40), (40, 50), (50, 60)]),
        ("abc,cd,bde->ea", [(20, 30, 8), (8, 9), (30, 9, 10)]),
        ("bij,bjk->bik", [(3, 30, 40), (3, 40, 20)]),
        ("ab,ab->", [(100, 90), (100, 90)]),
        ("iij,jk->ki", [(5, 5, 6), (6, 7)]),
    ]:
        arrays = [rng.standard_normal(shape) for shape in shapes]
        ours = opt_einsum.contract(text, *arrays, backend="tilesolve")
        np.testing.assert_allclose(ours, opt_einsum.contract(text, *arrays), rtol=1e-9)
        again = opt_einsum.contract_expression(text, *shapes)(*arrays, backend="tilesolve")
        np.testing.assert_allclose(again, ours, rtol=1e-9)


def test_opt_einsum_contracts_a_hundred_tensors():
    """A network of a hundred tensors gives numpy's number, by us at each step."""
    opt_einsum = pytest.importorskip("opt_einsum")
    testing = pytest.importorskip("opt_einsum.testing")
    text, shapes = testing.rand_equation(100, 3, n_out=1, d_max=2, seed=0)
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    ours = opt_einsum.contract(text, *arrays, backend="tilesolve", optimize="greedy")
    theirs = opt_einsum.contract(text, *arrays, optimize="greedy")
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_cotengra_takes_it_as_an_implementation():
    """A tree of a hundred tensors is contracted by our tensordot and einsum."""
    cotengra = pytest.importorskip("cotengra")
    inputs, output, sizes, arrays = network(cotengra)
    tree = cotengra.array_contract_tree(inputs, output, sizes, optimize="greedy")
    ours = tree.contract(arrays, implementation=IMPLEMENTATION)
    assert einsum_module._expressions
    np.testing.assert_allclose(ours, tree.contract(arrays), rtol=1e-8)


@pytest.mark.slow
def test_quimb_takes_it_as_an_implementation():
    """A lattice of 100 tensors of quimb, which compiles for long, gives the same scalar."""
    quimb = pytest.importorskip("quimb.tensor")
    lattice = quimb.TN2D_rand(10, 10, D=2, seed=7, dist="uniform")
    theirs = lattice.contract(optimize="greedy")
    ours = lattice.contract(optimize="greedy", implementation=IMPLEMENTATION)
    assert einsum_module._expressions
    assert ours == pytest.approx(theirs, rel=1e-8)


def test_an_expression_takes_a_hundred_tensors():
    """A network as one einsum of ours, with more letters than an alphabet has."""
    opt_einsum = pytest.importorskip("opt_einsum")
    testing = pytest.importorskip("opt_einsum.testing")
    text, shapes = testing.rand_equation(100, 3, n_out=1, d_max=2, seed=0)
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    found = tilesolve.expression(text, *arrays, optimize="greedy")
    assert len(found.steps) == 99
    theirs = opt_einsum.contract(text, *arrays, optimize="greedy")
    np.testing.assert_allclose(found(*arrays), theirs, rtol=1e-8)
    again = tilesolve.einsum(text, *arrays, optimize="greedy")  # which plans larger steps only
    np.testing.assert_allclose(again, theirs, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["contract", "edge_cases", "input", "sharing", "blas"])
def test_opt_einsums_own_tests(module):
    """Those of its wheel that contract pass with ours in numpy's place."""
    pytest.importorskip("opt_einsum.tests")
    found = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "opt_einsum_backend"),
            *("-p", "no:cacheprovider", "--pyargs", f"opt_einsum.tests.test_{module}"),
        ],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")},
        cwd=Path(__file__).parents[2] / "docs",  # not where our settings of pytest are found
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]
    calls = int(re.search(r"tilesolve computed (\d+) times", found.stdout)[1])
    assert calls > 0 or module == "blas"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_networks_of_cotengra(seed):
    """Networks with outer letters, hyperedges and slices give what they give by numpy."""
    cotengra = pytest.importorskip("cotengra")
    inputs, output, _, sizes = cotengra.utils.rand_equation(
        *(5 + seed, 3), n_out=seed % 4, n_hyper_in=seed % 3, d_min=2, d_max=4, seed=seed
    )
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal([sizes[x] for x in term]) / 2 for term in inputs]
    tree = cotengra.array_contract_tree(inputs, output, sizes, optimize="greedy")
    for one in (tree, tree.slice(target_slices=2, allow_outer=False)):
        ours = one.contract(arrays, implementation=IMPLEMENTATION)
        np.testing.assert_allclose(ours, one.contract(arrays), rtol=1e-8, atol=1e-8)
