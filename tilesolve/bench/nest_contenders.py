"""Who takes part in a sweep of nests: ours, the same generator untiled, and libraries."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tilesolve.bench.contenders import OURS, Contender, list_peers
from tilesolve.contractions.errors import BenchmarkError

THESIS = "thesis"
"""Ours by the printed formulas, always as a nest."""

BASELINE = "baseline"
"""Ours without tiles: threads outside, vectors inside."""

NEST_PEERS = (THESIS, BASELINE, "numpy", "numba", "halide", "halide-adams")
"""The peers that sweeps of nests know."""

_MAKERS = "tilesolve.bench.run.nest_peers"


def parse_nest_contenders(text: str, threads: int = 1) -> tuple[Contender, ...]:
    """Return tilesolve and the peers that a list of names asks for.

    Parameters
    ----------
    text
        Names of `NEST_PEERS` with commas between them, or ``none``.
    threads
        That each will use.

    Examples
    --------
    >>> [found.name for found in parse_nest_contenders("numpy,baseline")]
    ['tilesolve', 'numpy', 'baseline']
    """
    wanted = [part.strip() for part in text.split(",")]
    for name in wanted:
        if name not in (*NEST_PEERS, "none", ""):
            raise BenchmarkError(
                f"no peer {name!r} computes nests; {', '.join(NEST_PEERS)} do, or none"
            )
    names = [OURS, *(name for name in dict.fromkeys(wanted) if name in NEST_PEERS)]
    return tuple(_make(name, threads) for name in names)


def _make(name: str, threads: int) -> Contender:
    """Return a contender with the settings that suit it best."""
    package, maker = name, name.replace("-", "_")
    environment: tuple[tuple[str, str], ...] = ()
    if name in (OURS, THESIS, BASELINE):
        package, environment = "tilesolve", (("TILESOLVE_CACHE", "off"),)
    elif name == "numpy":
        environment = list_peers(threads)["numpy-best"].environment
    elif name.startswith("halide"):
        # Its autoschedulers find it by the loader's path, which is read when a process starts.
        package, environment = "halide", (("LD_LIBRARY_PATH", find_libraries()),)
    return Contender(name, f"{_MAKERS}:{maker}", package, environment)


def find_libraries() -> str:
    """Return the folder in which Halide's autoschedulers look for Halide; empty if it is absent."""
    found = find_spec("halide")
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent / "lib64")
