"""Certificates: what SCIP proves, and what becomes of it where it fails."""

from dataclasses import replace

import pytest
import solver_doubles

from tilesolve import plan
from tilesolve.contractions.errors import SolverError
from tilesolve.plans import certificate
from tilesolve.system.subprocess_call import run_in_process


def test_certified_tiles_are_near_the_integer_optimum():
    """SCIP proves that the repaired tiles of small problems are within 2 % of the best."""
    pytest.importorskip("pyscipopt")
    for sizes in (48, {"a": 96, "b": 40, "c": 64}):
        proof = plan("ab-ac-cb", sizes, "e5-2680v4").certify()
        assert proof.bound <= proof.optimum * (1 + 1e-6)
        assert proof.gap <= 0.02


def test_no_bound_is_above_the_plan_itself():
    """Tiles that reach across an index may take less than the program knows: no proof, then."""
    pytest.importorskip("pyscipopt")
    for spec, sizes in (("i-ij-j", "i=30 j=40"), ("ab-ac-cb", 24)):
        with pytest.raises(SolverError, match="nothing is proved"):
            plan(spec, sizes, "e5-2680v4").certify()


@pytest.mark.parametrize(
    ("solver", "limit", "message"),
    [
        (solver_doubles.aborts, 60, "SIGABRT: SCIP: assertion failed"),
        (solver_doubles.raises, 60, "exit status 1: ValueError: not a program"),
        (solver_doubles.hangs, 0.25, r"proved nothing in 0\.25 s"),
    ],
)
def test_a_solver_that_fails_is_an_error(monkeypatch, solver, limit, message):
    """SCIP may end its process or never stop: the caller goes on, with an error that says so."""
    found = plan("ab-ac-cb", 24, "i7-6700k")
    monkeypatch.setattr(certificate, "_answer", solver)
    monkeypatch.setattr(certificate, "MARGIN_SECONDS", 1.0)
    with pytest.raises(SolverError, match=message):
        found.certify(limit=limit)


def test_what_a_solver_prints_is_no_answer():
    """An answer comes back whole, whatever libraries print beside it."""
    assert run_in_process(solver_doubles.prints, "täxt\n", 60) == "täxt\n"


def test_a_proof_that_takes_too_long():
    """SCIP's own limit is an error too, the same for a program of too many tiles."""
    pytest.importorskip("pyscipopt")
    with pytest.raises(SolverError, match=r"proved nothing in 0\.01 s"):
        plan("ab-ac-cb", 96, "i7-6700k").certify(limit=0.01)
    with pytest.raises(SolverError, match=r"index .* nested tiles"):
        plan("ab-ac-cb", 5000, "i7-6700k").certify()


def test_what_is_ruled_out_is_proved_too():
    """Each choice that was not solved has a bound; a plan that claims more is refused."""
    pytest.importorskip("pyscipopt")
    found = plan("ab-ac-cb", {"a": 96, "b": 40, "c": 64}, "e5-2680v4")
    proof = found.certify()
    assert len(dict(proof.ruled_out)) == found.search.pruned > 0
    first, *others = found.search.ruled_out
    more = replace(found.search, ruled_out=(replace(first, seconds=2 * first.seconds), *others))
    with pytest.raises(SolverError, match="are not ruled out"):
        certificate.certify(replace(found.solution, origin=more))
