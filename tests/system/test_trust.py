"""Trust: what somebody else owns or could have changed is neither executed nor believed."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from warnings_told import forget_what_was_told

from tilesolve import Machine, plan
from tilesolve.contractions.errors import (
    FileAccessError,
    MachineError,
    PlanError,
    TilesolveWarning,
)
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.file import save_machine, was_changed
from tilesolve.machine.places import check_place, machine_file
from tilesolve.plans import cache as plan_cache
from tilesolve.plans.files import dump, load
from tilesolve.system import trust
from tilesolve.system.kept_objects import KEY, read_object, write_object
from tilesolve.system.trust import kept_folder, read_trusted

FOREIGN = 12345
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def own(home, monkeypatch):
    """A cache folder, and a private one in its place, of this test's own."""
    (home / "private").mkdir()
    monkeypatch.setattr(trust, "private_folder", lambda: home / "private")
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "cache"))
    return home / "cache"


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_not_read(tmp_path, what, mode):
    """Neither a file nor what is in a folder; the message names it and what mends it."""
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_text("x")
    assert read_trusted(path) == b"x"
    bad = path if what == "file" else path.parent
    bad.chmod(0o700 | mode)
    with pytest.raises(FileAccessError, match=f"'chmod go-w {bad}' mends that"):
        read_trusted(path)


@AS_ROOT
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_others_own_is_not_read(tmp_path, what):
    """Whatever its permissions."""
    path = tmp_path / "folder" / "file"
    path.parent.mkdir(mode=0o700)
    path.write_text("x")
    os.chown(path if what == "file" else path.parent, FOREIGN, -1)
    with pytest.raises(FileAccessError, match=f"{what} belongs to another user .number {FOREIGN}"):
        read_trusted(path)


def test_a_link_counts_for_what_it_points_to(tmp_path):
    """A linked file is judged itself; a pipe is no file, and nobody waits for its writer."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert read_trusted(tmp_path / "link") == b"x"
    (tmp_path / "file").chmod(0o666)
    with pytest.raises(FileAccessError, match="can be written by others"):
        read_trusted(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read_trusted(tmp_path / "pipe")


@pytest.mark.parametrize("below", ["", "code"])
def test_a_private_folder_takes_the_place_of_one_that_others_can_write(own, home, below):
    """A warning names it, once; nothing in it is used."""
    assert kept_folder("code") == own / "code"
    (own / "code").mkdir(parents=True)
    (own / below).chmod(0o775)
    with pytest.warns(TilesolveWarning, match=f"{own / below} can be written") as caught:
        assert {kept_folder("code") for _ in range(2)} == {home / "private" / "code"}
    assert len(caught) == 1


@AS_ROOT
def test_a_private_folder_takes_the_place_of_somebody_elses(own, home):
    """As where a home is kept by sudo."""
    own.mkdir()
    os.chown(own, FOREIGN, -1)
    with pytest.warns(TilesolveWarning, match=f"{own} belongs to another user"):
        assert kept_folder("plans") == home / "private" / "plans"


def test_the_private_folder_is_nobody_elses(tmp_path, monkeypatch):
    """Others may have put something in its place: then each process has its own."""
    monkeypatch.setattr(trust.tempfile, "tempdir", str(tmp_path))
    make = trust.private_folder.__wrapped__
    usual = tmp_path / f"tilesolve-{os.geteuid()}"
    usual.mkdir(mode=0o777)
    usual.chmod(0o777)
    assert make() == usual
    assert usual.stat().st_mode & 0o777 == 0o700
    usual.rmdir()
    usual.symlink_to(tmp_path)
    other = make()
    assert other not in (usual, tmp_path)
    assert other.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(trust.tempfile, "tempdir", str(tmp_path / "nothing"))
    assert make() == trust.NOWHERE


@pytest.mark.parametrize(
    ("damage", "warning"),
    [
        (lambda content: content[:-1], "is damaged"),
        (lambda content: b"", "is damaged"),
        (lambda content: b"#" + content[1:], "is damaged"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "is damaged"),
        (lambda content: content[:60] + bytes([content[60] ^ 1]) + content[61:], "not made here"),
    ],
)
def test_damaged_and_foreign_objects_are_told_apart(tmp_path, damage, warning):
    """Neither is used, and a new one takes its place."""
    path = tmp_path / "code" / "a.o"
    assert read_object(path) is None
    write_object(path, b"code")
    assert read_object(path) == b"code"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(TilesolveWarning, match=f"a.o (.*{warning}|{warning})"):
        assert read_object(path) is None
    write_object(path, b"code")
    assert read_object(path) == b"code"


def test_objects_that_changed_places_are_foreign(tmp_path):
    """The name is part of what is signed."""
    names = [tmp_path / "a.o", tmp_path / "b.o"]
    for path in names:
        write_object(path, path.name.encode())
    names[0].rename(tmp_path / "c.o")
    names[1].rename(names[0])
    with pytest.warns(TilesolveWarning, match="has another name"):
        assert read_object(names[0]) is None


@pytest.mark.parametrize("state", ["missing", "cut", "known"])
def test_objects_of_another_key_are_foreign(tmp_path, state):
    """So they are if the key is gone, cut short, or was to be read by others."""
    path, key = tmp_path / "code" / "a.o", tmp_path / "code" / KEY
    write_object(path, b"code")
    assert key.stat().st_mode & 0o777 == 0o600
    first = key.read_bytes()
    if state == "missing":
        key.unlink()
    elif state == "cut":
        key.write_bytes(first[:5])
    else:
        key.chmod(0o644)
    with pytest.warns(TilesolveWarning, match="not made here"):
        assert read_object(path) is None
    write_object(path, b"code")
    assert key.read_bytes() != first
    assert read_object(path) == b"code"
    assert sorted(found.name for found in key.parent.iterdir()) == ["a.o", KEY, f"{KEY}.lock"]


def test_all_that_begin_at_once_have_one_key(tmp_path):
    """Each reads what the others have written."""
    paths = [tmp_path / "code" / f"{number}.o" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: write_object(path, b"code"), paths))
    assert [read_object(path) for path in paths] == [b"code"] * 16


def test_where_no_object_can_be_kept_a_warning_says_so(tmp_path):
    """Nothing else happens."""
    (tmp_path / "file").touch()
    with pytest.warns(TilesolveWarning, match="each process compiles again"):
        write_object(tmp_path / "file" / "a.o", b"code")


def test_files_are_the_users_alone_whatever_the_mask(tmp_path):
    """Where new files can be written by the group, those that are kept cannot."""
    code = (
        "import os, sys; os.umask(0o002); os.environ['TILESOLVE_CACHE_DIR'] = sys.argv[1]\n"
        "import tilesolve; tilesolve.plan('ab-ac-cb', 8, 'i7-6700k')"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, tmp_path / "a" / "b"], check=True)
    found = list((tmp_path / "a").rglob("*"))
    assert len(found) >= 3
    assert [path for path in found if path.stat().st_mode & 0o022] == []


@pytest.mark.filterwarnings("error")
def test_a_changed_plan_is_refused():
    """Unless its checksum was removed: then it is as good as one written by hand."""
    solution = plan("ab-ac-cb", 64, "i7-6700k", cache=False).solution
    text = dump(solution)
    assert load(text) == solution
    changed = text.replace('"threads": 1', '"threads": 2')
    with pytest.raises(PlanError, match="its checksum is another"):
        load(changed)
    head, _, _ = changed.rpartition(', "checksum"')
    assert load(head + "}").threads == 2


@pytest.mark.parametrize("how", ["changed", "writable"])
def test_a_kept_plan_that_others_could_have_written_is_solved_again(how):
    """A warning names the file, which is then mended."""
    first = plan("ab-ac-cb", 64, "i7-6700k")
    (path,) = plan_cache.plan_folder().glob("*.json")
    if how == "changed":
        path.write_text(path.read_text().replace('"threads": 1', '"threads": 2'))
    else:
        path.chmod(0o666)
    for warns in (True, False):
        plan_cache._memory.clear()
        with pytest.warns(TilesolveWarning, match="is ignored") if warns else nullcontext():
            assert plan("ab-ac-cb", 64, "i7-6700k") == first


def measured():
    """A machine as if it had been measured here."""
    return Machine.load("i7-6700k").replace(fingerprint=detect_cpu().fingerprint)


def test_a_changed_machine_file_is_used_with_a_warning():
    """A figure that was changed says so until the checksum is removed; comments do not count."""
    path = machine_file()
    save_machine(path, measured().to_toml())
    text = path.read_text()
    assert not was_changed(text)
    assert Machine.load() == measured()
    path.write_text("# mine\n" + text)
    assert Machine.load() == measured()
    changed = text.replace("frequency = 4200000000.0", "frequency = 4100000000.0")
    assert was_changed(changed)
    for given in (None, str(path)):
        path.write_text(changed)
        forget_what_was_told()
        with pytest.warns(TilesolveWarning, match=rf"{path} was changed .*remove its line"):
            assert Machine.load(given).frequency == 4.1e9
    path.write_text("".join(changed.splitlines(keepends=True)[1:]))
    assert Machine.load().frequency == 4.1e9
    for cut in ("[sources]", ":"):  # a file cut short, too, and one that is cut amid the checksum
        assert was_changed(text.partition(cut)[0])


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_calibrated_file_that_others_could_have_written_is_not_used(what):
    """One that is named is: whoever names it means it."""
    path = machine_file()
    save_machine(path, measured().to_toml())
    (path if what == "file" else path.parent).chmod(0o775)
    with pytest.raises(MachineError, match="can be written by others"):
        Machine.calibrated()
    with pytest.warns(TilesolveWarning, match="ignored until"):
        assert Machine.load() == Machine.detect()
    assert Machine.load(str(path)) == measured()


def test_nobody_measures_into_a_folder_that_is_not_read():
    """`tilesolve calibrate` says so before it begins; a file that is named is another matter."""
    path = machine_file()
    check_place(path)
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    with pytest.raises(FileAccessError, match=f"chmod go-w {path.parent}"):
        check_place(path)
    check_place(path.with_name("mine.toml"))
