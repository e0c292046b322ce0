"""Who takes part in a sweep: packages, their versions, and the best settings of each."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from tilesolve.contractions.errors import BenchmarkError

OURS = "tilesolve"
"""The contender that takes part in every sweep, and that the others are compared with."""

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "TBLIS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NPROC",
)
"""Variables that tell the libraries of every contender how many threads to use."""

KERNEL_VARIABLES = ("OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE", "XLA_FLAGS")
"""Variables that select kernels. A contender sees its own values, never those of the caller."""

_PEERS = "tilesolve.bench.run.peers"


@dataclass(frozen=True, slots=True)
class Contender:
    """Who computes.

    Parameters
    ----------
    name
        What tables call it.
    maker
        ``module:function``; see `peers` for what it is given and returns.
    package
        What has to be installed.
    environment
        Settings that suit it best, as pairs of a variable and its value.
    needs
        Further packages that it does not work without.

    Examples
    --------
    >>> found = Contender("numpy-best", "tilesolve.bench.run.peers:numpy", "numpy", (("A", "b"),))
    >>> found.label.startswith("numpy-best: numpy "), found.label.endswith(" A=b")
    (True, True)
    """

    name: str
    maker: str
    package: str
    environment: tuple[tuple[str, str], ...] = field(default=())
    needs: tuple[str, ...] = ()

    @property
    def installed(self) -> bool:
        """Whether its packages are there; one of the user's own is looked for when it runs."""
        return self.name == self.maker or all(
            importlib.util.find_spec(name) is not None for name in (self.package, *self.needs)
        )

    @property
    def label(self) -> str:
        """The name, the package's version, and the settings; of a folder not where it lies."""
        try:
            found = ", ".join(f"{name} {version(name)}" for name in (self.package, *self.needs))
        except PackageNotFoundError:
            found = self.package if self.installed else "not installed"
        settings = "".join(
            f" {key}" if value.startswith("/") else f" {key}={value}"
            for key, value in self.environment
        )
        return f"{self.name}: {found}{settings}"

    def build_variables(self, inherited: dict[str, str], threads: int) -> dict[str, str]:
        """Return the environment of its process.

        Examples
        --------
        >>> found = Contender("me", "me:make", "me", (("SPEED", "high"),))
        >>> found.build_variables({"HOME": "/", "BLIS_ARCH_TYPE": "zen"}, 2)["SPEED"]
        'high'
        >>> "BLIS_ARCH_TYPE" in found.build_variables({"BLIS_ARCH_TYPE": "zen"}, 2)
        False
        """
        kept = {key: value for key, value in inherited.items() if key not in KERNEL_VARIABLES}
        return kept | dict.fromkeys(THREAD_VARIABLES, str(threads)) | dict(self.environment)


def parse_contenders(text: str, threads: int = 1) -> tuple[Contender, ...]:
    """Return tilesolve and the peers that a list of names asks for.

    Parameters
    ----------
    text
        Names of `known` peers with commas between them, ``none``, or ``module:function`` for a
        peer of one's own.
    threads
        That each will use.

    Examples
    --------
    >>> [found.name for found in parse_contenders("numpy,mine:make")]
    ['tilesolve', 'numpy', 'mine:make']
    >>> parse_contenders("none") == parse_contenders("")
    True
    """
    there = list_peers(threads)
    found = [Contender(OURS, f"{_PEERS}:tilesolve", "tilesolve")]
    for name in dict.fromkeys(part.strip() for part in text.split(",")):
        module, colon, function = name.partition(":")
        if name in there:
            found.append(there[name])
        elif colon and module and function:
            found.append(Contender(name, name, module.partition(".")[0]))
        elif name not in ("", "none"):
            raise BenchmarkError(
                f"there is no peer {name!r}; there are {', '.join(there)}, none, and "
                "module:function for one of your own"
            )
    return tuple(found)


def list_peers(threads: int = 1) -> dict[str, Contender]:
    """Return the peers that sweeps know, with the settings that suit this CPU.

    On CPUs that their tables do not know OpenBLAS and TBLIS fall back to slower kernels, so that
    they are told which to use.

    Examples
    --------
    >>> list(list_peers())
    ['numpy', 'numpy-best', 'opt_einsum', 'tblis', 'torch', 'jax']
    """
    from tilesolve.machine.cpu import detect_cpu

    features = set(detect_cpu().features)
    blas = (("OPENBLAS_CORETYPE", "SkylakeX"),) if "avx512f" in features else ()
    blis = (("BLIS_ARCH_TYPE", "haswell"),) if {"avx2", "fma"} <= features else ()
    xla = f"--xla_cpu_multi_thread_eigen={'false' if threads == 1 else 'true'}"
    peers = (
        Contender("numpy", f"{_PEERS}:numpy", "numpy"),
        Contender("numpy-best", f"{_PEERS}:numpy", "numpy", blas),
        Contender("opt_einsum", f"{_PEERS}:opt_einsum", "opt_einsum", blas),
        Contender("tblis", f"{_PEERS}:tblis", "pytblis", blis),
        Contender("torch", f"{_PEERS}:torch", "torch"),
        Contender("jax", f"{_PEERS}:jax", "jax", (("XLA_FLAGS", xla),)),
    )
    return {peer.name: peer for peer in peers}
