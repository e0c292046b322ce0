"""What is computed: specs, problems, their classes and suites, and a slow reference.

The functions `canonicalize`, `classes`, `reference` and `suite` are imported from the modules
that define them.
"""

from tilesolve.contractions.errors import TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec, Subscript, Tensor

__all__ = ["Problem", "Spec", "Subscript", "Tensor", "TilesolveError"]
