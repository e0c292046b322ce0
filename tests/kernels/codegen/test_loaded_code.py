"""Object files in memory: wherever that lies, protected, given back, and refused with a word."""

import ctypes
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from commands import run_python
from llvmlite import ir

from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu, target

SUPPORT = Path(__file__).parents[2] / "support"

LOAD = """
import ctypes, llvmlite.binding as llvm
from address_space import leave_distant_holes
from tilesolve.kernels.codegen.loaded_code import LoadedCode
code = bytes.fromhex("{code}")
{before}
kept = [LoadedCode(code) for _ in range(300)]
for one in kept:
    f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(one.address("add"))
    assert f(1.0) == 4.25
"""


def make(name="add", calls=None, size=0):
    """Return an object file: a function that adds constants, of sections of their own.

    It may call another function first, and have a table of so many numbers.
    """
    kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
    module = ir.Module()
    module.triple = llvm.get_default_triple()
    function = ir.Function(module, kind, name)
    builder = ir.IRBuilder(function.append_basic_block())
    value = function.args[0]
    if calls:
        value = builder.call(ir.Function(module, kind, calls), [value])
    value = builder.fadd(value, ir.Constant(value.type, 3.25))
    if size:
        table = ir.GlobalVariable(module, ir.ArrayType(ir.DoubleType(), size), "table")
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(table.value_type, [float(at) for at in range(size)])
        at = builder.fptosi(value, ir.IntType(64))
        place = builder.gep(table, [ir.IntType(64)(0), at])
        value = builder.load(place)
    builder.ret(value)
    return target(TargetCpu.here()).emit_object(llvm.parse_assembly(str(module)))


def call(loaded, value, name="add"):
    """Return what a function returns."""
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address(name))(value)


def run(*words):
    """Run Python in a process of its own, with what tests share."""
    paths = os.pathsep.join((str(SUPPORT), *sys.path))
    return run_python(
        "-P", *words, env=os.environ | {"PYTHONPATH": paths, "TILESOLVE_PROGRESS": "off"}
    )


@pytest.mark.parametrize("calls", [None, "floor"])
def test_hundreds_of_objects_lie_anywhere(calls):
    """Also where free pages are further apart than an access relative to the code reaches."""
    code = LOAD.format(code=make(calls=calls).hex(), before="leave_distant_holes(100)")
    done = run("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "situation",
    ["holes", *(pytest.param(one, marks=pytest.mark.slow) for one in ("arrays", "torch"))],
)
def test_all_code_runs_whatever_is_in_memory(situation):
    """Distant holes, 4 GB of arrays before anything is compiled, or a large library."""
    if situation == "torch":
        pytest.importorskip("torch")
    done = run(str(SUPPORT / "all_code.py"), situation)
    assert (done.returncode, done.stderr) == (0, "")


def test_code_cannot_be_written():
    """Nor can its constants be executed."""
    loaded = LoadedCode(make(size=1000))
    assert call(loaded, 6.0) == 9.0
    address = loaded.address("add")
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
        if int(begin, 16) <= address < int(end, 16):
            assert rights == "r-xp"
            break
    else:
        pytest.fail("the code lies nowhere")


def count_bytes(column):
    """Bytes that the process has addresses of (0) or memory for (1).

    Other threads of the test runner take some, too: tests of what is given back try up to thrice.
    """
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[column]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_given_back():
    """With the last reference to the code."""
    code = make(size=20_000)

    def grow():
        before = count_bytes(0)
        for _ in range(50):
            assert call(LoadedCode(code), 6.0) == 9.0
        return count_bytes(0) - before

    LoadedCode(code)
    assert any(grow() < 10 * len(code) for _ in range(3))


def test_little_is_kept_of_what_is_gone():
    """However many objects come and go, one by one or beside one that stays."""
    code = make()
    stays = LoadedCode(code)

    def grow():
        before = count_bytes(1)
        for _ in range(500):
            LoadedCode(code)
        return count_bytes(1) - before

    for _ in range(200):
        LoadedCode(code)
    assert any(grow() < 2**20 for _ in range(3))
    assert call(stays, 1.0) == 4.25


def test_objects_of_equal_names_are_apart():
    """Each has its own functions, and what it calls is the process's."""
    one, other = LoadedCode(make(calls="floor")), LoadedCode(make(calls="ceil"))
    assert (call(one, 1.5), call(other, 1.5)) == (4.25, 5.25)


def test_unknown_functions():
    """That are asked for, or that the code calls."""
    with pytest.raises(KeyError, match="sub"):
        LoadedCode(make()).address("sub")
    with pytest.raises(MachineError, match="calls no_such_function, which this process lacks"):
        LoadedCode(make(calls="no_such_function"))


def test_threads_load_at_once():
    """Each object by itself."""
    names = "abcdefgh"
    codes = [make(name, size=100) for name in names]

    def load(at):
        return [call(LoadedCode(code), at, name) for name, code in zip(names, codes, strict=True)]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(load, range(20)))
    assert found == [[at + 3.0] * len(codes) for at in range(20)]


def test_a_forked_process_goes_on_loading():
    """And runs what was loaded before."""
    code = make()
    loaded = LoadedCode(code)
    child = os.fork()
    if not child:
        right = call(loaded, 1.0) == call(LoadedCode(code), 1.0) == 4.25
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


SHORT = """
import resource, sys
from tilesolve.contractions.errors import MemoryLimitError
from tilesolve.kernels.codegen.loaded_code import LoadedCode
small, large = (open(path, "rb").read() for path in sys.argv[1:])
LoadedCode(small)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for left in (0, 1 << 20, 5 << 20, 10 << 20):
    resource.setrlimit(resource.RLIMIT_AS, (used + left, -1))
    kept = []
    try:
        while True:
            kept.append(LoadedCode((small, large)[len(kept) % 2]))
    except MemoryLimitError as error:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert "machine code cannot be loaded: the system gives no memory" in str(error)
    del kept
    LoadedCode(large)
"""


def test_short_memory_is_an_error(tmp_path):
    """That a caller can catch; what comes later runs."""
    (tmp_path / "small").write_bytes(make())
    (tmp_path / "large").write_bytes(make(size=10_000))
    done = run("-c", SHORT, str(tmp_path / "small"), str(tmp_path / "large"))
    assert (done.returncode, done.stderr) == (0, "")
