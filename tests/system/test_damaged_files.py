"""Files that tilesolve keeps, with drawn bytes damaged: reported and not believed, or the same."""

import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from warnings_told import forget_what_was_told

import tilesolve
from tilesolve.contractions.errors import PlanError
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.file import save_machine
from tilesolve.machine.model import Machine
from tilesolve.machine.places import machine_file
from tilesolve.system import files
from tilesolve.system.kept_objects import read_object, write_object

CODE = bytes(range(256)) * 4


@st.composite
def damages(draw, whole):
    """Draw what is left of some bytes: one bit is another, or some are gone, zero, or repeated."""
    at = draw(st.integers(0, len(whole) - 1))
    how = draw(st.sampled_from(["flip", "flip", "digit", "cut", "zero", "append", "repeat"]))
    some = draw(st.integers(1, 64))
    if how == "digit":  # the next one: no draw may depend on bytes that are random
        places = (*range(at, len(whole)), *range(at))
        at = next((place for place in places if chr(whole[place]).isdigit()), at)
    bit = 1 << some % (3 if how == "digit" else 8)
    flipped = whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
    return {
        "flip": flipped,
        "digit": flipped,
        "cut": whole[:at],
        "zero": whole[:at] + bytes(len(whole[at : at + some])) + whole[at + some :],
        "append": whole + whole[at : at + some],
        "repeat": whole[: at + some] + whole[at:],
    }[how]


@cache
def planned():
    """A plan of each kind."""
    product = tilesolve.plan("ik-ij-jk", 24, "i7-6700k", cache=False)
    text = "C[i,j] += A[i,k] * A[j,k]"
    triangle = tilesolve.nest(text, 40, where="j <= i", machine="i7-6700k", route="contraction")
    return product, triangle


@given(st.data(), st.integers(0, 1))
def test_plans(data, kind):
    """A damaged text of a plan is that plan still, or none."""
    found = planned()[kind]
    damaged = data.draw(damages(found.to_json().encode()))
    with suppress(PlanError, UnicodeDecodeError):
        assert type(found).from_json(damaged.decode()) == found


@given(st.data())
def test_compiled_code(tmp_path_factory, data):
    """Damaged code is never given; it is reported once, and can be written again."""
    path = tmp_path_factory.mktemp("code") / "some.o"
    write_object(path, CODE)
    name = data.draw(st.sampled_from(["some.o", "some.o", "key"]))
    whole = path.with_name(name).read_bytes()
    damaged = data.draw(damages(whole))
    path.with_name(name).write_bytes(damaged)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert read_object(path) in ((CODE,) if damaged == whole else (None,))
        read_object(path)
    assert len(caught) == (damaged != whole)
    write_object(path, CODE)
    assert read_object(path) == CODE


@cache
def measured():
    """A machine that was measured here, and the bytes of its file."""
    here = Machine.load("i7-6700k").replace(name="mine", fingerprint=detect_cpu().fingerprint)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mine.toml"
        save_machine(path, here.to_toml())
        return here, path.read_bytes()


@given(st.data())
def test_machine_files(data):
    """A damaged machine file says so, or all that it said before; else it is not used."""
    here, whole = measured()
    damaged = data.draw(damages(whole))
    files.write_atomically(machine_file(), damaged)
    forget_what_was_told()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Machine.load()
        Machine.load()
    assert len({str(one.message) for one in caught}) == len(caught)
    if not caught:
        assert found == here
