"""Masked arrays: nothing computes with their masks, and nothing leaves them out."""

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import DtypeError

PLAIN = np.ones((3, 3))
MASKED = np.ma.masked_array(PLAIN.copy(), np.eye(3, dtype=bool))
IMAGE = np.ma.masked_array(np.ones((1, 2, 4, 4)), np.arange(32).reshape(1, 2, 4, 4) > 3)


def nest(*arrays, **named):
    """Call a plan that has seen plain arrays."""
    plan = tilesolve.nest("o[i,j] = a[i,j] + 1", 3)
    for _ in range(3):
        plan(PLAIN, out=np.empty((3, 3)))
    return plan(*arrays, **named)


def contraction(*arrays, **named):
    """Call a plan of a contraction that has seen plain arrays."""
    plan = tilesolve.plan("mn-mk-kn", 3)
    for _ in range(3):
        plan(PLAIN, PLAIN, out=np.empty((3, 3)))
    return plan(*arrays, **named)


CALLS = [
    lambda: nest(MASKED),
    lambda: contraction(MASKED, PLAIN),
    lambda: tilesolve.einsum("ij,jk", PLAIN, MASKED),
    lambda: tilesolve.tensordot(MASKED, PLAIN, 1),
    lambda: tilesolve.expression("ij,jk", (3, 3), (3, 3))(PLAIN, MASKED),
    lambda: tilesolve.expression("ij,jk", (3, 3), MASKED, constants=[1]),
    lambda: tilesolve.transpose(MASKED),
    lambda: tilesolve.conv(IMAGE, np.ones((2, 2, 3, 3))),
    lambda: tilesolve.pipeline(lambda a: a + MASKED)(PLAIN),
]


@pytest.mark.parametrize("call", CALLS)
def test_refused(call):
    """The message says which one it is, and what to give."""
    with pytest.raises(DtypeError, match=r"masked array, whose mask would be lost: give.*filled"):
        call()
