"""What tests of expressions share."""

import pytest

from tilesolve.expressions import einsum


@pytest.fixture(autouse=True)
def forgotten():
    """No expression is known from another test."""
    einsum.forget_calls()
