"""Contractions, layers and pipelines on Dask arrays: Dask runs what the network level's plan says.

Needs the extra ``dask``; importing `tilesolve` does not import it.
"""

from __future__ import annotations

from tilesolve.distributed.contract import einsum, promises, tensordot
from tilesolve.distributed.graph import Promise
from tilesolve.distributed.mapping import map_batch, map_tiles

__all__ = ["Promise", "einsum", "map_batch", "map_tiles", "promises", "tensordot"]
