"""Use an installed tilesolve as a newcomer would: run it with the Python that it is installed in.

`make lint` runs this in an empty environment, from outside the checkout. It ends with status 0 if
the package is whole and works there, and says what does not hold otherwise.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path


def check(holds, what):
    """End with an error unless something holds; unlike an assertion, -O does not remove this."""
    if not holds:
        sys.exit(f"outside.py: {what}")


def check_package():
    """The package comes from site-packages, with its data files."""
    import tilesolve
    from tilesolve.contractions.suites import list_suites

    here = Path(tilesolve.__file__).resolve()
    site = Path(sysconfig.get_path("purelib")).resolve()
    check(here.is_relative_to(site), f"{here} is not in {site}")
    check(tilesolve.__version__ == version("tilesolve"), "the version is not the distribution's")
    package = files("tilesolve")
    for path in (
        "py.typed",
        *(f"machine/data/{name}.toml" for name in ("e5-2680v4", "i7-6700k")),
        *(f"contractions/suites/{name}.toml" for name in list_suites()),
    ):
        check(package.joinpath(path).is_file(), f"{path} is not in the package")


def check_library():
    """Specs, suites, plans and the reference work."""
    import numpy as np

    from tilesolve import Machine, Plan, Problem, Spec, plan, reference, suite

    spec = Spec.parse("abcd-aebf-dfce")
    check(spec == Spec.parse("aebf,dfce->abcd"), "the two forms of a spec differ")
    check(len(suite("tccg")) == 36, "the suite tccg is not whole")
    check(Machine.detect().caches, "no cache was detected")

    found = plan(spec, 24, "e5-2680v4")
    check(found.seconds > 0, "a plan takes no time")
    kept = list((Path(os.environ["TILESOLVE_CACHE_DIR"]) / "plans").glob("*.json"))
    check(len(kept) == 1, f"one plan was solved, {len(kept)} are kept")
    check(Plan.from_json(kept[0].read_text()).seconds == found.seconds, "another plan was kept")

    small = plan("ik-ij-jk", 9, "e5-2680v4")
    check((small(np.ones((9, 9)), np.ones((9, 9))) == 9).all(), "a plan computes something else")

    problem = Problem.of(spec, {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 7})
    draw = np.random.default_rng(0).standard_normal
    first, second = (draw(tensor.shape(problem.sizes)) for tensor in spec.operands)
    expected = np.einsum("aebf,dfce->abcd", first, second)
    check(np.allclose(reference(problem, first, second), expected), "reference is not einsum")


def check_command():
    """The command runs as a module and as a script, and the doctor finds nothing missing."""
    script = Path(sysconfig.get_path("scripts")) / "tilesolve"
    for command, answer in (
        ([sys.executable, "-m", "tilesolve", "doctor"], "All that is needed is there."),
        ([script, "suites"], "yolo9000"),
        ([script, "plan", "ij-ik-kj", "24", "--machine", "i7-6700k"], "bound by"),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        shown = f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
        check(done.returncode == 0 and answer in done.stdout, shown)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in [name for name in os.environ if name.startswith("TILESOLVE_")]:
            del os.environ[name]
        os.environ["TILESOLVE_CONFIG_DIR"] = f"{folder}/config"
        os.environ["TILESOLVE_CACHE_DIR"] = f"{folder}/cache"
        check_package()
        check_library()
        check_command()


if __name__ == "__main__":
    main()
