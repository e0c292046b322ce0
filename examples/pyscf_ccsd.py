"""Coupled cluster with PySCF, once as it is and once with our einsum: the energies are equal.

`python examples/pyscf_ccsd.py [BASIS]` computes water by CCSD with the formulation of PySCF that is
written in einsum (`pyscf.cc.rccsd`), which calls `numpy.einsum` and `pyscf.lib.einsum`; the second
run finds `tilesolve.einsum` under both names. Needs the extra `examples`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

import tilesolve

Array = Any

WATER = "O 0 0 0; H 0 -0.757 0.587; H 0 0.757 0.587"


@contextmanager
def einsum_of(function: Callable[..., object], *modules: ModuleType) -> Iterator[None]:
    """Put a function in the place of the einsum of some modules for a while."""
    kept = [(module, module.einsum) for module in modules]
    for module, _ in kept:
        module.einsum = function
    try:
        yield
    finally:
        for module, stock in kept:
            module.einsum = stock


def correlation(solver: ModuleType, field: object) -> tuple[float, float]:
    """Return the correlation energy and the seconds that it took."""
    start = time.perf_counter()
    cluster = solver.RCCSD(field)
    cluster.conv_tol, cluster.conv_tol_normt = 1e-11, 1e-8
    cluster.verbose = 0
    cluster.kernel()
    if not cluster.converged:
        raise RuntimeError("CCSD did not converge")
    return float(cluster.e_corr), time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> float:
    """Print energies and times, and return how far the energies are apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("basis", nargs="?", default="6-31g")
    options = parser.parse_args(arguments)
    from pyscf import gto, lib, scf
    from pyscf.cc import rccsd

    lib.num_threads(1)
    field = scf.RHF(gto.M(atom=WATER, basis=options.basis, verbose=0)).run(conv_tol=1e-12)
    calls: Counter[str] = Counter()

    def ours(subscripts: str, *operands: Array, **options: object) -> Array:
        calls[subscripts] += 1
        return tilesolve.einsum(subscripts, *operands, **options)

    stock, stock_seconds = correlation(rccsd, field)
    with einsum_of(ours, np, lib):
        patched, seconds = correlation(rccsd, field)
        patched, again = correlation(rccsd, field)
    print(f"water, {options.basis}: {field.mo_coeff.shape[1]} orbitals")
    print(f"stock einsum {stock:+.12f} hartree in {stock_seconds:.2f} s")
    print(f"tilesolve    {patched:+.12f} hartree in {seconds:.2f} s, again in {again:.2f} s")
    print(
        f"{calls.total()} calls of {len(calls)} einsums; "
        f"the energies differ by {abs(patched - stock):.1e}"
    )
    return abs(patched - stock)


if __name__ == "__main__":
    main()
