"""What the doctor finds, and what it tells to do."""

import json
import os
import re
import sys
import tomllib
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from commands import run_python
from rich.console import Console

from tilesolve.contractions.errors import TilesolveWarning
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.file import save_machine
from tilesolve.machine.model import Machine
from tilesolve.machine.places import machine_file
from tilesolve.show import doctor
from tilesolve.show.console_tables import console
from tilesolve.show.doctor import EXTRAS, Diagnosis, Row, Section, diagnose, print_diagnosis
from tilesolve.system import files
from tilesolve.system.files import write_atomically
from tilesolve.system.tables import Table
from tilesolve.system.trust import NOWHERE
from tilesolve.system.units import format_size

ROOT = Path(__file__).parent.parent.parent


def rows(found, what):
    return [row for section in found.sections for row in section.rows if row.what == what]


def row(found, what):
    (only,) = rows(found, what)
    return only


def printed(found):
    stream = StringIO()
    print_diagnosis(found, console(stream))
    return stream.getvalue()


def test_healthy():
    """Where all is installed the report is healthy, and still advises to calibrate."""
    found = diagnose()
    assert [each for section in found.sections for each in section.rows if each.bad] == []
    assert found.healthy
    assert row(found, "machine in force").source == "detection"
    assert row(found, "machine in force").mend == "tilesolve calibrate"
    assert row(found, "machine file").source == "not calibrated yet"
    assert "All that is needed is there." in printed(found)


@pytest.mark.parametrize(
    "name",
    ["numpy", "numba", "llvmlite", "scipy", "pyomo", "networkx", "opt_einsum", "threadpoolctl"],
)
def test_versions(name):
    """The versions are those that the modules themselves give."""
    assert row(diagnose(), name).value == __import__(name).__version__


@pytest.mark.parametrize("name", ["numba", "pyomo"])
def test_needed_module_missing(monkeypatch, name):
    """A needed module that is missing makes the report unhealthy and names the command."""
    monkeypatch.setitem(sys.modules, name, None)
    found = diagnose()
    assert not found.healthy
    assert row(found, name).bad
    assert row(found, name).source == "missing"
    assert row(found, name).mend == f"pip install --force-reinstall {name}"


def test_all_extras_are_told():
    """Those whose modules the library itself imports; others are for examples and peers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (own,) = re.findall(r"\[(.*)\]", project["optional-dependencies"]["dev"][0])
    assert {*own.split(",")} - {"ecosystem"} == {*EXTRAS.values()}
    assert all(row(diagnose(), name).source.startswith("optional, ") for name in EXTRAS)


@pytest.mark.parametrize(("name", "extra"), EXTRAS.items())
def test_extra_missing(monkeypatch, name, extra):
    """A missing extra is told, but nothing needed is missing."""
    monkeypatch.setitem(sys.modules, name, None)
    found = diagnose()
    assert found.healthy
    assert row(found, name).source == "optional, missing"
    assert row(found, name).mend == f"pip install 'tilesolve[{extra}]'"


def test_broken_module(monkeypatch, tmp_path):
    """A module that is installed but cannot be imported is broken, whatever it raises."""
    monkeypatch.delitem(sys.modules, "networkx", raising=False)
    (tmp_path / "networkx.py").write_text("raise OSError('libodd.so: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    broken = row(diagnose(), "networkx")
    assert broken.bad
    assert broken.source == "broken"
    assert "libodd.so" in broken.value


def test_ipopt_works():
    """IPOPT's row has its version and says that it solved a problem."""
    import cyipopt

    found = row(diagnose(), "IPOPT")
    assert found.value.startswith(".".join(map(str, cyipopt.IPOPT_VERSION)) + " ")
    assert found.source == "solved a test"
    assert not found.bad


class Solver:
    """A cyipopt whose answer is chosen."""

    IPOPT_VERSION = (3, 14, 0)
    __version__ = "0"

    def __init__(self, answer, error="undefined symbol"):
        self.answer, self.error = answer, error

    def Problem(self, **_):  # noqa: N802 - cyipopt's name
        if self.answer is None:
            raise RuntimeError(self.error)
        return SimpleNamespace(
            add_option=lambda *_: None,
            solve=lambda _: ([self.answer], {"status_msg": b"stopped"}),
        )


@pytest.mark.parametrize(
    ("solver", "state", "text"),
    [
        (None, "missing", "not installed"),
        (Solver(None), "broken", "does not run: undefined symbol"),
        (Solver(None, "failed to map segment"), "broken", "does not run: failed to map"),
        (Solver(0.5), "broken", "3.14.0 answers 0.5, not 2: b'stopped'"),
        (Solver(float("nan")), "broken", "3.14.0 answers nan"),
        (Solver(2.0), "solved a test", "3.14.0"),
    ],
)
def test_ipopt_broken(monkeypatch, solver, state, text):
    """An IPOPT that is missing, does not start, or answers wrongly is told apart."""
    monkeypatch.setitem(sys.modules, "cyipopt", solver)
    found = row(diagnose(), "IPOPT")
    assert found.source == state
    assert text in found.value
    assert found.bad == (state != "solved a test")
    again = (
        "ulimit -v" if "failed to map" in text else "pip install --force-reinstall cyipopt-wheels"
    )
    assert (again in found.mend) == found.bad
    assert ("install" in found.mend) == (found.bad and "install" in again)


def test_levels_have_sources(monkeypatch):
    """Each level is shown with the source of its figures."""
    monkeypatch.setenv("TILESOLVE_MACHINE", "i7-6700k")
    found = diagnose()
    assert row(found, "machine in force") == Row(
        "machine in force", "i7-6700k", "TILESOLVE_MACHINE"
    )
    published = [each for each in rows(found, "L2") if each.source == "published"]
    assert [each.value for each in published] == ["256 KiB, 76.94 GB/s (18.32 B/cycle)"]
    assert row(found, "peak float64, 256 bits").source == "published"


def test_all_figures_of_a_measured_machine(home, monkeypatch):
    """Whatever has been measured of a level is shown."""
    machine = Machine.load("i7-6700k")
    level = machine.levels[0]
    figures = {
        "effective": 0.75,
        "read": 91e9,
        "stream": 92e9,
        "bandwidth_all": 93e9,
        "inclusive": False,
        "start": 2.5e-9,
        "part": 8.5e-9,
    }
    changed = type(level)(level.name, level.capacity, level.bandwidth, 64, 8, 3, **dict(figures))
    sources = [(f"L1.{name}", "measured") for name in (*figures, "bandwidth")]
    path = home / "m.toml"
    path.write_text(
        machine.replace(levels=(changed, *machine.levels[1:]), sources=tuple(sources)).to_toml()
    )
    monkeypatch.setenv("TILESOLVE_MACHINE", str(path))
    texts = {each.source: each.value for each in rows(diagnose(), "L1")}
    assert set(texts) == {"measured", "given", "assumed"}
    for text in (
        "75% effective",
        "read only 91",
        "non-temporal stores 92",
        "all cores 93",
        "victim cache",
        "a run starts in 2.5 ns",
        "a run amid lines costs 8.5 ns",
    ):
        assert text in texts["measured"]
    assert "32 KiB, lines of 64 B, 8 ways, shared by 3" in texts["given"]
    assert texts["assumed"] == "20 lines fetched ahead at most, 2 for each access"


def test_calibrated():
    """A whole calibrated file of this CPU is in force, and nothing is left to advise."""
    calibrated = Machine.load("i7-6700k").replace(name="mine", fingerprint=detect_cpu().fingerprint)
    write_atomically(machine_file(), calibrated.to_toml())
    found = diagnose()
    assert row(found, "machine in force") == Row("machine in force", "mine", "calibrated file")
    assert row(found, "machine file") == Row("machine file", str(machine_file()), "measured")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("format =", "not valid TOML"), (None, "measured on another CPU")],
)
@pytest.mark.parametrize("chosen", ["", "i7-6700k"])
def test_damaged_machine_file(monkeypatch, text, reason, chosen):
    """A damaged or foreign calibrated file is unhealthy, also while another machine is in force."""
    monkeypatch.setenv("TILESOLVE_MACHINE", chosen)
    write_atomically(machine_file(), text or Machine.load("i7-6700k").to_toml())
    found = diagnose()
    assert not found.healthy
    assert row(found, "machine file").mend == "tilesolve calibrate"
    assert reason in row(found, "machine file").value
    assert row(found, "machine in force").source == ("TILESOLVE_MACHINE" if chosen else "detection")
    assert "! machine file: tilesolve calibrate\n" in printed(found)


@pytest.mark.parametrize(
    ("setting", "what", "value"),
    [
        ("MACHINE", "machine in force", "nowhere"),
        ("NUM_THREADS", "threads in force", "many"),
        ("CACHE", "plans are kept", "none"),
        ("CACHE_LIMIT", "bound of the cache", "much"),
    ],
)
def test_broken_settings(monkeypatch, setting, what, value):
    """What is none is a row with a command, and the rest is reported."""
    monkeypatch.setenv(f"TILESOLVE_{setting}", value)
    found = diagnose()
    assert not found.healthy
    assert row(found, what).mend == f"unset TILESOLVE_{setting}"
    assert value in row(found, what).value
    assert row(found, f"TILESOLVE_{setting}").value == value


def test_settings_in_force(monkeypatch):
    """The threads and why, whether plans are kept, and the bound of the cache."""
    assert row(diagnose(), "threads in force") == Row("threads in force", "1", "none are named")
    assert row(diagnose(), "plans are kept").value == "yes"
    assert row(diagnose(), "bound of the cache").value == "512 MiB"
    monkeypatch.setenv("TILESOLVE_NUM_THREADS", "3")
    monkeypatch.setenv("TILESOLVE_CACHE", "OFF")
    found = diagnose()
    assert row(found, "threads in force") == Row("threads in force", "3", "TILESOLVE_NUM_THREADS")
    assert row(found, "plans are kept") == Row("plans are kept", "no")


def test_settings(monkeypatch):
    """All settings are listed with what they do; one that nothing reads is pointed out."""
    monkeypatch.setenv("TILESOLVE_NUMTHREADS", "3")
    found = diagnose()
    for name, meaning in files.SETTINGS.items():
        assert row(found, name).source == meaning
    assert row(found, "TILESOLVE_CACHE_DIR").value == os.environ["TILESOLVE_CACHE_DIR"]
    assert row(found, "TILESOLVE_MACHINE").value == "not set"
    assert row(found, "TILESOLVE_NUMTHREADS").mend == "unset TILESOLVE_NUMTHREADS"
    assert found.healthy


def test_folders(home, monkeypatch):
    """Folders are shown with their sizes, and machine files of other CPUs are counted."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "own"))
    assert row(diagnose(), "cache folder").source == "not made yet"
    write_atomically(home / "own" / "deep" / "code", "x" * 3000)
    write_atomically(machine_file().with_name("other-0123.toml"), "x" * 10)
    found = diagnose()
    assert row(found, "cache folder") == Row("cache folder", str(home / "own"), "2.93 KiB")
    assert row(found, "settings folder").source == "10 B"
    assert row(found, "machine files of other CPUs").value == "1"


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_folder_that_cannot_be_written(home, monkeypatch, below):
    """A folder of temporary files serves instead, if there is one; the report says what helps."""
    (home / "file").write_text("")
    (home / "file").chmod(0o755)
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "file" / below))
    for private, source in ((home, f"{home} serves instead"), (NOWHERE, "damaged")):
        monkeypatch.setattr(doctor, "private_folder", lambda private=private: private)
        found = row(diagnose(), "cache folder")
        assert (found.source, found.bad) == (source, private == NOWHERE)
        assert "export TILESOLVE_CACHE_DIR=" in found.mend


@pytest.mark.parametrize(
    ("text", "value", "mended"),
    [
        ("always [madvise] never\n", "madvise", False),
        ("always madvise [never]\n", "never", True),
        ("odd\n", "unknown", False),
        (None, "unknown", False),
    ],
)
def test_huge_pages(home, text, value, mended):
    """The mode of huge pages is shown; where they are off, the command that turns them on."""
    path = home / "sys/kernel/mm/transparent_hugepage/enabled"
    path.parent.mkdir(parents=True)
    if text:
        path.write_text(text)
    (home / "sys/devices/system/cpu/cpu0/cache").mkdir(parents=True)
    found = row(diagnose(root=home / "sys"), "huge pages")
    assert found.value == value
    assert bool(found.mend) == mended
    assert not found.bad


def test_json_has_everything():
    """The JSON form holds every row, and survives a round trip."""
    found = diagnose()
    data = json.loads(json.dumps(found.to_dict()))
    assert data["healthy"] is True
    again = Diagnosis(
        tuple(
            Section(part["title"], tuple(Row(**each) for each in part["rows"]))
            for part in data["sections"]
        )
    )
    assert again == found


def test_render_uncut():
    """What is printed to no terminal has every value whole, in plain text, brackets included."""
    long = "a[h+r] " + "x" * 3000
    found = Diagnosis((Section("tea", (Row("cup", long, "given", "drink [now]", True),)),))
    text = printed(found)
    assert long in text
    assert "! cup: drink [now]\n" in text
    assert "\x1b" not in text
    assert "needed is missing or damaged" in text


def test_narrow_terminal_cuts_nothing():
    """A table in a narrow terminal folds its cells, and takes no text for markup."""
    stream = StringIO()
    narrow = Console(file=stream, width=30, force_terminal=True, color_system=None)
    narrow.print(Table("", {"what": "left", "value": "left"}, [("[h+r]", "0123456789" * 9)]))
    assert "[h+r]" in stream.getvalue()
    assert len(re.findall(r"\d", stream.getvalue())) == 90


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (48 * 1024, "48 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_size(count, text):
    """Bytes are shown in the largest unit that makes at least one."""
    assert format_size(count) == text


UNREADABLE = """
import os, sys, warnings
from tilesolve.show.doctor import diagnose

diagnose()  # loads everything, which takes seconds
warnings.filterwarnings("ignore", "This process .* is multi-threaded")
for folder in sys.argv[1:]:
    print("of a folder", flush=True)
    if os.fork():
        assert os.wait()[1] == 0
        continue
    warnings.simplefilter("error")
    os.environ |= {"TILESOLVE_CONFIG_DIR": folder, "TILESOLVE_CACHE_DIR": folder}
    if os.geteuid() == 0:
        os.setuid(12345)  # root may read everything
    found = diagnose()
    for section in found.sections:
        for row in section.rows:
            if row.bad or row.mend.startswith("export"):
                print(row.what, row.mend, row.bad, sep=": ")
    break
"""


def test_folders_that_cannot_be_used():
    """All works from a folder of temporary files; the report says which lines better it.

    Whether an unreadable folder has a machine file, nobody knows.
    """
    cases = [(0o000, ""), (0o000, "deep/er"), (0o555, "deep/er")]
    with TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        folders = [Path(above) / f"closed{at}" for at in range(len(cases))]
        for folder, (mode, _) in zip(folders, cases, strict=True):
            folder.mkdir(mode=mode)
        asked = [str(folder / below) for folder, (_, below) in zip(folders, cases, strict=True)]
        done = run_python("-c", UNREADABLE, *asked)
    assert done.returncode == 0, done.stderr
    expected = {
        f"{what} folder: export TILESOLVE_{variable}_DIR=<a folder that can be written>: False"
        for what, variable in (("settings", "CONFIG"), ("cache", "CACHE"))
    }
    found = done.stdout.split("of a folder\n")[1:]
    for lines, (mode, _) in zip(found, cases, strict=True):
        unreadable = set() if mode else {"machine file: tilesolve calibrate: True"}
        assert set(lines.splitlines()) == expected | unreadable


def test_full_folders(monkeypatch):
    """Only writing shows that there is no room."""

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    found = diagnose()
    assert not found.healthy
    for what in ("settings folder", "cache folder"):
        assert row(found, what).value.endswith("cannot be written: No space left on device")
        assert row(found, what).mend.startswith("export TILESOLVE_")


@pytest.mark.parametrize("what", ["settings", "cache"])
def test_folders_that_others_can_write(monkeypatch, what):
    """The command that mends it is in the row."""
    folder = files.config_dir() if what == "settings" else files.cache_dir()
    folder.mkdir(exist_ok=True)
    folder.chmod(0o775)
    found = row(diagnose(), f"{what} folder")
    assert found.bad
    assert f"chmod go-w {folder}" in found.value


def test_a_machine_file_that_was_changed():
    """It is no fault, and both ways on are told."""
    calibrated = Machine.load("i7-6700k").replace(name="mine", fingerprint=detect_cpu().fingerprint)
    save_machine(machine_file(), calibrated.to_toml())
    assert row(diagnose(), "machine file").source == "measured"
    machine_file().write_text(machine_file().read_text().replace('"mine"', '"ours"'))
    with pytest.warns(TilesolveWarning, match="was changed after it was measured"):
        found = diagnose()
    assert found.healthy
    assert row(found, "machine file").source == "changed after it was measured"
    assert row(found, "machine file").mend.startswith("tilesolve calibrate; or")
