"""Where files are, and that writing them never loses what was there."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import platformdirs
import pytest
from patience import PATIENCE

import tilesolve
from tilesolve import contractions, kernels, packing
from tilesolve.contractions.errors import FileAccessError, SettingError, TilesolveWarning
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.places import machine_file
from tilesolve.system import files
from tilesolve.system.files import (
    check_writable,
    hold_lock,
    read_regular,
    warn_once,
    write_atomically,
)


def start(code, *arguments):
    """Start a Python process that talks over pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_folders(tmp_path, monkeypatch):
    """The folders are the platform's, unless the environment names others."""
    for name, function in (("CONFIG", files.config_dir), ("CACHE", files.cache_dir)):
        variable = f"TILESOLVE_{name}_DIR"
        usual = getattr(platformdirs, f"user_{name.lower()}_dir")("tilesolve", appauthor=False)
        monkeypatch.delenv(variable, raising=False)
        assert function() == Path(usual)
        monkeypatch.setenv(variable, "")
        assert function() == Path(usual)
        monkeypatch.setenv(variable, str(tmp_path / name))
        assert function() == tmp_path / name
        monkeypatch.setenv(variable, "relative")
        monkeypatch.chdir(tmp_path)
        assert function() == tmp_path / "relative"


def test_machine_file_is_of_this_cpu(tmp_path, monkeypatch):
    """Each kind of CPU has a machine file of its own in the settings folder."""
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path))
    assert machine_file().parent == tmp_path / "machines"
    assert machine_file().name.endswith(f"-{detect_cpu().fingerprint}.toml")


def test_settings_are_declared():
    """Every TILESOLVE_ variable that the source names is declared, and no other can be read."""
    named = set()
    for package in (tilesolve, contractions, kernels, packing):
        for path in Path(package.__file__).parent.rglob("*.py"):
            named |= set(re.findall(r"TILESOLVE_[A-Z_]*[A-Z]", path.read_text()))
    assert named == set(files.SETTINGS)
    with pytest.raises(KeyError):
        files.read_setting("TILESOLVE_TYPO")


@pytest.mark.parametrize(
    ("words", "on"),
    [
        (("", " ", "on", "1", "yes", "true", "True", "ON "), True),
        (("off", "0", "no", "false", "Off", "FALSE", " no"), False),
    ],
)
def test_switches(monkeypatch, words, on):
    """Whatever the case and the blanks; nothing else is taken for either."""
    monkeypatch.delenv("TILESOLVE_CACHE", raising=False)
    assert files.is_switched_on("TILESOLVE_CACHE")
    for word in words:
        monkeypatch.setenv("TILESOLVE_CACHE", word)
        assert files.is_switched_on("TILESOLVE_CACHE") is on
    for word in ("of", "disable", "2", "-"):
        monkeypatch.setenv("TILESOLVE_CACHE", word)
        with pytest.raises(SettingError, match=f"TILESOLVE_CACHE must be on or off, got '{word}'"):
            files.is_switched_on("TILESOLVE_CACHE")


def test_write(tmp_path):
    """Text is written as it is, folders are made, and only the file itself remains."""
    path = tmp_path / "a" / "b" / "file.toml"
    for text in ("first\n", "", "größer\r\n" * 1000):
        write_atomically(path, text)
        assert path.read_bytes() == text.encode()
        assert list(path.parent.iterdir()) == [path]


def test_write_keeps_link(tmp_path):
    """A symbolic link stays one; what it points to is written."""
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_write_has_the_usual_permissions(tmp_path):
    """The file is as readable as one that open() makes."""
    write_atomically(tmp_path / "ours", "text")
    (tmp_path / "usual").write_text("text")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_unwritable_folder(tmp_path):
    """A file in the place of a folder is an error that names both paths; it stays as it is."""
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file" / "m.toml", tmp_path / "file" / "deep" / "m.toml"):
        with pytest.raises(FileAccessError, match=r"cannot write .*m\.toml: .*file"):
            write_atomically(path, "text")
        with (
            pytest.raises(FileAccessError, match=r"cannot lock .*m\.toml\.lock: .*file"),
            hold_lock(path),
        ):
            pass
    assert (tmp_path / "file").read_text() == "kept"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_folder_in_the_way(tmp_path):
    """A folder in the place of the file is an error, and no other file is left."""
    (tmp_path / "m.toml").mkdir()
    with pytest.raises(FileAccessError, match=r"cannot write .*m\.toml: Is a directory"):
        write_atomically(tmp_path / "m.toml", "text")
    assert list(tmp_path.iterdir()) == [tmp_path / "m.toml"]


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_no_file_takes_the_place_of_a_pipe(tmp_path, name):
    """What is no file, itself or behind a link, stays what it is, and is refused beforehand."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for refuses in (check_writable, lambda path: write_atomically(path, "text")):
        with pytest.raises(FileAccessError, match=f"cannot write .*{name}: not a regular file"):
            refuses(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / name)


def test_what_can_be_written_is_known_beforehand(tmp_path, monkeypatch):
    """Of folders that are missing the nearest one that exists counts, and nothing is made."""
    (tmp_path / "file").touch()
    for path in ("file", "new", "a/b/new"):
        check_writable(tmp_path / path)
    with pytest.raises(FileAccessError, match=r"cannot write .*new: .*file cannot be written"):
        check_writable(tmp_path / "file" / "a" / "new")
    with pytest.raises(FileAccessError, match="File name too long"):
        check_writable(tmp_path / ("x" * 5000))

    def fail(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(FileAccessError, match=f"{tmp_path} cannot be written: No space left"):
            check_writable(tmp_path / "a" / "b" / "new")
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    with pytest.raises(FileAccessError, match=f"{tmp_path} cannot be written"):
        check_writable(tmp_path / "a" / "b" / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("error", "seen", "message"),
    [
        (OSError(28, "No space left on device"), FileAccessError, r"m\.toml: No space left"),
        (KeyboardInterrupt("Ctrl-C"), KeyboardInterrupt, "Ctrl-C"),
    ],
)
def test_stopped_write(tmp_path, monkeypatch, call, error, seen, message):
    """Whatever stops a write, the old text stays and no temporary file does."""
    path = tmp_path / "m.toml"
    path.write_text("old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(seen, match=message):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_killed_between_write_and_rename(tmp_path):
    """A process killed after writing and before renaming leaves the old file whole."""
    path = tmp_path / "m.toml"
    path.write_text("old")
    code = """
import os, signal, sys
from tilesolve.system.files import write_atomically
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(sys.argv[1], "new")
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    write_atomically(path, "newer")
    assert path.read_text() == "newer"


def test_two_calibrations(tmp_path):
    """A second process cannot lock the file until the first ends, even if it is killed."""
    path = tmp_path / "deep" / "m.toml"
    code = """
import sys
from tilesolve.system.files import hold_lock
with hold_lock(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""
    with start(code, path) as child:
        try:
            assert child.stdout.readline() == "locked\n"
            with (
                pytest.raises(FileAccessError, match="another process is measuring"),
                hold_lock(path),
            ):
                pass
        finally:
            child.kill()
            child.wait(PATIENCE)
    with hold_lock(path):
        assert not path.exists()


def test_lock_is_released(tmp_path):
    """A lock ends with its block, also after an error in it, and is no lock of another file."""
    path = tmp_path / "m.toml"
    with (
        pytest.raises(ZeroDivisionError),
        hold_lock(path),
        hold_lock(tmp_path / "other.toml"),
    ):
        raise ZeroDivisionError
    with hold_lock(path), pytest.raises(FileAccessError), hold_lock(path):
        pass


def test_readers_never_see_half_a_file(tmp_path):
    """A reader beside a writer always finds one whole text."""
    path = tmp_path / "m.toml"
    texts = {letter * 100_000 for letter in "ab"}
    write_atomically(path, min(texts))
    ended = threading.Event()

    def write():
        for _ in range(20):
            for text in texts:
                write_atomically(path, text)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    found = set()
    while not ended.is_set():
        found.add(path.read_text())
    writer.join()
    assert found <= texts


def test_warn_once():
    """A message is a warning the first time, and whoever called the library is blamed for it."""
    library = {"warn_once": warn_once, "__name__": "tilesolve.library"}
    code = """
def load():
    warn_once("the file is foreign")
    warn_once("the file is foreign")

def plan():
    load()
"""
    exec(compile(code, "library.py", "exec"), library)
    with pytest.warns(TilesolveWarning, match="the file is foreign") as caught:
        library["plan"]()
    assert [warning.filename for warning in caught] == [__file__]
