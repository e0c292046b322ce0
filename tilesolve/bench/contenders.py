"""Who takes part in a sweep: packages, their versions, and the best settings of each."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from tilesolve.bench.case import NUMPY_OFFSET_BYTES
from tilesolve.contractions.errors import BenchmarkError

OURS = "tilesolve"
"""The contender that takes part in every sweep, and that the others are compared with."""

ALIGNED = "aligned"
"""Ours once more, with arrays that begin with lines: it is in every sweep, too."""

PLANS = (OURS, ALIGNED)
"""Whose results have to be right for a sweep to have gone well."""

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

IM2COL = "im2col"
"""The peer that copies windows and multiplies, as the papers' baseline does."""

LAYER_PEERS = ("torch", "torch-eager", "onnxruntime", "openvino", IM2COL)
"""The peers that sweeps of layers know."""

LAYOUTS = ("NHWC", "NCHW")
"""The layouts that layers are measured in."""

THESIS = "thesis"
"""Ours by the printed formulas, always as a nest."""

BASELINE = "baseline"
"""Ours without tiles: threads outside, vectors inside."""

NEST_PEERS = (THESIS, BASELINE, "numpy", "numba", "halide", "halide-adams")
"""The peers that sweeps of nests know."""

STATEMENT_PEERS = ("numpy", "numba")
"""The peers that sweeps of drawn statements know."""

ROOT = "root"
"""Ours, one stage after another."""

OVERLAP = "overlap"
"""Ours with tiles that overlap in the place of rings."""

PIPELINE_PEERS = (
    *(ROOT, OVERLAP, "numpy", "numba", "halide", "halide-adams", "halide-manual", "halide-ours"),
    *("jax", "opencv", "scikit-image"),
)
"""The peers that sweeps of pipelines know."""

NETWORK_PEERS = ("onnxruntime", "openvino", "torch")
"""The peers that sweeps of whole networks know."""

OWN = (*PLANS, THESIS, BASELINE, ROOT, OVERLAP)
"""Who makes code as we do, and is nobody's peer."""

_PEERS = "tilesolve.bench.run.peers"

_OFF = (("TILESOLVE_CACHE", "off"),)
"""Planning is what preparation takes."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A library that computes, and the settings that it is given.

    Parameters
    ----------
    name
        Its name in tables; with layouts a library and its layout.
    maker
        ``module:function``; see `peers` for its arguments and its result.
    package
        The package that has to be installed.
    environment
        Settings that suit it best, as pairs of a variable and its value.
    needs
        Further packages that it does not work without.
    layout
        Of its arrays, where contenders differ in that.
    offset
        Bytes from the beginning of a line to where its arrays begin.

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
    layout: str = ""
    offset: int = NUMPY_OFFSET_BYTES

    @property
    def library(self) -> str:
        """The name without a layout."""
        return split_name(self.name)[0]

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
            found = "not installed"
            if self.installed:  # by another name
                (name,) = packages_distributions().get(self.package, [""])[:1]
                found = f"{self.package} {version(name)}" if name else self.package
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


def split_name(name: str) -> tuple[str, str]:
    """Return the library and the layout of a contender's name.

    Examples
    --------
    >>> split_name("torch-eager NHWC"), split_name("numpy")
    (('torch-eager', 'NHWC'), ('numpy', ''))
    """
    library, _, layout = name.partition(" ")
    return library, layout


def parse_contenders(text: str, threads: int = 1) -> tuple[Contender, ...]:
    """Return tilesolve, it with aligned arrays, and the peers that a list of names asks for.

    The list has names of `list_peers` with commas between them, ``none``, or
    ``module:function`` for a peer of one's own.

    Examples
    --------
    >>> [found.name for found in parse_contenders("numpy,mine:make")]
    ['tilesolve', 'aligned', 'numpy', 'mine:make']
    >>> parse_contenders("none") == parse_contenders("")
    True
    """
    there = list_peers(threads)
    maker = f"{_PEERS}:tilesolve"
    found = [Contender(OURS, maker, "tilesolve"), Contender(ALIGNED, maker, "tilesolve", offset=0)]
    for name in _split_names(text):
        module, colon, function = name.partition(":")
        if name in there:
            found.append(there[name])
        elif colon and module and function:
            found.append(Contender(name, name, module.partition(".")[0]))
        else:
            raise BenchmarkError(
                f"there is no peer {name!r}; there are {', '.join(there)}, none, and "
                "module:function for one of your own"
            )
    return tuple(found)


def _split_names(text: str) -> Iterable[str]:
    """Return the different names in a list; ``none`` and nothing are no names."""
    return dict.fromkeys(
        part for one in text.split(",") if (part := one.strip()) not in ("", "none")
    )


def _check_names(text: str, known: Sequence[str], what: str) -> list[str]:
    """Return ours and the peers that a list names; refuse those that are not known."""
    for name in _split_names(text):
        if name not in known:
            raise BenchmarkError(
                f"no peer {name!r} computes {what}; {', '.join(known)} do, or none"
            )
    return [*PLANS, *_split_names(text)]


def parse_layer_contenders(text: str, threads: int = 1) -> tuple[Contender, ...]:
    """Return tilesolve and the peers of layers that a list asks for, in all their layouts.

    Examples
    --------
    >>> [found.name for found in parse_layer_contenders("onnxruntime")][:3]
    ['tilesolve NHWC', 'tilesolve NCHW', 'aligned NHWC']
    """
    names = _check_names(text, LAYER_PEERS, "layers")
    return tuple(found for name in names for found in _lay_out(name, threads))


def _lay_out(library: str, threads: int) -> Iterator[Contender]:
    """Yield a library in its layouts; ONNX Runtime has channels first alone."""
    own, offset = library in OWN, 0 if library == ALIGNED else NUMPY_OFFSET_BYTES
    maker = OURS if own else library.replace("-", "_")
    package = {IM2COL: "numpy", "torch-eager": "torch"}.get(library, OURS if own else library)
    needs = ("onnx",) if library == "onnxruntime" else ()
    environment: tuple[tuple[str, str], ...] = _OFF if own else ()
    if library == IM2COL:
        environment = list_peers(threads)["numpy-best"].environment
    maker = f"tilesolve.bench.run.conv_peers:{maker}"
    for layout in LAYOUTS if library != "onnxruntime" else ("NCHW",):
        name = f"{library} {layout}"
        yield Contender(name, maker, package, environment, needs, layout, offset)


def parse_nest_contenders(
    text: str, threads: int = 1, *, known: Sequence[str] = NEST_PEERS, what: str = "nests"
) -> tuple[Contender, ...]:
    """Return tilesolve and the peers of nests that a list asks for.

    Examples
    --------
    >>> [found.name for found in parse_nest_contenders("numpy,baseline")]
    ['tilesolve', 'aligned', 'numpy', 'baseline']
    """
    found = []
    for name in _check_names(text, known, what):
        package, environment = name, tuple[tuple[str, str], ...]()
        if name in OWN:
            package, environment = "tilesolve", _OFF
        elif name == "numpy":
            environment = list_peers(threads)["numpy-best"].environment
        elif name.startswith("halide"):
            # Its autoschedulers find it by the loader's path, which is read when a process starts.
            package, environment = "halide", (("LD_LIBRARY_PATH", find_libraries()),)
        made = OURS if name == ALIGNED else name.replace("-", "_")
        maker = f"tilesolve.bench.run.nest_peers:{made}"
        offset = 0 if name == ALIGNED else NUMPY_OFFSET_BYTES
        found.append(Contender(name, maker, package, environment, offset=offset))
    return tuple(found)


def parse_statement_contenders(text: str, threads: int = 1) -> tuple[Contender, ...]:
    """Return tilesolve and the peers of drawn statements that a list asks for.

    Ours also runs without `out`, and with some that begin elsewhere, in one process.

    Examples
    --------
    >>> [found.maker.partition(":")[2] for found in parse_statement_contenders("numba")]
    ['tilesolve_outs', 'numba']
    """
    _check_names(text, STATEMENT_PEERS, "drawn statements")
    ours, _, *others = parse_nest_contenders(text, threads)
    return (replace(ours, maker=f"{ours.maker}_outs"), *others)


def parse_pipeline_contenders(text: str, threads: int = 1) -> tuple[Contender, ...]:
    """Return tilesolve and the peers of pipelines that a list asks for.

    NumPy runs the function itself.

    Examples
    --------
    >>> [(found.name, found.package) for found in parse_pipeline_contenders("root,opencv")][1:]
    [('aligned', 'tilesolve'), ('root', 'tilesolve'), ('opencv', 'cv2')]
    """
    packages = {"opencv": "cv2", "scikit-image": "skimage"}
    variables = {"jax": list_peers(threads)["jax"].environment}
    return tuple(
        replace(
            one,
            maker=one.maker.replace("nest_peers", "pipeline_peers"),
            package=packages.get(one.name, one.package),
            environment=variables.get(one.name, one.environment),
        )
        for one in parse_nest_contenders(text, threads, known=PIPELINE_PEERS, what="pipelines")
    )


def parse_network_contenders(text: str, threads: int = 1) -> tuple[Contender, ...]:
    """Return tilesolve and the peers of whole networks that a list asks for.

    Examples
    --------
    >>> [found.name for found in parse_network_contenders("openvino")]
    ['tilesolve', 'openvino']
    """
    return tuple(
        Contender(
            name,
            f"tilesolve.bench.run.network_peers:{name}",
            name,
            _OFF if name in OWN else (),
            ("onnx",),
        )
        for name in _check_names(text, NETWORK_PEERS, "whole networks")
        if name != ALIGNED
    )


def find_libraries() -> str:
    """Return the folder in which Halide's autoschedulers look for Halide; empty if it is absent."""
    found = importlib.util.find_spec("halide")
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent / "lib64")


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
