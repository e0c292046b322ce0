"""`clear_cache`: what it removes, and what stays as it is."""

import numpy as np
import pytest

import tilesolve
from tilesolve.caches import warm_cache
from tilesolve.expressions import einsum as einsum_module
from tilesolve.kernels.codegen.object_code import Family, build
from tilesolve.machine import kernel_cache
from tilesolve.plans import cache as plan_cache

FAMILY = Family("float32", 128, 6, 4)


@pytest.fixture
def own(home, monkeypatch):
    """A cache folder of this test's own: others need the kernels in the shared one."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "cache"))
    return home / "cache"


def test_plans_and_kernels_are_removed(own):
    """Files of both kinds are removed and counted; others stay, and so does a plan in hand."""
    plan = tilesolve.plan("ik-ij-jk", 24, "i7-6700k")
    for name in ("code/old.o", "code/older.o", "code/note.txt", "functions/old.o"):
        (own / name).parent.mkdir(exist_ok=True)
        (own / name).touch()
    done = tilesolve.clear_cache()
    assert (done.plans, done.kernels, done.functions) == (1, 2, 1)
    assert plan_cache.count_plans() == {"memory": 0, "disk": 0, "bytes": 0}
    assert [path.name for path in kernel_cache.code_folder().iterdir()] == ["note.txt"]
    assert tilesolve.plan("ik-ij-jk", 24, "i7-6700k") == plan
    done = tilesolve.clear_cache()
    assert (done.plans, done.kernels) == (1, 0)


def test_einsum_begins_anew(own, monkeypatch):
    """What einsum keeps of earlier calls is forgotten, too."""
    made = []
    real = einsum_module.compile_expression
    monkeypatch.setattr(einsum_module, "compile_expression", lambda *a: made.append(a) or real(*a))
    einsum_module.forget_calls()
    ones = np.ones((3, 4))
    counts = []
    for _ in range(3):
        assert tilesolve.einsum("ab,ab->a", ones, ones).tolist() == [4, 4, 4]
        counts.append(len(made))
        if len(counts) == 2:
            tilesolve.clear_cache()
    assert counts == [1, 1, 2]


def test_what_is_warm_need_not_be_compiled(own, monkeypatch, kept_functions):
    """Kernels of all parts are on disk then, and progress goes from nothing to all."""
    own.mkdir()
    (own / "functions").symlink_to(kept_functions)
    monkeypatch.setattr(kernel_cache, "_loaded", {})
    monkeypatch.setattr(kernel_cache, "start_compiling", lambda *_, **__: None)
    monkeypatch.setattr(kernel_cache, "build", lambda _, shapes: build(FAMILY, FAMILY.shapes[:1]))
    seen = []
    warm_cache(["float32"], lambda fraction, what: seen.append((fraction, what)))
    assert seen == sorted(seen, key=lambda step: step[0])
    assert (seen[0][0], seen[-1]) == (0.0, (1.0, "done"))
    parts = {path.name.split("-")[2] for path in (own / "code").glob("*.o")}
    assert parts == {"packed", "in_place", "mixed"}
