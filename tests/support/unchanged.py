"""Whether a change that should move code only leaves every plan and every kernel as it was.

    python tests/support/unchanged.py REVISION [--machine FILE]

compares the working tree with a revision: the plans of all suites and of drawn contractions, for
both shipped machines and for the one in force (or the one in a file), and the object code of a
grid of kernels for three CPUs. It prints what differs and ends with status 1 if anything does.
With ``--every N`` it looks at one of N problems only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from math import isclose
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

FOLDERS = ("contractions", "kernels", "packing")
"""Folders of the top level that become part of the package."""

SUITES = ("tccg", "yolo9000", "resnet18", "gemm", "random:40:7")

MACHINES = ("i7-6700k", "e5-2680v4", "")
"""Shipped machines; the empty name is the machine in force."""

CPUS = (("x86-64", 128, 16), ("haswell", 256, 16), ("skylake-avx512", 512, 32))
"""LLVM's name of a CPU, the bits of its vectors, and how many registers hold them."""

DTYPES = ("float32", "float64", "complex64", "complex128")

IGNORED = {"format", "machine", "checksum"}
"""What a plan's JSON says of the file and of the machine, not of the plan."""

CONTINUOUS = {"relaxed", "tiles", "elasticities", "spread", "runner_up"}
"""Fields that IPOPT's answers are in, whose last digits follow where arrays happen to lie."""

RENAMED: dict[str, str] = {
    "call": "call_cycles",
    "pack": "pack_cycles",
    "fetch": "in_place_rows_cycles",
    "stream": "in_place_columns_cycles",
    "placed": "in_place_rows_slowdown",
    "streams": "in_place_columns_slowdown",
}
"""New names of a plan's fields by the names that they had at the revision."""


def first_module(*names):
    """Return the first module that a tree has: modules move, their classes stay."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(names)


def flatten(value):
    """Return a plan as pairs of a field's name and its text, whichever value holds the field."""
    if not isinstance(value, dict):
        return {}
    found = {}
    for name, part in value.items():
        if name in IGNORED:
            continue
        if isinstance(part, dict):
            found |= flatten(part)
        elif name in found:
            raise ValueError(f"two fields are called {name}")
        else:
            found[name] = json.dumps(part)
    return found


def plans(machine, every=1):
    """Return every plan for a machine by its name, or one of so many."""
    from tilesolve import Machine, plan
    from tilesolve.bench import cases

    find_cases = getattr(cases, "find_cases", None) or cases.cases
    target = Machine.load(machine or None)
    found = {}
    for suite in SUITES:
        for name, problem in list(find_cases(suite).items())[::every]:
            for threads in (1, 2) if suite.startswith("random") else (1,):
                solved = plan(problem, machine=target, threads=threads, cache=False)
                key = f"{suite} {name} on {target.name} with {threads} threads"
                found[key] = flatten(json.loads(solved.to_json()))
    return found


def kernels():
    """Return a digest of the object code of each family of kernels for each CPU."""
    code = first_module("tilesolve.kernels.codegen.object_code", "tilesolve.kernels.code")
    found = {}
    for name, bits, registers in CPUS:
        for dtype in DTYPES:
            for halved in (True, False):
                family = code.Family.of(dtype, bits, registers, halved=halved)
                shapes = family.shapes[:: max(1, len(family.shapes) // 24)]
                cpu = getattr(code, "TargetCpu", None) or code.Cpu
                made = code.build(family, shapes, cpu.named(name, bits))
                found[f"{dtype} for {name}, halved {halved}"] = hashlib.sha256(made).hexdigest()
    return found


def lay_out(revision, folder):
    """Put a revision's package into a folder as it is installed, and return the folder."""
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
    return assemble(Path(folder), Path(folder))


def assemble(tree, folder):
    """Link a tree's source folders into one package in a folder's ``path``, and return that."""
    package = folder / "path" / "tilesolve"
    package.mkdir(parents=True)
    for source in (tree / "tilesolve").iterdir():
        (package / source.name).symlink_to(source)
    for name in FOLDERS:
        (package / name).symlink_to(tree / name)
    return package.parent


def write_part(path, part, every):
    """Return what a tree gives for one part, from a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(path), "TILESOLVE_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, __file__, "--write", part, "--every", str(every)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def equals(name, old, new):
    """Return whether a field's two texts say the same."""
    if name not in CONTINUOUS or new is None:
        return old == new
    return nearly_equals(json.loads(old), json.loads(new))


def nearly_equals(old, new):
    """Return whether two nested lists are equal but for the last digits of numbers."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(nearly_equals, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return isclose(old, new, rel_tol=1e-6, abs_tol=1e-9)
    return old == new


def differences(before, after):
    """Return a line for each plan or kernel that is not the same in both, or is in one only."""
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            found.append(f"{key}: only {'after' if old is None else 'before'}")
        elif isinstance(old, str):
            found += [f"{key}: other code"] if old != new else []
        else:
            parts = [
                name
                for name, value in old.items()
                if not equals(name, value, new.get(RENAMED.get(name, name)))
            ]
            if parts:
                found.append(f"{key}: {', '.join(parts)}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", nargs="?", help="what the working tree is compared with")
    parser.add_argument("--machine", help="a machine file instead of the machine in force")
    parser.add_argument("--every", type=int, default=1, help="look at one of so many problems")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write is not None:
        part = given.write
        print(json.dumps(kernels() if part == "kernels" else plans(part, given.every)))
        return
    if given.revision is None:
        parser.error("name a revision")
    parts = ["kernels", *MACHINES[:-1], given.machine or MACHINES[-1]]
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        trees = (lay_out(given.revision, old), assemble(ROOT, Path(new)))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            jobs = [
                (part, [pool.submit(write_part, tree, part, given.every) for tree in trees])
                for part in parts
            ]
            found, count = [], 0
            for part, pair in jobs:
                before, after = (job.result() for job in pair)
                count += len(before)
                found += differences(before, after)
                print(f"{part or 'the machine in force'}: {len(before)} compared", file=sys.stderr)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} of {count} differ")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
