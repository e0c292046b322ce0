"""The command line: what it prints, where, and its exit status."""

import json
import os
import signal
import subprocess
import sys

import pytest
from commands import invoke, run_python
from patience import PATIENCE

from tilesolve import __version__, suite
from tilesolve.contractions.suites import list_suites
from tilesolve.machine.model import Machine
from tilesolve.machine.places import machine_file
from tilesolve.system.files import write_atomically


def test_version():
    """--version prints the version."""
    done = invoke("--version")
    assert (done.exit_code, done.stdout) == (0, f"tilesolve {__version__}\n")


def test_help_lists_commands():
    """--help lists each command."""
    done = invoke("--help")
    assert done.exit_code == 0
    for command in ("doctor", "machine", "suites"):
        assert command in done.stdout


def test_module_is_the_command():
    """``python -m tilesolve`` is the command."""
    assert run_python("-m", "tilesolve", "--version").stdout == f"tilesolve {__version__}\n"


def test_unknown_command():
    """A wrong command or option exits with 2 and says so on stderr only."""
    for wrong in ("calibrat", "--nope"):
        done = invoke(wrong)
        assert done.exit_code == 2
        assert wrong in done.stderr
        assert not done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import tilesolve",
        "import tilesolve.machine.model",
        "import tilesolve; tilesolve.nest('o[x] = A[x] + 1', 8)",
        "--help",
    ],
)
def test_quick_start(statement):
    """Import, a small plan and --help load no compiler, solver or plotting library."""
    code = "import sys\n" + (
        "sys.argv = ['tilesolve', '--help']\n"
        "from tilesolve.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        if statement == "--help"
        else statement
    )
    heavy = {"numba", "llvmlite", "pyomo", "scipy", "cyipopt", "networkx", "matplotlib", "cpuinfo"}
    if "nest" in statement:  # what writes code is loaded, not what compiles it
        heavy = heavy - {"llvmlite"} | {"llvmlite.binding"}
    done = run_python("-c", code + "\nprint(); print(*sys.modules)", check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "tilesolve" in loaded
    assert not heavy & loaded
    if statement == "import tilesolve":
        assert not {"numpy", "rich", "typer"} & loaded


def test_plans_load_no_solver():
    """The interior point plans contractions, layers and statements: a solver takes a second."""
    code = (
        "import sys, numpy as np, tilesolve\n"
        "str(tilesolve.plan('abcd-aebf-dfce', 72, 'i7-6700k', cache=False))\n"
        "tilesolve.plan('nkhw-nc[h+r][w+s]-kcrs', 'n=1 k=64 h=56 w=56 c=64 r=3 s=3', 'i7-6700k')\n"
        "tilesolve.nest('C[i,j] += A[i,k] * A[j,k]', 64, 'int32')\n"
        "A = np.ones((600, 600))\n"
        "tilesolve.einsum('ij,jk->ik', A, A)\n"
        "tilesolve.expression('ij,jk->ik', (300, 300), (300, 300))(A[:300, :300], A[:300, :300])\n"
        "print(); print(*sys.modules)"
    )
    loaded = run_python("-c", code, check=True).stdout.splitlines()[-1].split()
    assert "tilesolve.planning.geometric.relaxation" in loaded
    assert not {"numba", "pyomo", "scipy", "cyipopt", "networkx", "matplotlib"} & set(loaded)


def test_suites_are_listed():
    """Without a name every suite is listed with the number of its problems."""
    done = invoke("suites")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    for name in list_suites():
        assert [name, str(len(suite(name)))] in lines


@pytest.mark.parametrize("name", list_suites())
def test_suite(name):
    """A suite's table has each problem whole: name, spec, sizes, and its work."""
    done = invoke("suites", name)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    for key, problem in suite(name).items():
        (line,) = [line for line in lines if line.split()[:1] == [key]]
        assert f" {problem.spec} " in line
        assert " ".join(f"{letter}={extent}" for letter, extent in problem.sizes.items()) in line
        assert f"{problem.flops / 1e9:.4g}" in line.split()
        assert line.split()[-1] == f"{problem.intensity:.4g}"


def test_unknown_suite():
    """A suite that does not exist is one line on stderr and exit status 2."""
    done = invoke("suites", "nowhere")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "nowhere" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


@pytest.mark.parametrize("arguments", [("machine", "no such"), ("machine",), ("suites", "no.toml")])
def test_errors_have_no_traceback(arguments):
    """An error of tilesolve's own is one line on stderr and exit status 2, no traceback."""
    done = run_python(
        "-m", "tilesolve", *arguments, env={**os.environ, "TILESOLVE_MACHINE": "missing.toml"}
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_machine_as_toml(home):
    """--toml prints a machine file that loads to the same machine."""
    done = invoke("machine", "e5-2680v4", "--toml")
    assert done.exit_code == 0
    assert Machine.from_toml(done.stdout) == Machine.load("e5-2680v4")
    (home / "copy.toml").write_text(done.stdout)
    again = invoke("machine", str(home / "copy.toml"), "--toml")
    assert again.stdout == done.stdout


def test_machine_in_force(monkeypatch):
    """Without a name the machine in force is shown."""
    assert Machine.from_toml(invoke("machine", "--toml").stdout) == Machine.detect()
    monkeypatch.setenv("TILESOLVE_MACHINE", "i7-6700k")
    done = invoke("machine")
    assert done.exit_code == 0
    assert "Machine i7-6700k" in done.stdout


def test_machine_table():
    """The table has each level's capacity, bandwidth per second and per cycle, and sources."""
    text = invoke("machine", "i7-6700k").stdout
    for figure in ("8 MiB", "81.31 GB/s (19.36 B/cycle)", "134.4 GFLOP/s", "published"):
        assert figure in text
    assert "non-temporal store" not in text.partition("Costs")[0]
    assert "read only" not in text


def test_machine_table_of_measurements(home):
    """What was measured besides the bandwidth has columns of its own."""
    machine = Machine.load("i7-6700k")
    levels = [
        type(level)(level.name, level.capacity, level.bandwidth, read=5e9, bandwidth_all=7e9)
        for level in machine.levels
    ]
    (home / "m.toml").write_text(machine.replace(levels=tuple(levels)).to_toml())
    text = invoke("machine", str(home / "m.toml")).stdout
    assert "read only" in text
    assert "5 GB/s (1.19 B/cycle)" in text
    assert "all cores" in text
    assert "non-temporal store" not in text.partition("Costs")[0]


def test_warning_is_one_line():
    """A damaged machine file is one line on stderr, and the command still answers."""
    write_atomically(machine_file(), "format =")
    done = run_python("-m", "tilesolve", "machine", "--toml")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: ")
    assert done.stderr.count("\n") == 1
    assert Machine.from_toml(done.stdout).fingerprint == Machine.detect().fingerprint


def test_doctor():
    """The doctor exits with 0 where all is there, and says so last."""
    done = invoke("doctor")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "All that is needed is there."
    assert not done.stderr


def test_doctor_finds_damage(monkeypatch):
    """The doctor exits with 1, without a traceback, if something is damaged."""
    write_atomically(machine_file(), "format =")
    monkeypatch.setenv("TILESOLVE_MACHINE", "nowhere")
    monkeypatch.setenv("TILESOLVE_NUM_THREADS", "0")
    done = run_python("-m", "tilesolve", "doctor")
    assert done.returncode == 1
    for command in ("tilesolve calibrate", "unset TILESOLVE_MACHINE"):
        assert command in done.stdout
    assert not done.stderr


def test_doctor_json(monkeypatch):
    """--json prints one JSON document, with the same exit status."""
    done = invoke("doctor", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["healthy"] is True
    monkeypatch.setenv("TILESOLVE_MACHINE", "nowhere")
    done = invoke("doctor", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["healthy"] is False


def test_pipe_is_plain():
    """Piped output has no colour codes, and is as wide as it needs to be."""
    done = run_python(
        "-m",
        "tilesolve",
        "suites",
        "tccg",
        env={**os.environ, "COLUMNS": "40", "TERM": "xterm-256color"},
    )
    assert "\x1b" not in done.stdout
    name, problem = max(suite("tccg").items(), key=lambda item: len(item[1].sizes))
    (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [name]]
    assert line.split()[1] == str(problem.spec)
    assert line.split()[-1] == f"{problem.intensity:.4g}"


def test_narrow_encoding(home):
    """A pipe that takes ASCII only gets other letters escaped, not an error."""
    text = """
format = 1
problems = [{ name = "greek", spec = "αβ-αγ-γβ", sizes = "α=2 β=3 γ=4" }]
"""
    (home / "mine.toml").write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run_python("-m", "tilesolve", "suites", str(home / "mine.toml"), env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u03b1\u03b2-\u03b1\u03b3-\u03b3\u03b2" in done.stdout


def test_closed_pipe():
    """A reader that stops early causes no traceback."""
    command = f"{sys.executable} -m tilesolve suites tccg | head -n 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("suites",), ("machine", "--toml"), ("suites", "--help"), ("--help",)]
)
def test_full_device(tmp_path, arguments):
    """Where standard output takes no more, that is one line on stderr and exit status 2."""
    code = f"""
import resource, signal
from tilesolve.cli import app
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # of a file, which then takes nothing
app({list(arguments)})
"""
    with (tmp_path / "full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "error: File too large\n")


def test_interrupt(monkeypatch):
    """Ctrl-C ends quietly with status 130."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Machine, "load", interrupt)
    done = invoke("machine")
    assert done.exit_code == 130
    assert not done.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_process(number):
    """A process that gets the signal in the middle of a command ends quietly with 130."""
    code = """
import sys, time
from tilesolve.__main__ import main
from tilesolve.machine.model import Machine
def wait(*_):
    print("waiting", flush=True)
    while True:  # a signal right before a sleep does not end it
        time.sleep(0.1)
Machine.load = wait
sys.argv = ["tilesolve", "machine"]
main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout.readline() == "waiting\n"
            child.send_signal(number)
            out, err = child.communicate(timeout=PATIENCE)
        finally:
            child.kill()
    assert (child.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_after_the_work_changes_nothing(number):
    """While Python takes itself apart, the status of a command stands."""
    code = f"""
import os, sys
from tilesolve.__main__ import main
class Late:
    def __del__(self, kill=os.kill, me=os.getpid()):
        kill(me, {int(number)})
sys.late = Late()
sys.argv = ["tilesolve", "--version"]
main()
"""
    found = run_python("-c", code, text=False)
    assert (found.returncode, found.stderr) == (0, b"")


GENERATED = """
from tilesolve.cli import app
from tilesolve.machine.model import Machine
Machine.load = lambda *_: exec("raise KeyboardInterrupt")
app(["machine"])
"""


@pytest.mark.parametrize(
    ("module", "text", "how"),
    [
        ("typer", "exec('raise KeyboardInterrupt')", ["-m", "tilesolve"]),
        (
            "typer",
            "exec('raise KeyboardInterrupt')",
            ["-c", "import tilesolve.__main__ as m; m.main()"],
        ),
        ("interrupted", GENERATED, ["-m", "interrupted"]),
    ],
)
def test_interrupted_among_imports(tmp_path, module, text, how):
    """Before the command is there, or amid the `exec` of a text, an interrupt ends as quietly."""
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    found = run_python(*how, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")


def test_other_errors_are_not_hidden(monkeypatch):
    """A fault of the program itself still shows where it is."""

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(Machine, "load", fail)
    assert isinstance(invoke("machine").exception, ZeroDivisionError)
