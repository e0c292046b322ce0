"""What a caller asks of a plan beside its problem."""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.contractions.epilogue import Epilogue


@dataclass(frozen=True, slots=True)
class Demand:
    """How C is wanted.

    Parameters
    ----------
    overwrite
        Whether the output is overwritten; else the result is added to it.
    epilogue
        What is done to each element in the end; None for nothing.
    strategy
        The name of the strategy that finds a solution.

    Examples
    --------
    >>> Demand().overwrite
    True
    """

    overwrite: bool = True
    epilogue: Epilogue | None = None
    strategy: str = "solver"
