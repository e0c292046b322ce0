"""What stands in assembled code for GPUs."""

import re
import subprocess
import tempfile

from tilesolve.kernels.gpu.assembling import find_tool


def count_instructions(cubin: bytes, name: str) -> int | None:
    """Return how often an instruction stands in assembled code; None where there is no reader.

    Examples
    --------
    >>> count_instructions(b"", "HMMA") in (None, 0)
    True
    """
    tool = find_tool("nvdisasm")
    if tool is None or not cubin:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True)
    return len(re.findall(rf"\b{name}\b", told.stdout))
