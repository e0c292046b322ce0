"""What a caller asks of a plan beside its problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.planning.composition.scheme import Scheme


@dataclass(frozen=True, slots=True)
class Demand:
    """How C is wanted, and who decides on the loops.

    Parameters
    ----------
    overwrite
        Whether the output is overwritten; else the result is added to it.
    epilogue
        What is done to each element in the end; None for nothing.
    strategy
        The name of what finds the nest, see `tilesolve.planning.solve.STRATEGIES`.
    scheme
        The nest itself; None if it is to be found.
    tries
        How many of the solutions that are predicted to be fastest are run, to keep the fastest.

    Examples
    --------
    >>> Demand().overwrite
    True
    """

    overwrite: bool = True
    epilogue: Epilogue | None = None
    strategy: str = "solver"
    scheme: Scheme | None = None
    tries: int = 1

    def rename(self, letters: Mapping[str, str]) -> Self:
        """Return the same for a problem with other letters.

        Examples
        --------
        >>> print(Demand(scheme=Scheme.of("[Ri]")).rename({"i": "a"}).scheme)
        [Ra]
        """
        return replace(
            self,
            epilogue=self.epilogue.rename(dict(letters)) if self.epilogue else None,
            scheme=self.scheme.rename(letters) if self.scheme else None,
        )
