"""What is kept between calls and processes: how much there is, how to make and to remove it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from tilesolve.kernels.progress import Progress, silent
from tilesolve.kernels.runtime.compiled import load_functions
from tilesolve.machine import kernel_cache
from tilesolve.machine.model import Machine
from tilesolve.plans import cache as plan_cache
from tilesolve.system.cache_bound import KEPT, list_kept
from tilesolve.system.files import remove_files
from tilesolve.system.trust import kept_folder

_MEMORIES = {
    "tilesolve.system.result_buffers": "forget_results",
    "tilesolve.expressions.einsum": "forget_calls",
    "tilesolve.convolutions.conv": "forget_convolutions",
}
"""Modules that remember calls or keep memory, and the function of each that forgets it."""


_COMPILED = tuple(
    f"tilesolve.kernels.runtime.{name}"
    for name in (
        "pack_segment",
        "prefetch_queue",
        "macrokernel",
        "copy_windows",
        "boxes",
        "fast_call",
        "epilogues",
        "transposed_output",
        "transpose_walk",
        "interior_steps",
        "traffic_walk",
    )
)
"""Modules of compiled functions that others need."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The files that were removed.

    Parameters
    ----------
    plans
        Solved plans.
    kernels
        Object files of compiled kernels.
    functions
        Object files of the compiled functions that run plans.
    """

    plans: int
    kernels: int
    functions: int


def count_code() -> tuple[int, int]:
    """Return how many files of compiled code are kept, and how many bytes they take.

    Examples
    --------
    >>> len(count_code())
    2
    """
    names = [name for name in KEPT if name != "plans"]
    files = [file for name in names for file in list_kept(kept_folder(name).parent, name)]
    return len(files), sum(file.size for file in files)


def clear_cache() -> Cleared:
    """Remove all solved plans and compiled code from the cache folder.

    Plans in memory are forgotten, too, and what `einsum` and `conv` keep of earlier calls,
    and the memory of freed results. `Plan`,
    `Expression` and `ConvLayer` objects that somebody holds stay as they are, and code that has
    been loaded serves on.

    Raises
    ------
    FileAccessError
        If a file cannot be removed.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_CACHE_DIR=tempfile.mkdtemp()):
    ...     clear_cache()
    Cleared(plans=0, kernels=0, functions=0)
    """
    for module, forget in _MEMORIES.items():
        if module in sys.modules:  # else there is nothing to forget, and much to load
            getattr(sys.modules[module], forget)()
    functions = remove_files(kept_folder("functions"), KEPT["functions"])
    return Cleared(plan_cache.clear(), kernel_cache.clear(), functions)


def warm_cache(dtypes: Sequence[str], progress: Progress = silent) -> None:
    """Compile what calls need, so that the first ones need not.

    Parameters
    ----------
    dtypes
        Names of those that kernels are wanted for.
    progress
        Receives the fraction that is done, and what is being done.
    """
    machine = Machine.load()
    families = [kernel_cache.family_of(dtype, machine) for dtype in dtypes]
    parts = [
        *((family, packed) for family in families for packed in (True, False)),
        *((replace(family, mixed=True), True) for family in families if not family.source),
    ]
    kernel_cache.start_compiling(families[0], packed=True)
    steps = len(_COMPILED) + len(parts)
    for done, module in enumerate(_COMPILED):
        progress(done / steps, "functions")
        import_module(module)
        load_functions(module)
    for done, (family, packed) in enumerate(parts, len(_COMPILED)):
        progress(done / steps, f"kernels of {family.dtype}")
        kernel_cache.load_kernels(family, packed=packed)
    progress(1.0, "done")
