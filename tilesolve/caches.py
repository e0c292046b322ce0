"""What is kept between calls and between processes: how much there is, and how to remove it."""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.convolutions import conv
from tilesolve.expressions import einsum
from tilesolve.machine import kernel_cache
from tilesolve.plans import cache as plan_cache
from tilesolve.system.cache_bound import KEPT, list_kept
from tilesolve.system.files import remove_files
from tilesolve.system.trust import kept_folder


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

    Plans in memory are forgotten, too, and what `einsum` and `conv` keep of earlier calls. `Plan`,
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
    einsum.forget_calls()
    conv.forget_convolutions()
    functions = remove_files(kept_folder("functions"), KEPT["functions"])
    return Cleared(plan_cache.clear(), kernel_cache.clear(), functions)
