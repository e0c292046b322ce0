"""Machines as values, as TOML, and how the one in force is found."""

import os
import re
import tomllib
import warnings
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from machine_strategies import machines
from turns import examples

from tilesolve.contractions.errors import MachineError, TilesolveWarning
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.level import Level, Peak
from tilesolve.machine.model import Machine
from tilesolve.machine.places import SHIPPED, machine_file
from tilesolve.machine.what_if import divide_machine
from tilesolve.system import files

SHIPPED_NAMES = ("cortex-a15", "e5-2680v4", "i7-5930k", "i7-6700", "i7-6700k")


def sample():
    return Machine.load("i7-6700k")


def calibrate(text):
    files.write_atomically(machine_file(), text)


@examples(40, 100)
@given(machines())
def test_toml_round_trip(machine):
    """What to_toml writes, from_toml reads back to an equal value with an equal hash."""
    again = Machine.from_toml(machine.to_toml())
    assert again == machine
    assert hash(again) == hash(machine)


@examples(25, 100)
@given(machines(), st.data())
def test_damaged_text_is_refused_or_read(machine, data):
    """A machine file with a part missing gives a machine or a MachineError, nothing else."""
    text = machine.to_toml()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    with suppress(MachineError):
        assert isinstance(Machine.from_toml(text[:start] + text[end:]), Machine)


@pytest.mark.parametrize("name", ["e5-2680v4", "i7-6700k"])
def test_shipped(name):
    """Shipped machines hold the bandwidths of the paper's Table 3, in bytes per cycle."""
    table = {"i7-6700k": (19.36, 18.32, 12.8, 6.4), "e5-2680v4": (25.28, 19.68, 11.44, 6.08)}
    machine = Machine.load(name)
    cycles = [level.bandwidth / machine.frequency for level in machine.levels]
    assert cycles == pytest.approx(table[name])
    assert {machine.source(f"{level.name}.bandwidth") for level in machine.levels} == {"published"}
    lanes = machine.vector_bits // 64
    assert machine.peak("float64") == pytest.approx(2 * 2 * lanes * machine.frequency)
    assert machine.peak("complex128") == machine.peak("float64")
    assert machine.peak("float32") == 2 * machine.peak("float64")


@pytest.mark.parametrize(
    ("name", "cores", "near", "far"),
    [
        ("i7-5930k", 6, (32, 8), (256, 8)),
        ("i7-6700", 4, (32, 8), (256, 8)),
        ("cortex-a15", 4, (32, 2), (512, 16)),
    ],
)
def test_shipped_machines_of_the_thesis(name, cores, near, far):
    """Table 4.3 of the thesis on pipelines: KiB and ways; what it lacks is called assumed."""
    machine = Machine.load(name)
    assert machine.cores == cores
    assert [(level.capacity // 1024, level.ways) for level in machine.levels[:2]] == [near, far]
    assert {machine.source(f"{level.name}.bandwidth") for level in machine.levels} == {"assumed"}
    assert {machine.source(f"{level.name}.capacity") for level in machine.caches} == {"published"}


def test_all_shipped_files_are_tested():
    """No machine file ships without a test of its figures."""
    assert sorted(file.stem for file in SHIPPED.glob("*.toml")) == sorted(SHIPPED_NAMES)


def test_lookups():
    """Levels are found by name; the error for a wrong one lists the right ones."""
    machine = sample()
    assert machine.level("L2") is machine.levels[1]
    assert machine.memory is machine.levels[-1]
    assert machine.caches == machine.levels[:-1]
    assert machine.source("no such figure") == "given"
    with pytest.raises(MachineError, match="no level 'L9'; it has L1, L2, L3, memory"):
        machine.level("L9")
    with pytest.raises(MachineError, match="no arithmetic peak for dtype int8"):
        machine.peak("int8")


def test_usable_is_the_effective_share():
    """The usable bytes of a level are its capacity times the effective fraction."""
    assert Level("L1", 1000, 1.0, effective=0.5).usable == 500
    assert Level("memory", None, 1.0).usable is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bandwidth", 0.0),
        ("bandwidth", -1.0),
        ("bandwidth", float("nan")),
        ("bandwidth", float("inf")),
        ("bandwidth", 10**400),
        ("bandwidth", "fast"),
        ("bandwidth", True),
        ("bandwidth", None),
        ("read", 0.0),
        ("stream", -1.0),
        ("bandwidth_all", float("inf")),
        ("capacity", 0),
        ("capacity", -1),
        ("capacity", 32768.0),
        ("capacity", True),
        ("line", 0),
        ("ways", 0),
        ("shared_by", 0),
        ("shared_by", None),
        ("inclusive", "false"),
        ("inclusive", 1),
        ("effective", 0.0),
        ("effective", 1.5),
        ("effective", float("nan")),
        ("bandwidth", 1e-300),
        ("bandwidth", 1e19),
        ("read", 0.5),
        ("stream", 1e300),
        ("bandwidth_all", 1e-9),
        ("latency", 0.0),
        ("latency", "long"),
        ("start", 0.0),
        ("start", -1e-9),
        ("start", "soon"),
        ("part", 0.0),
        ("part", float("nan")),
        ("ahead", 0),
        ("fetched", 2.0),
    ],
)
def test_impossible_level(field, value):
    """A level's error names the level, the field and the value."""
    with pytest.raises(MachineError, match=f"level 'L2': {field}.*{re.escape(repr(value))}"):
        Level(**{"name": "L2", "capacity": 32768, "bandwidth": 1e9, field: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": 1}, "must hold a line of 64 bytes, got 1"),
        ({"capacity": 63}, "must hold a line of 64 bytes, got 63"),
        ({"capacity": 4096, "effective": 1e-9}, "must hold a line of 64 bytes, got 0"),
        ({"line": 2**20}, "must hold a line of 1048576 bytes, got 32768"),
        ({"capacity": 2**63}, r"capacity must be less than 2\*\*63"),
        ({"capacity": 10**400}, r"capacity must be less than 2\*\*63"),
        ({"ways": 10**40}, r"ways must be less than 2\*\*63"),
    ],
)
def test_levels_have_bounds(change, message):
    """A cache holds a line of its own, and no more bytes than an address can tell."""
    with pytest.raises(MachineError, match=f"level 'L2': .*{message}"):
        Level(**{"name": "L2", "capacity": 32768, "bandwidth": 1e9, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frequency": 1e-300}, "frequency must lie within 1 and .* got 1e-300"),
        ({"frequency": 1e300}, "frequency must lie within 1 and .* got 1e"),
        ({"cores": 10**40}, r"cores must be less than 2\*\*63"),
        ({"cores": 0}, "cores must be a positive integer, got 0"),
        *(
            ({"threads_per_core": threads}, "threads_per_core must be a positive integer")
            for threads in (0, 1.5, "2")
        ),
        (
            {"levels": (Level("L1", None, 2e9), Level("memory", None, 1e9))},
            "L1 has no capacity but is not the last",
        ),
        ({"frequency": 0.0}, "frequency must be positive, got 0.0"),
        ({"frequency": "4e9"}, "frequency must be positive, got '4e9'"),
        ({"fma_rate": float("nan")}, "fma_rate must be positive, got nan"),
        ({"fma_latency": 4.0}, "fma_latency must be a positive integer, got 4.0"),
        ({"vector_bits": -1}, "vector_bits must be a positive integer, got -1"),
        ({"vector_bits": 100}, "vector_bits must be a power of two, got 100"),
        ({"vector_registers": True}, "vector_registers must be a positive integer, got True"),
        ({"peaks": ()}, "no arithmetic peak"),
        ({"name": 5}, "must be text"),
        ({"levels": ()}, "the last level must be 'memory'"),
        ({"sources": (("cores", "guessed"),)}, "the source of it, one of .*'guessed'"),
    ],
)
def test_impossible_machine(change, message):
    """A machine's error says which field is impossible and what it holds."""
    with pytest.raises(MachineError, match=message):
        sample().replace(**change)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ((1, 0, 2, 3), "is faster than the nearer L2"),
        ((0, 1, 2), "last level must be 'memory'"),
        ((0, 1, 3, 2), "last level must be 'memory'"),
        ((0, 0, 3), "two levels have the same name"),
    ],
)
def test_levels_out_of_order(order, message):
    """Levels must go outwards, end in memory, and not be repeated."""
    levels = sample().levels
    with pytest.raises(MachineError, match=message):
        sample().replace(levels=tuple(levels[index] for index in order))


def test_levels_misnumbered():
    """The numbers of the levels must rise, even where no bandwidth contradicts them."""
    levels = [Level(name, 32768, 1e9) for name in ("L2", "side", "L1")]
    with pytest.raises(MachineError, match="go outwards, got L2, side, L1, memory"):
        sample().replace(levels=(*levels, Level("memory", None, 1e9)))


def test_six_caches_at_most():
    """More would take hours to plan for."""
    caches = [Level(f"L{number}", 32768 * number, 1e9) for number in range(1, 8)]
    memory = Level("memory", None, 1e9)
    assert len(sample().replace(levels=(*caches[:6], memory)).caches) == 6
    with pytest.raises(MachineError, match="there may be 6 caches at most, got 7"):
        sample().replace(levels=(*caches, memory))


@pytest.mark.parametrize("effective", [1.0, 64 / 49, 0.5, 0.05])
def test_a_part_of_a_cache_has_a_line(effective):
    """However many share a small one, and however little of it serves."""
    small = Level("L1", 4096, 2e9, effective=min(effective, 1 / effective), shared_by=256)
    machine = sample().replace(levels=(small, Level("memory", None, 1e9)))
    assert divide_machine(machine, 256).levels[0].usable >= 64


def test_small_l2_is_possible():
    """An L2 smaller than L1 is no error."""
    levels = (Level("L1", 65536, 3e9), Level("L2", 32768, 2e9), Level("memory", None, 1e9))
    assert sample().replace(levels=levels).levels == levels


def test_bad_peak():
    """A peak's error names its dtype, width and field."""
    with pytest.raises(MachineError, match="peak of 'float64' at 256 bits: flops must be positive"):
        Peak("float64", 256, 0.0)
    with pytest.raises(MachineError, match="flops_all must be positive"):
        Peak("float64", 256, 1e9, -1.0)
    with pytest.raises(MachineError, match=r"flops must lie within 1 and .* got 1e-300"):
        Peak("float64", 256, 1e-300)
    with pytest.raises(MachineError, match="bits must be a positive integer"):
        Peak("float64", 0, 1e9)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 1 ===", "not valid TOML"),
        ("format = 1", "format = 2", "format is 2, this version reads 1"),
        ("format = 1", "", "format is None"),
        ("cores = 4", "", "entry 'cores' is missing"),
        ("cores = 4", "cores = 4\ncors = 5", "unknown entries: cors"),
        ("registers = 16", "registers = 16\nwidth = 5", r"unknown entries: width in \[vector\]"),
        ("registers = 16", "", "entry 'registers' is missing"),
        ("ways = 4", "wayz = 4", r"unknown entries: wayz in \[\[level\]\] number 2$"),
        ("bandwidth = 81312000000.0", "", r"'bandwidth' is missing in \[\[level\]\] number 1$"),
        (
            'dtype = "float64", bits',
            'dtype = "float64", bit',
            r"unknown entries: bit in \[\[peak\]\] number 1$",
        ),
        ("[vector]", "[[vector]]", r"\[vector\] must be one table$"),
        ("[[level]]", "[[x]]\n[level]", "not valid TOML"),
        (
            "kernels = []",
            "kernels = 5",
            r"kernels must be a list of tables, each with \[\[kernels\]\] above",
        ),
        ("kernels = []", "kernels = [5]", r"\[\[kernels\]\] number 1 must be one table$"),
        ('name = "i7-6700k"', 'name = "i7\\u001b[31m"', "name must be text to be printed"),
        ('name = "L2"', 'name = "L2\\n"', "name must be text to be printed"),
        ('"L1.capacity" =', '"L9.capacity" =', r"unknown entries: L9\.capacity in \[sources\]"),
        ('peak = "pub', 'peek = "pub', r"unknown entries: peek in \[sources\]"),
        ("ways = 4", 'ways = "4"', "level 'L2': ways must be a positive integer, got '4'"),
        ("bandwidth = 81312000000.0", "bandwidth = 0", "level 'L1': bandwidth must be positive"),
        ("bandwidth = 81312000000.0", "bandwidth = 1", "L2 .* is faster than the nearer L1"),
        ("cores = 4", f"cores = {'9' * 5000}", "not valid TOML"),
        ("cores = 4", f"cores = {'[' * 5000}", "not valid TOML"),
        ("[sources]", "[[sources]]", r"\[sources\] must be one table$"),
        ("[vector]", "vector = 5\n[vectr]", "machine file"),
    ],
)
def test_broken_toml(old, new, message):
    """A broken machine file gives an error that names the file and what is wrong in it."""
    text = sample().to_toml()
    assert old in text
    with pytest.raises(MachineError, match=message) as caught:
        Machine.from_toml(text.replace(old, new, 1))
    assert str(caught.value).startswith("machine file: ")


def test_a_lone_level_is_no_list():
    """A table in the place of a list of tables is an error that shows how to write one."""
    with pytest.raises(
        MachineError, match=r"level must be a list of tables, each with \[\[level\]\] above"
    ):
        Machine.from_toml(tomli_w.dumps(tomllib.loads(sample().to_toml()) | {"level": {"a": 1}}))


@cache
def whole_document():
    """Return the content of a file with kernels."""
    tiles = (RegisterTile(2, 6, 6.0, 60.0),)
    catalogues = (Catalogue("float64", 256, 16, tiles, in_place_rows_slowdown=1.5),)
    return tomllib.loads(sample().replace(catalogues=catalogues).to_toml())


@examples(50, 100)
@given(st.data())
def test_any_value_is_refused_in_words(data):
    """With any value of a file replaced by another one, there is a machine, or a MachineError."""
    part = document = deepcopy(whole_document())
    while isinstance(part, dict | list) and (part is document or data.draw(st.booleans())):
        within = part
        key = data.draw(st.sampled_from(list(part) if isinstance(part, dict) else range(len(part))))
        part = part[key]
    simple = st.integers() | st.floats() | st.text() | st.booleans() | st.just([]) | st.just({})
    within[key] = data.draw(simple | st.lists(simple) | st.dictionaries(st.text(), simple))
    with suppress(MachineError):
        machine = Machine.from_toml(tomli_w.dumps(document))
        assert Machine.from_toml(machine.to_toml()) == machine
        assert hash(machine) is not None


def test_a_machine_that_lost_levels_is_what_its_file_says():
    """Else a plan for it, kept on disk, would be of another machine."""
    machine = Machine.load("i7-6700k")
    for kept in range(len(machine.levels)):
        found = machine.replace(levels=(*machine.levels[:kept], machine.memory))
        assert Machine.from_toml(found.to_toml()) == found
    assert found == machine


def test_byte_order_mark(home):
    """A mark that some editors put before the first letter is no part of it."""
    (home / "mine.toml").write_text(sample().to_toml(), encoding="utf-8-sig")
    assert Machine.load(home / "mine.toml") == sample()


def test_load_machine_itself():
    """A machine given is the machine loaded."""
    assert Machine.load(sample()) == sample()


def test_load_by_path_and_name(home, monkeypatch):
    """A text that is a shipped name means it; a path means the file, even of such a name."""
    path = home / "mine.toml"
    path.write_text(sample().replace(name="mine").to_toml())
    assert Machine.load(path).name == "mine"
    assert Machine.load(str(path)).name == "mine"
    monkeypatch.chdir(home)
    path.rename(home / "e5-2680v4")
    assert Machine.load("e5-2680v4").name == "e5-2680v4"
    assert Machine.load("./e5-2680v4").name == "mine"
    assert Machine.load(Path("e5-2680v4")).name == "mine"


@pytest.mark.parametrize("wanted", ["nowhere", "", "no\0where", "i7-6700k.toml", "../machines"])
def test_load_unknown(home, monkeypatch, wanted):
    """A machine that is nowhere gives an error, which lists the shipped ones for a name."""
    monkeypatch.chdir(home)
    names = f"no machine 'nowhere'.*{', '.join(SHIPPED_NAMES)}" if wanted == "nowhere" else None
    with pytest.raises(MachineError, match=names):
        Machine.load(wanted)


def test_load_no_regular_file(home):
    """A folder, or a pipe that never ends, is refused at once."""
    os.mkfifo(home / "pipe")
    for name in ("", "pipe"):
        with pytest.raises(MachineError, match="not a regular file"):
            Machine.load(home / name)


def test_load_binary(home):
    """A file that is no text gives an error with its path."""
    (home / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MachineError, match=r"binary\.toml: not UTF-8 text"):
        Machine.load(home / "binary.toml")


def test_order(home, monkeypatch):
    """The argument comes before TILESOLVE_MACHINE, that before calibration, then detection."""
    assert Machine.find().why == "detection"
    assert Machine.find().machine == Machine.detect()
    calibrated = sample().replace(name="calibrated", fingerprint=detect_cpu().fingerprint)
    calibrate(calibrated.to_toml())
    assert Machine.find() == (calibrated, "calibrated file", "")
    assert Machine.load() == calibrated
    monkeypatch.setenv("TILESOLVE_MACHINE", "e5-2680v4")
    assert Machine.find() == (Machine.load("e5-2680v4"), "TILESOLVE_MACHINE", "")
    assert Machine.find("i7-6700k") == (sample(), "argument", "")
    path = home / "mine.toml"
    path.write_text(sample().replace(name="mine").to_toml())
    monkeypatch.setenv("TILESOLVE_MACHINE", str(path))
    assert Machine.load().name == "mine"
    monkeypatch.setenv("TILESOLVE_MACHINE", "")
    assert Machine.load() == calibrated


def test_broken_environment_is_an_error(home, monkeypatch):
    """A TILESOLVE_MACHINE that cannot be read is an error, never passed over."""
    monkeypatch.setenv("TILESOLVE_MACHINE", str(home / "missing.toml"))
    with pytest.raises(MachineError, match=r"missing\.toml"):
        Machine.load()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (sample().to_toml(), "measured on another CPU"),
        (sample().replace(fingerprint="0" * 12).to_toml(), "measured on another CPU"),
        ("format =", "not valid TOML"),
        ("", "format is None"),
    ],
)
def test_foreign_or_damaged_calibration(home, text, reason):
    """A calibrated file that is foreign or damaged is warned of once, and detection used."""
    calibrate(text)
    with pytest.raises(MachineError, match=reason):
        Machine.calibrated()
    with pytest.warns(TilesolveWarning, match=f"tilesolve calibrate.*{reason}") as caught:
        assert Machine.load() == Machine.detect()
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Machine.load() == Machine.detect()
    assert machine_file().read_text() == text


@pytest.mark.parametrize("caches", range(4))
def test_a_machine_that_is_left_with_fewer_caches_can_be_written(caches):
    """The file says nothing of what is not there any more."""
    machine = Machine.load("i7-6700k")
    few = machine.replace(levels=(*machine.levels[:caches], machine.memory))
    again = Machine.from_toml(few.to_toml())
    assert again.replace(sources=()) == few.replace(sources=())
    assert set(again.sources) <= set(few.sources)
    assert again.source("memory.bandwidth") == few.source("memory.bandwidth")


@pytest.mark.parametrize(("figure", "value"), [("strided", "[[1, 0.5]]"), ("lines", "2.5e10")])
def test_figures_that_older_files_have_are_left_out(figure, value):
    """Of levels, and of their sources."""
    text = sample().to_toml()
    older = text.replace("shared_by = 1\n", f"shared_by = 1\n{figure} = {value}\n", 1)
    older = older.replace("[sources]\n", f'[sources]\n"L1.{figure}" = "measured"\n', 1)
    assert older.count(figure) == 2
    assert Machine.from_toml(older) == Machine.from_toml(text)


def test_files_from_before_runs_were_timed_are_read():
    """Levels have no start then, and what hardware prefetches is assumed."""
    text = sample().to_toml()
    assert not re.search("start|part|ahead|fetched", text)
    machine = Machine.from_toml(text.replace("threads_per_core = 2\n", ""))
    assert machine.threads_per_core == 1
    for level in machine.levels:
        assert (level.start, level.part, level.ahead, level.fetched) == (None, None, 20, 2)
        assert machine.source(f"{level.name}.fetched") == "assumed"
