"""Small ragged nests on which working sets and the movement model meet."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.model.nest import Nest

EXTENTS = (2, 3, 5, 7, 8, 12, 17)
"""Of letters: few tiles divide them."""


def draw_nest(
    draw: random.Random, specs: Sequence[str], most: int = EXTENTS[-1]
) -> tuple[Problem, Nest]:
    """Draw a problem of one of the specs and a nest of two or three levels.

    Its innermost band is one iteration: its loops run in the order that they are drawn in.
    """
    spec = draw.choice(specs)
    letters = Spec.parse(spec).letters
    problem = Problem.of(spec, {i: draw.choice([n for n in EXTENTS if n <= most]) for i in letters})
    box = dict.fromkeys(letters, 1)
    bands = [("register", "".join(letters), box)]
    for level in ("L1", "L2")[: draw.choice([1, 2])]:
        box = {i: draw.randint(box[i], problem.sizes[i]) for i in letters}
        bands.append((level, "".join(draw.sample(letters, len(letters))), box))
    bands.append(("memory", "".join(draw.sample(letters, len(letters))), dict(problem.sizes)))
    return problem, Nest.of(problem, bands)
