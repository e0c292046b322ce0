"""Plans of pipelines: what users hold of the choices for all stages."""

from __future__ import annotations

import os

from tilesolve.contractions.statements.computation import Computation
from tilesolve.nests.plan import NestPlan
from tilesolve.pipelines.halide import write_halide
from tilesolve.pipelines.pictures import draw_solved
from tilesolve.pipelines.solve import solve_pipeline


class PipelinePlan(NestPlan):
    """How to run stages one after another, and what that is predicted to cost.

    It is a `NestPlan` whose computation is a pipeline's.
    """

    __slots__ = ()
    _solve = staticmethod(solve_pipeline)

    def to_halide(self) -> str:
        """Return Python text for Halide 21: a function `make` that returns its pipeline.

        It has the schedule that the plan decided for.

        Raises
        ------
        PlanError
            If a stage computes parts of an array, is an update, or has a term that is not written.
        """
        return write_halide(self._solution)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the stages in their groups: where each is computed and kept, and its room.

        Parameters
        ----------
        path
            The picture; the ending of its name says the format.

        Raises
        ------
        PictureError, FileAccessError
            If it cannot be drawn, or not be written.
        """
        draw_solved(self._solution, path)

    def __repr__(self) -> str:
        computation: Computation = self.computation
        names = " ".join(dict.fromkeys(stage.name for stage in computation.stages))
        return f"<PipelinePlan {names} on {self.machine.name}: {self.how}>"
