"""The bound of what is kept: what was not used for longest goes, and no more than has to."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve import plan
from tilesolve.contractions.errors import SettingError
from tilesolve.plans import cache as plan_cache
from tilesolve.system import cache_bound
from tilesolve.system.cache_bound import KEPT, bound_cache, cache_limit, list_kept, note_use
from tilesolve.system.files import cache_dir
from tilesolve.system.kept_objects import read_object, write_object
from tilesolve.system.units import format_size, parse_size


@pytest.fixture
def own(home, monkeypatch):
    """A cache folder of this test's own."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "cache"))
    return home / "cache"


def place(root, name, size, used):
    """Make a file that was used at a time."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, ns=(used, used))
    return path


def total(root):
    """Bytes of all that counts."""
    return sum(file.size for name in KEPT for file in list_kept(root, name))


def test_what_was_not_used_for_longest_goes(own, monkeypatch):
    """Over all folders, in the order of use; other files and the newest one stay."""
    monkeypatch.setenv("TILESOLVE_CACHE_LIMIT", "1000")
    names = ["code/b.o", "plans/a.json", "functions/c.o", "plans/d.json"]
    paths = [place(own, name, 300, used) for used, name in enumerate(names)]
    others = [place(own, name, 5000, 0) for name in ("code/key", "plans/note", "mine/a.o")]
    note_use(paths[0])
    bound_cache(paths[3])
    assert [path.exists() for path in paths] == [True, False, True, True]
    assert all(path.exists() for path in others)


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=12),
    limit=st.integers(0, 3000),
    order=st.randoms(),
)
def test_the_bound_holds_and_only_the_oldest_go(tmp_path_factory, sizes, limit, order):
    """What is left are those used last, as many as fit."""
    root = tmp_path_factory.mktemp("kept")
    times = list(range(len(sizes)))
    order.shuffle(times)
    paths = [
        place(root, f"code/{used}.o", size, used) for size, used in zip(sizes, times, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILESOLVE_CACHE_LIMIT", str(limit))
        bound_cache(paths[-1])
    assert total(root) <= limit
    by_use = sorted(zip(times, sizes, paths, strict=True))
    gone = [not path.exists() for _, _, path in by_use]
    assert gone == sorted(gone, reverse=True)
    if any(gone) and sum(sizes) > limit:
        kept_one_more = sum(sizes) - sum(size for _, size, _ in by_use[: sum(gone) - 1])
        assert kept_one_more > limit - limit // 64


def test_reading_counts_as_use(own, monkeypatch):
    """Objects and plans that are read stay longer than those that are not."""
    paths = [own / "code" / f"{name}.o" for name in "abc"]
    for number, path in enumerate(paths[:2]):
        write_object(path, b"x" * 1000)
        os.utime(path, ns=(number, number))
    plan("ab-ac-cb", 64, "i7-6700k")
    (kept,) = plan_cache.plan_folder().glob("*.json")
    os.utime(kept, ns=(0, 0))
    plan_cache._memory.clear()
    plan("ab-ac-cb", 64, "i7-6700k")
    assert kept.stat().st_mtime_ns > 0
    assert read_object(paths[0]) is not None
    monkeypatch.setenv("TILESOLVE_CACHE_LIMIT", str(total(own) + 500))
    (own / cache_bound.JOURNAL).unlink()
    write_object(paths[2], b"x" * 1000)
    assert [path.exists() for path in (*paths, kept)] == [True, False, True, True]


def test_folders_are_looked_at_only_when_it_may_matter(own, monkeypatch):
    """After the first file processes write some, all together, until one of them looks again."""
    looks = []
    real = cache_bound.list_kept
    monkeypatch.setattr(cache_bound, "list_kept", lambda *a: looks.append(a) or real(*a))
    monkeypatch.setenv("TILESOLVE_CACHE_LIMIT", "64000")
    for number in range(20):
        bound_cache(place(own, f"plans/{number}.json", 100, number))
    assert len(looks) == 2 * len(KEPT)


def test_old_locks_go(own):
    """Locks that nobody has held for long go with leftovers, and files and new locks stay."""
    paths = [
        place(own, f"code/{name}", 8, 0) for name in ("a.o", "a.o.lock", ".b.o.7.0123abcd.tmp")
    ]
    new = place(own, "code/c.o.lock", 0, time.time_ns())
    bound_cache(paths[0])
    assert [path.exists() for path in (*paths, new)] == [True, False, False, True]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1000", 1000),
        ("64 KiB", 65536),
        ("64k", 65536),
        ("1.5 GiB", 3 * 2**29),
        ("2 MB", 2_000_000),
        (" 1 t ", 2**40),
        ("7 B", 7),
    ],
)
def test_sizes(monkeypatch, text, count):
    """As people write them."""
    monkeypatch.setenv("TILESOLVE_CACHE_LIMIT", text)
    assert cache_limit() == count


@given(st.integers(0, 2**50))
def test_sizes_are_read_as_they_are_shown(count):
    """But for the digits that are not shown."""
    assert parse_size(format_size(count)) == pytest.approx(count, rel=1e-3)


@pytest.mark.parametrize("text", ["much", "-1", "1 XB", "1e9", "5 5", "nan"])
def test_what_is_no_size_is_an_error(monkeypatch, text):
    """It names the setting and what it said."""
    monkeypatch.setenv("TILESOLVE_CACHE_LIMIT", text)
    with pytest.raises(SettingError, match=f"TILESOLVE_CACHE_LIMIT must be .* got '{text}'"):
        cache_limit()


def test_the_bound_is_512_mebibytes():
    """Unless something is set."""
    assert cache_limit() == 2**29
    assert cache_dir().is_absolute()
