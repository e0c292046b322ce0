"""Detection on computers that are not here: trees of files like those of sysfs and procfs."""

import os
import platform

import pytest

from tilesolve.contractions.errors import SettingError
from tilesolve.machine import cpu as cpu_module
from tilesolve.machine import detect as detect_module
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.detect import default_threads, detect
from tilesolve.machine.model import Machine

KIB = 1024
MIB = 1024 * KIB

INTEL = {
    "vendor_id": "GenuineIntel",
    "cpu family": "6",
    "model name": "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz",
    "cpu MHz": "1200.5",
    "flags": "fpu sse sse2 fma avx avx2",
}
AMD = {
    "vendor_id": "AuthenticAMD",
    "cpu family": "26",
    "model name": "AMD EPYC 9B45",
    "cpu MHz": "4000.000",
    "flags": "fpu sse2 avx2 fma avx512f",
}
ARM = {
    "BogoMIPS": "243",
    "Features": "fp asimd sve",
    "CPU implementer": "0x41",
    "CPU part": "0xd40",
}


class Computer:
    """A fake computer: files under sys and proc."""

    def __init__(self, folder, monkeypatch):
        self.sys = folder / "sys"
        self.proc = folder / "proc"
        self.patch = monkeypatch
        self.allow(0)
        self.answer(None)

    def put(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def allow(self, *cpus):
        """Let the process run on these logical CPUs only."""
        self.patch.setattr(os, "sched_getaffinity", lambda _: set(cpus), raising=False)

    def answer(self, cpuid):
        """Let cpuid say this; None makes asking it an error of the test."""

        def ask():
            assert cpuid is not None, "sysfs and procfs say enough"
            return cpuid

        self.patch.setattr(cpu_module, "_cpuid", ask)

    def say(self, fields, processors=1):
        block = "".join(f"{key}\t: {value}\n" for key, value in fields.items())
        blocks = (f"processor\t: {number}\n{block}\n" for number in range(processors))
        self.put(self.proc / "cpuinfo", "".join(blocks))

    def core(self, number, **files):
        for name, text in files.items():
            path = self.sys / f"devices/system/cpu/cpu{number}" / name.replace("__", "/")
            self.put(path, f"{text}\n")

    def cache(self, index, level, kind, size, core=0, **files):
        """Give a core a cache; None leaves a file out."""
        files = {"level": level, "type": kind, "size": size, **files}
        named = {f"cache__index{index}__{key}": text for key, text in files.items()}
        self.core(core, **{name: text for name, text in named.items() if text is not None})

    def usual(self, l2="256K", l3="35840K"):
        """Give core 0 three levels, of which two threads share the near ones."""
        ways = {"coherency_line_size": 64, "ways_of_associativity": 8}
        self.cache(0, 1, "Data", "32K", shared_cpu_list="0,4", **ways)
        self.cache(1, 1, "Instruction", "64K", shared_cpu_list="0,4", **ways)
        self.cache(2, 2, "Unified", l2, shared_cpu_list="0,4", **ways)
        self.cache(3, 3, "Unified", l3, shared_cpu_list="0-7", **ways)
        for number in range(8):
            twins = f"{number % 4},{number % 4 + 4}"
            self.core(number, topology__thread_siblings_list=twins)
            self.core(number, topology__core_siblings_list="0-7")

    def cpu(self):
        return detect_cpu(self.sys, self.proc)

    def machine(self):
        return Machine(**detect(self.sys, self.proc))


@pytest.fixture
def computer(tmp_path, monkeypatch):
    return Computer(tmp_path, monkeypatch)


@pytest.fixture
def server(computer):
    """One with three levels of caches."""
    computer.say(INTEL)
    computer.usual()
    return computer


def assumed(machine):
    return {figure for figure, source in machine.sources if source == "assumed"}


def capacities(machine):
    return [level.capacity for level in machine.levels]


NEVER_REPORTED = {"fma_latency", "fma_rate", "peak", "memory.bandwidth"} | {
    f"L{number}.{figure}" for number in (1, 2, 3) for figure in ("bandwidth", "inclusive")
}


def test_usual_server(computer):
    """Capacities, lines, ways and sharing are those of the data caches; the rest is assumed."""
    computer.say(INTEL, processors=8)
    computer.usual()
    machine = computer.machine()
    assert machine.name == "intel-xeon-e5-2680-v4"
    assert [level.name for level in machine.levels] == ["L1", "L2", "L3", "memory"]
    assert capacities(machine) == [32 * KIB, 256 * KIB, 35 * MIB, None]
    assert [level.ways for level in machine.levels] == [8, 8, 8, None]
    assert [level.line for level in machine.levels] == [64] * 4
    assert [level.shared_by for level in machine.levels] == [1, 1, 4, 4]
    assert all(level.inclusive for level in machine.levels)
    assert (machine.vector_bits, machine.vector_registers, machine.fma_rate) == (256, 16, 2.0)
    assert machine.frequency == pytest.approx(1200.5e6)
    assert assumed(machine) == NEVER_REPORTED
    assert machine.peak("float64") == pytest.approx(1200.5e6 * 4 * 2 * 2)


def test_every_figure_has_a_source(server):
    """Each figure that the machine states is marked as detected or assumed."""
    machine = server.machine()
    stated = {"cores", "threads_per_core", "frequency"}
    stated |= {"vector_bits", "vector_registers", "peak"}
    for level in machine.levels:
        figures = ["bandwidth", "line", "shared_by"]
        figures += ["capacity", "ways", "inclusive"] if level.capacity else []
        stated |= {f"{level.name}.{figure}" for figure in figures}
    assert stated | {"fma_latency", "fma_rate"} == set(dict(machine.sources))
    assert {source for _, source in machine.sources} == {"detected", "assumed"}


@pytest.mark.parametrize(
    ("size", "count"),
    [("48K", 48 * KIB), ("1M", MIB), ("2G", 2 * 1024 * MIB), ("32768", 32768), ("1 MiB", MIB)],
)
def test_sizes(computer, size, count):
    """Sizes are read with and without a unit."""
    computer.say(INTEL)
    computer.usual(l2=size)
    machine = computer.machine()
    assert machine.level("L2").capacity == count
    assert machine.source("L2.capacity") == "detected"


@pytest.mark.parametrize("size", ["0", "0K", "", "-1", "K", "many", None])
def test_unknown_size(server, size):
    """A size of 0, none, or no number is unknown: the default is taken and called assumed."""
    path = server.sys / "devices/system/cpu/cpu0/cache/index2/size"
    path.unlink() if size is None else path.write_text(f"{size}\n")
    machine = server.machine()
    default = detect_module.ASSUMED_L1_BYTES * detect_module.ASSUMED_CAPACITY_RATIO
    assert machine.level("L2").capacity == default
    assert assumed(machine) == NEVER_REPORTED | {"L2.capacity"}


def test_default_is_larger_than_the_nearer_level(computer):
    """The size assumed for an unknown level is never below twice the nearer one's."""
    computer.say(INTEL)
    computer.usual(l2="24M", l3="0")
    assert computer.machine().level("L3").capacity == 48 * MIB


def test_absent_level(computer):
    """A level that is not listed although a farther one is, is assumed to be there."""
    computer.say(INTEL)
    computer.cache(0, 1, "Data", "32K")
    computer.cache(1, 3, "Unified", "8M")
    machine = computer.machine()
    assert capacities(machine) == [32 * KIB, 256 * KIB, 8 * MIB, None]
    assert {"L2.capacity", "L2.line", "L1.shared_by"} <= assumed(machine)
    assert "L2.ways" not in dict(machine.sources)
    assert "L3.capacity" not in assumed(machine)


@pytest.mark.parametrize("depth", [1, 2, 4, 6])
def test_any_number_of_levels(computer, depth):
    """Machines may have any number of caches, and bandwidth never rises outwards."""
    computer.say(INTEL)
    for level in range(1, depth + 1):
        computer.cache(level - 1, level, "Unified", f"{2**level}M")
    machine = computer.machine()
    names = [level.name for level in machine.levels]
    assert names == [*(f"L{level}" for level in range(1, depth + 1)), "memory"]
    assert capacities(machine)[:-1] == [2**level * MIB for level in range(1, depth + 1)]
    bandwidths = [level.bandwidth for level in machine.levels]
    assert bandwidths == sorted(bandwidths, reverse=True)


def test_zero_line_and_ways(computer):
    """A line or associativity of 0 is unknown."""
    computer.say(INTEL)
    computer.cache(0, 1, "Data", "32K", coherency_line_size=0, ways_of_associativity=0)
    machine = computer.machine()
    assert machine.level("L1").line == 64
    assert machine.level("L1").ways is None
    assert "L1.line" in assumed(machine)


@pytest.mark.parametrize("listed", ["", "x", "3-", "0-7,", "-1"])
def test_unknown_sharing(server, listed):
    """Where nothing says who shares a cache, near ones are one core's and far ones all cores'."""
    for index in (0, 2, 3):
        server.core(0, **{f"cache__index{index}__shared_cpu_list": listed})
    server.allow(0, 1)
    machine = server.machine()
    assert [level.shared_by for level in machine.caches] == [1, 1, 2]
    assert {"L1.shared_by", "L2.shared_by", "L3.shared_by"} <= assumed(machine)


@pytest.mark.parametrize(
    ("vendor", "family", "inclusive"),
    [
        ("AuthenticAMD", "23", False),
        ("AuthenticAMD", "26", False),
        ("HygonGenuine", "24", False),
        ("AuthenticAMD", "21", True),
        ("GenuineIntel", "25", True),
    ],
)
def test_victim_cache(computer, vendor, family, inclusive):
    """AMD's L3 is a victim cache since family 17h; every other cache is taken as inclusive."""
    computer.say({**AMD, "vendor_id": vendor, "cpu family": family})
    computer.usual()
    levels = computer.machine().levels
    assert [level.inclusive for level in levels] == [True, True, inclusive, True]


@pytest.mark.parametrize(
    ("flags", "vectors"),
    [
        ("sse2 avx avx2 fma avx512f", (512, 32, 2.0)),
        ("sse2 avx avx2 fma", (256, 16, 2.0)),
        ("sse2 avx avx2", (128, 16, 1.0)),
        ("sse2 avx fma", (128, 16, 1.0)),
        ("sse2", (128, 16, 1.0)),
        ("fp asimd", (128, 32, 2.0)),
    ],
)
def test_vectors(computer, flags, vectors):
    """The widest usable vectors, their registers and FMAs per cycle follow from the features."""
    computer.say({**INTEL, "flags": flags})
    computer.usual()
    machine = computer.machine()
    assert (machine.vector_bits, machine.vector_registers, machine.fma_rate) == vectors
    assert machine.source("vector_bits") == "detected"
    lanes = machine.vector_bits // 32
    assert machine.peak("float32") == pytest.approx(2 * lanes * vectors[2] * machine.frequency)


def test_arm(computer):
    """An ARM server has no model name and other names of fields."""
    computer.say(ARM, processors=4)
    computer.cache(0, 1, "Data", "64K", coherency_line_size=64, shared_cpu_list="0")
    computer.cache(1, 1, "Instruction", "64K", coherency_line_size=64, shared_cpu_list="0")
    computer.cache(2, 2, "Unified", "1024K", coherency_line_size=64, shared_cpu_list="0")
    computer.core(0, cpufreq__cpuinfo_max_freq=2600000)
    machine = computer.machine()
    assert machine.name == "arm-0x41-0xd40"
    assert capacities(machine) == [64 * KIB, MIB, None]
    assert (machine.vector_bits, machine.vector_registers) == (128, 32)
    assert machine.frequency == 2.6e9
    assert machine.source("frequency") == "detected"


def test_nothing_is_known(computer, monkeypatch):
    """Without sysfs, procfs and cpuid there still is a machine, all of it assumed but its cores."""
    computer.answer({})
    monkeypatch.setattr(platform, "machine", lambda: "")
    machine = computer.machine()
    known = {figure for figure, source in machine.sources if source != "assumed"}
    assert known == {"cores"}
    assert capacities(machine) == [32 * KIB, 256 * KIB, 2 * MIB, None]
    assert (machine.name, machine.vector_bits, machine.frequency) == ("unknown", 128, 3e9)


@pytest.mark.parametrize(("name", "registers"), [("arm64", 32), ("x86_64", 16), ("AMD64", 16)])
def test_features_of_the_architecture(computer, monkeypatch, name, registers):
    """Where no features are listed, those that every CPU of the architecture has are there."""
    computer.answer({"brand_raw": "Apple M9"})
    monkeypatch.setattr(platform, "machine", lambda: name)
    machine = computer.machine()
    assert (machine.vector_bits, machine.vector_registers) == (128, registers)
    assert machine.source("vector_bits") == "detected"


def test_cpuid_fills_in(computer):
    """cpuid is asked where the files say nothing, and its figures count as detected."""
    computer.answer(
        {
            "brand_raw": "Apple M9",
            "vendor_id_raw": "Apple",
            "family": 7,
            "flags": ["asimd", "fp"],
            "hz_advertised": (3_200_000_000, 0),
            "l1_data_cache_size": 65536,
            "l2_cache_size": "4 MiB",
        }
    )
    machine = computer.machine()
    assert machine.name == "apple-m9"
    assert capacities(machine) == [64 * KIB, 4 * MIB, None]
    assert machine.frequency == 3.2e9
    detected = {"L1.capacity", "L2.capacity", "frequency", "vector_bits"}
    assert not detected & assumed(machine)


def test_cpuid_that_fails_is_silence(monkeypatch):
    """py-cpuinfo raises on platforms that it does not know; then it says nothing."""
    import cpuinfo

    def fail():
        raise Exception("unknown platform")

    monkeypatch.setattr(cpuinfo, "get_cpu_info", fail)
    assert cpu_module._cpuid.__wrapped__() == {}


def test_frequency_prefers_the_highest(server):
    """The highest clock that the kernel would set counts more than the current one."""
    server.core(0, cpufreq__cpuinfo_max_freq=3300000)
    assert server.machine().frequency == 3.3e9
    server.core(0, cpufreq__cpuinfo_max_freq=0)
    assert server.machine().frequency == pytest.approx(1200.5e6)
    server.say({**INTEL, "cpu MHz": "0.000"})
    assert server.machine().frequency == 3e9
    assert "frequency" in assumed(server.machine())


@pytest.mark.parametrize(("twins", "threads"), [("0,4", 2), ("0-3", 4), ("0", 1), (None, 1)])
def test_threads_of_a_core_are_its_siblings(server, twins, threads):
    """What no sibling is named of has one, which is assumed."""
    if twins is None:
        (server.sys / "devices/system/cpu/cpu0/topology/thread_siblings_list").unlink()
    else:
        server.core(0, topology__thread_siblings_list=twins)
    machine = server.machine()
    assert machine.threads_per_core == threads
    assert machine.source("threads_per_core") == ("detected" if twins else "assumed")


@pytest.mark.parametrize(
    ("allowed", "cores"), [((0,), 1), ((0, 4), 1), ((0, 1, 4, 5), 2), (range(8), 4), ((99,), 1)]
)
def test_cores_are_those_of_the_affinity(server, allowed, cores):
    """Cores are counted among the CPUs allowed, two threads of one core once."""
    server.allow(*allowed)
    assert server.machine().cores == cores


def test_cores_without_affinity(computer, monkeypatch):
    """Where the system has no affinity, all CPUs count."""
    computer.say(INTEL)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    computer.answer({})
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert computer.machine().cores == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert computer.machine().cores == 1


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/\n", {"cpu.max": "max 100000"}, 4),
        ("0::/\n", {"cpu.max": "50000 100000"}, 1),
        ("0::/\n", {"cpu.max": "350000 100000"}, 3),
        ("0::/\n", {"cpu.max": ""}, 4),
        ("0::/\n", {"cpu.max": "junk"}, 4),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "300000 100000"}, 2),
        ("0::/a/b\n", {"cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/gone\n", {"cpu.max": "100000 100000"}, 1),
        ("0::/../x\n", {"cpu.max": "100000 100000"}, 1),
        (
            "3:cpu,cpuacct:/job\n1:name=systemd:/job\n",
            {"cpu/job/cpu.cfs_quota_us": "200000", "cpu/job/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ("3:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ("", {"cpu.max": "100000 100000"}, 4),
        ("nonsense\n", {}, 4),
    ],
)
def test_cores_are_those_of_the_control_group(server, groups, files, cores):
    """A control group's share of time, its own or a parent's, limits the cores."""
    server.allow(*range(8))
    server.put(server.proc / "self/cgroup", groups)
    for name, text in files.items():
        server.put(server.sys / "fs/cgroup" / name, text)
    assert server.machine().cores == cores


def test_lowest_core_with_caches_counts(computer):
    """Which core is looked at does not depend on where the process may run."""
    computer.say(INTEL)
    for core, size in ((10, "10K"), (2, "20K"), (3, "30K")):
        computer.cache(0, 1, "Data", size, core=core)
    computer.core(0, online=0)
    for allowed in ((2,), (3, 10)):
        computer.allow(*allowed)
        assert computer.machine().level("L1").capacity == 20 * KIB


def test_fingerprint_stays(server):
    """The clock, the affinity, the order of flags and the kernel's own flags change nothing."""
    first = detect_cpu(server.sys, server.proc).fingerprint
    assert first == server.machine().fingerprint
    server.allow(0, 1, 2)
    reordered = " ".join(["newkernelflag", *reversed(INTEL["flags"].split())])
    server.say({**INTEL, "cpu MHz": "3300.1", "flags": reordered, "microcode": "0x1"}, 3)
    server.core(0, cpufreq__cpuinfo_max_freq=3300000)
    assert detect_cpu(server.sys, server.proc).fingerprint == first
    assert set(first) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    ("change", "l2"),
    [
        ({"model name": "Another"}, "256K"),
        ({"flags": INTEL["flags"] + " avx512f"}, "256K"),
        ({"flags": "fpu sse sse2"}, "256K"),
        ({}, "512K"),
    ],
)
def test_fingerprint_of_another_cpu(server, change, l2):
    """Another model, other vector instructions or another cache make another fingerprint."""
    first = server.cpu().fingerprint
    server.say({**INTEL, **change})
    server.usual(l2=l2)
    assert server.cpu().fingerprint != first


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Intel(R) Core(TM) i7-6700K CPU @ 4.00GHz", "intel-core-i7-6700k"),
        ("AMD EPYC 9B45 128-Core Processor", "amd-epyc-9b45-128-core-processor"),
        ("../../etc/passwd", "etc-passwd"),
        ("龙芯", "cpu"),
    ],
)
def test_name_fits_a_file(computer, model, name):
    """The machine's name has letters, digits and hyphens only, whatever the model is called."""
    computer.say({**INTEL, "model name": model})
    computer.usual()
    assert computer.cpu().name == name


def test_threads(monkeypatch):
    """TILESOLVE_NUM_THREADS sets the threads; without it there is one."""
    monkeypatch.delenv("TILESOLVE_NUM_THREADS", raising=False)
    assert default_threads() == 1
    for text, count in (("1", 1), (" 12 ", 12), ("007", 7), ("", 1)):
        monkeypatch.setenv("TILESOLVE_NUM_THREADS", text)
        assert default_threads() == count


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "two", "1e3", "9" * 5000, "²"])
def test_bad_threads(monkeypatch, text):
    """A number of threads that is none is an error that names the variable."""
    monkeypatch.setenv("TILESOLVE_NUM_THREADS", text)
    with pytest.raises(SettingError, match="TILESOLVE_NUM_THREADS must be a positive integer"):
        default_threads()


def test_this_computer():
    """This computer, whatever it is, makes a valid machine, the same each time."""
    assert Machine.detect().fingerprint == Machine.detect().fingerprint == detect_cpu().fingerprint
    assert Machine.detect().cores >= 1
