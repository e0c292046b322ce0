"""Modules that load beside the main thread, so that an interrupt does not end it amid that."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib import import_module
from types import ModuleType

_NO_MEMORY = ("failed to map segment", "annot allocate memory", "annot create shared object")
"""Parts of what the system's loader says of a library that there is no memory for."""


def load_module(name: str) -> ModuleType:
    """Import a module, and what it imports, where no handler of a signal runs amid it.

    Libraries such as NumPy, SciPy and Pyomo cannot be imported again where that was interrupted.
    An exception of a handler ends the waiting alone: the module goes on to load, and the next that
    asks for it again waits for the rest.

    Raises
    ------
    ImportError
        If it cannot be loaded; or the exception that its code raises.

    Examples
    --------
    >>> load_module("tilesolve.system.units").format_size(2048)
    '2 KiB'
    """
    if name not in sys.modules and threading.current_thread() is threading.main_thread():
        loaded = threading.Lock()
        loaded.acquire()

        def load() -> None:
            try:
                with suppress(Exception):  # the import below raises it where it is heard
                    import_module(name)
            finally:
                loaded.release()

        try:
            threading.Thread(target=load, name=f"load {name}").start()
        except RuntimeError:  # Python is shutting down, and starts no threads any more
            return import_module(name)
        loaded.acquire()
    return import_module(name)


def lacks_memory(error: BaseException) -> bool:
    """Return whether a module could not be loaded because there was no memory for it.

    Examples
    --------
    >>> says = "libipopt.so.3: failed to map segment from shared object"
    >>> lacks_memory(ImportError(says)), lacks_memory(ImportError("undefined symbol: dgemm_"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY)
