"""A machine in some lines: its cores, and a row for each level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilesolve.machine.level import Level
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_size


def list_figures(
    name: str,
    cores: tuple[int, float, int],
    levels: Sequence[Level],
    source: Callable[[str], str],
) -> Iterator[str]:
    """Yield a line for the cores and their caches, and a table of the levels.

    Parameters
    ----------
    name
        Of the machine.
    cores
        How many, their frequency, and the bits of their vectors.
    levels
        Nearest first.
    source
        Returns where a figure is from.

    Examples
    --------
    >>> from tilesolve.machine.model import Machine
    >>> Machine.load("i7-6700k")
    <Machine i7-6700k: 4 cores of 4.2 GHz, vectors of 256 bits, L1 32 KiB, L2 256 KiB, L3 8 MiB>
    """
    count, frequency, bits = cores
    many = "1 core" if count == 1 else f"{count} cores"
    caches = (f"{one.name} {format_size(one.capacity)}" for one in levels[:-1])
    of_cores = f"{many} of {frequency / 1e9:.3g} GHz, vectors of {bits} bits"
    yield ", ".join((f"{name}: {of_cores}", *caches))
    rows = [("level", "capacity", "line", "bandwidth", "source")]
    for one in levels:
        rate = f"{one.bandwidth / 1e9:.4g} GB/s"
        known = source(f"{one.name}.bandwidth")
        rows.append((one.name, format_size(one.capacity), str(one.line), rate, known))
    yield from align_columns(rows)
