"""How many blocks of threads a multiprocessor holds at once: NVIDIA's occupancy calculator."""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.kernels.gpu.forms import WARP
from tilesolve.machine.device import Device


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks at once on a multiprocessor, 0 where one asks for more than there is; and their warps.

    `share` is of the warps that it could hold. What keeps it from more is the limit: ``warps``,
    ``blocks``, ``registers`` or ``shared``.
    """

    blocks: int
    warps: int
    share: float
    limit: str


def find_occupancy(device: Device, threads: int, registers: int, shared: int) -> Occupancy:
    """Return how many blocks a multiprocessor holds at once.

    Threads and bytes of shared memory are of a block, registers of a thread.

    Examples
    --------
    512 threads of 64 registers fill a multiprocessor of compute capability 7.5:

    >>> find_occupancy(Device.load("rtx2080ti"), 512, 64, 2048)
    Occupancy(blocks=2, warps=32, share=1.0, limit='warps')
    """
    warps = -(-threads // WARP)
    held = -(-max(registers, 1) * WARP // device.register_unit) * device.register_unit
    able = device.registers // held // device.warp_unit * device.warp_unit
    asked = shared + device.shared_reserved
    asked = -(-asked // device.shared_unit) * device.shared_unit
    room = device.level("shared").capacity or 0
    limits = {
        "warps": device.warps // warps,
        "blocks": device.blocks,
        "registers": able // warps,
        "shared": room // asked if asked else device.blocks,
    }
    impossible = (
        threads > device.block_threads
        or registers > device.thread_registers
        or shared > device.shared_block
    )
    limit = min(limits, key=limits.__getitem__)
    blocks = 0 if impossible else limits[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / device.warps, limit)
