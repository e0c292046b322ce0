"""Plans in the notation of schemes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests_support import draws  # noqa: F401
