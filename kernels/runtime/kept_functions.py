"""Compiled functions on disk: numba's results as objects in the folder of what is kept.

numba's own files lie beside the sources, which may be read-only, and are executed whoever wrote
them. Here each function is one object, under a name that tells all that it depends on.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numba
from numba.core import compiler, serialize

from tilesolve.kernels.runtime.compiled import function_folder
from tilesolve.kernels.sources import LAYOUT
from tilesolve.system.kept_objects import make_alone, write_object

_serialize: Any = serialize
_CompileResult: Any = compiler.CompileResult  # numba's types describe neither


class KeptFunction:
    """What numba asks for a function's code before it compiles, and gives it to afterwards.

    As a context it lets no other process compile the same function meanwhile.

    Parameters
    ----------
    function
        The Python function.
    """

    def __init__(self, function: Any) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"

    def flush(self) -> None:
        """Forget nothing: what other sources made has another name."""

    def __enter__(self) -> Self:
        self._held = ExitStack()
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for a signature; None if this process is to compile it now."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        code = self._held.enter_context(make_alone(path))
        if code is None:
            return None
        return _CompileResult._rebuild(target_context, *pickle.loads(code))  # signed by this user

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for a signature.

        Raises
        ------
        RuntimeError
            If its code has addresses in it, which are of no use to another process.
        """
        if data.library.has_dynamic_globals:
            raise RuntimeError(f"{self._name} has addresses in it")
        write_object(self._path(sig, data.codegen), _serialize.dumps(data._reduce()))

    def _path(self, sig: Any, codegen: Any) -> Path:
        parts = (
            LAYOUT,
            numba.__version__,
            sys.version,
            codegen.magic_tuple(),
            self._name,
            str(sig),
        )
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
        return function_folder() / f"{self._name}-{digest}.o"
