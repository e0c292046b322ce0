"""Devices and the occupancy calculator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.errors import MachineError
from tilesolve.gpu.occupancy import find_occupancy
from tilesolve.machine.device import Device, list_devices


@pytest.mark.parametrize("name", list_devices())
def test_shipped_devices_are_read_and_written(name):
    device = Device.load(name)
    assert device.name == name
    assert Device.from_toml(device.to_toml()) == device
    rates = [level.bandwidth for level in device.levels]
    assert rates == sorted(rates, reverse=True)
    assert device.shared_block <= device.level("shared").capacity


@pytest.mark.parametrize("text", ["", "name = 3", "level = 3\npeak = 4", "level = [{}]\n[peak]\n"])
def test_files_that_are_no_devices_are_errors(text):
    with pytest.raises(MachineError):
        Device.from_toml(text)


@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared", "blocks", "share"),
    [
        # The Best Practices Guide, of compute capability 7.0, whose limits 7.2 shares.
        ("xavier", 128, 37, 0, 12, 0.75),
        ("xavier", 320, 37, 0, 4, 0.625),
        ("xavier", 256, 32, 0, 8, 1.0),
        # Chapter 6 of the thesis: 512 threads of 64 registers and 2 KiB.
        ("rtx2080ti", 512, 64, 2048, 2, 1.0),
        # A whole multiprocessor's shared memory, less what each block has besides.
        ("a100", 128, 64, 163 * 1024, 1, 0.0625),
        ("h100", 128, 64, 113 * 1024, 2, 0.125),
        ("h100", 1024, 32, 0, 2, 1.0),
        ("h100", 1024, 65, 0, 0, 0.0),
    ],
)
def test_occupancy_is_what_nvidia_publishes(name, threads, registers, shared, blocks, share):
    found = find_occupancy(Device.load(name), threads, registers, shared)
    assert (found.blocks, found.share) == (blocks, share)


@given(
    st.sampled_from([Device.load(name) for name in list_devices()]),
    st.integers(1, 1100),
    st.integers(1, 300),
    st.integers(0, 240 * 1024),
)
def test_blocks_never_take_more_than_there_is(device, threads, registers, shared):
    found = find_occupancy(device, threads, registers, shared)
    assert found.blocks * -(-threads // 32) <= device.warps
    assert found.blocks * registers * threads <= device.registers
    assert found.blocks * (shared + device.shared_reserved) <= device.level("shared").capacity
    if not found.blocks:
        return
    more = find_occupancy(device, threads, max(1, registers - 1), max(0, shared - 1))
    assert more.blocks >= found.blocks
