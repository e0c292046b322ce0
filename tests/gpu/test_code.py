"""Kernels as PTX, and as NVIDIA's assembler makes them."""

import random
import re

import pytest
from cubins import count_instructions
from gpu_cases import (
    DTYPES,
    SPECS,
    draw_group_problem,
    draw_group_tiling,
    draw_problem,
    draw_tiling,
)
from turns import quick_pairs

from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.product import Product
from tilesolve.gpu.strategy import make_tiling, solve_for_device
from tilesolve.kernels.gpu.assembling import assemble, find_tool, make_code
from tilesolve.kernels.gpu.forms import GROUPED, Ending
from tilesolve.machine.device import Device

needs_assembler = pytest.mark.skipif(find_tool("ptxas") is None, reason="gpu-test is missing")

NAMES = {
    **dict.fromkeys(("float16", "bfloat16", "tf32"), "HMMA"),
    **{"float64": "DMMA", "int8": "IMMA"},
}
"""What tensor cores' instructions are called in assembled code."""

GROUP_NAMES = {**NAMES, **dict.fromkeys(("float16", "bfloat16", "tf32"), "HGMMA"), "int8": "IGMMA"}
"""What those of groups of four warps are called."""


def count_bulk_copies(form):
    """Those in a kernel's code: of the tiles ahead, and in its loop."""
    return (form.ahead + 1) * sum(map(form.pieces, form.boxed))


def make_form(arithmetic, extent=128):
    problem = DeviceProblem.of("ij-ik-kj", extent, DTYPES[arithmetic])
    product = Product.of(problem)
    depth = {"float16": 32, "bfloat16": 32, "int8": 64, "float64": 8}.get(arithmetic, 16)
    return make_tiling(product, arithmetic, (64, 64, depth), (2, 2), 3).form


@pytest.mark.parametrize("arithmetic", ["float16", "float64", "int8"])
def test_ptx_has_the_instructions_that_are_counted(arithmetic):
    form = make_form(arithmetic)
    text = make_code(form, 80).decode()
    assert len(re.findall(r"\bmma\.sync", text)) == form.instructions(80)
    assert f".maxntid {form.threads}" in text
    assert text.count("cp.async.cg") >= 4
    assert "st.local" not in text


def test_older_devices_copy_through_registers():
    form = make_form("float16")
    text = make_code(form, 75).decode()
    assert "cp.async" not in text
    assert len(re.findall(r"\bmma\.sync", text)) == form.instructions(75)


def test_what_a_target_lacks_is_an_error():
    """LLVM ends its process; ours goes on."""
    with pytest.raises(DeviceError):
        make_code(make_form("bfloat16"), 75)


@needs_assembler
@pytest.mark.parametrize(
    ("made_for", "chain"),
    quick_pairs(
        [
            ("float16", 75),
            ("float16", 80),
            ("bfloat16", 90),
            ("tf32", 80),
            ("float64", 90),
            ("int8", 80),
            ("int8", 90),
            ("fma32", 75),
            ("fma64", 80),
        ],
        ["", "* gelu"],
    ),
)
def test_drawn_kernels_do_not_spill(made_for, chain):
    arithmetic, capability = made_for
    rng = random.Random(arithmetic)
    chain = Epilogue.parse("" if arithmetic == "int8" else chain)
    product = Product.of(draw_problem(rng, arithmetic), chain, accumulate=bool(chain.operations))
    form = draw_tiling(rng, product, arithmetic).form
    made = assemble(form, capability)
    assert made.spilled == 0
    if (name := NAMES.get(arithmetic)) is not None:
        counted = count_instructions(made.cubin, rf"{name}[.\w]*")
        assert counted in (None, form.instructions(capability))


@pytest.mark.parametrize("arithmetic", ["float16", "int8"])
def test_ptx_has_the_instructions_of_groups(arithmetic):
    rng = random.Random(0)
    product = Product.of(draw_group_problem(rng, arithmetic, "ij-ik-jk"))
    form = draw_group_tiling(rng, product, arithmetic).form
    text = make_code(form, 90).decode()
    name = form.instruction.replace(" ", ".sync.aligned.")
    assert len(re.findall(rf"{name}\.", text)) == form.instructions(90)
    assert ".target sm_90a" in text
    # Products see copies, sums are read after products, and the swizzle needs where it begins.
    assert text.index("fence.proxy.async") < text.index("wgmma.fence") < text.index(name)
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.\dd\.", text)) == count_bulk_copies(form)
    assert text.rindex("wgmma.wait_group.sync.aligned 0") > text.rindex(name)
    assert re.search(r"\.shared \.align 1024 .*pool", text)


@needs_assembler
@pytest.mark.parametrize(("arithmetic", "chain"), quick_pairs(GROUPED, ["", "* gelu"]))
def test_drawn_kernels_of_groups_do_not_spill(arithmetic, chain):
    rng = random.Random(arithmetic)
    chain = Epilogue.parse("" if arithmetic == "int8" else chain)
    letters = "ij-ik-jk" if arithmetic in ("int8", "tf32") else rng.choice(SPECS)
    problem = DeviceProblem.of(letters, 48, DTYPES[arithmetic])
    product = Product.of(problem, chain, accumulate=bool(chain.operations))
    form = draw_group_tiling(rng, product, arithmetic).form
    made = assemble(form, 90)
    assert made.spilled == 0
    assert not made.serialized
    counted = count_instructions(made.cubin, rf"{GROUP_NAMES[arithmetic]}[.\w]*")
    assert counted in (None, form.instructions(90))
    assert form.boxed
    bulk = count_bulk_copies(form)
    assert count_instructions(made.cubin, r"UTMALDG[.\w]*") in (None, bulk)


@needs_assembler
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("h100", "float16"),
        pytest.param("rtx2080ti", "float16", marks=pytest.mark.slow),
        pytest.param("a100", "float16", marks=pytest.mark.slow),
        ("h100", "float64"),
        pytest.param("h200", "float32", marks=pytest.mark.slow),
        ("a100", "int8"),
    ],
)
def test_plans_have_the_registers_that_the_assembler_counts(name, dtype):
    device = Device.load(name)
    product = Product.of(DeviceProblem.of("ij-ik-kj", 4096, dtype))
    found = solve_for_device(product, device)
    form = found.tiling.form
    made = assemble(form, device.capability)
    assert found.assembled
    assert made.spilled == 0
    assert made.registers == found.registers
    if dtype in NAMES and not (device.capability < 80 and dtype == "float64"):
        names = GROUP_NAMES if form.grouped else NAMES
        counted = count_instructions(made.cubin, rf"{names[dtype]}[.\w]*")
        assert counted in (None, form.instructions(device.capability))
        bulk = count_bulk_copies(form)
        assert count_instructions(made.cubin, r"UTMALDG[.\w]*") in (None, bulk)
        assert bool(bulk) == form.grouped


@pytest.mark.slow
@needs_assembler
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_plans_whose_chunks_are_narrow_do_not_spill(dtype):
    """Odd sides are copied element by element, with a register for each chunk of deep tiles."""
    device = Device.load("h100")
    found = solve_for_device(Product.of(DeviceProblem.of("ij-ik-jk", 1023, dtype)), device)
    assert max(own.width for own in found.form.operands) == 1
    assert found.assembled
    assert assemble(found.form, device.capability).spilled == 0


@needs_assembler
def test_parts_are_added_without_spilling():
    for arithmetic in ("float16", "float64"):
        assert assemble(Ending(arithmetic, ((False, True),)), 80).spilled == 0
