"""What tests of convolutions share."""

from unittest.mock import patch

import pytest
from convolution_cases import ReferencePlan

from tilesolve.convolutions.conv import forget_convolutions


@pytest.fixture(scope="module")
def planned_at_once():
    """Layers run by the reference: what plans do is tested elsewhere."""
    forget_convolutions()
    with patch("tilesolve.convolutions.layer_plans.plan", ReferencePlan):
        yield
    forget_convolutions()
