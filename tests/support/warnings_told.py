"""What was told once in this process."""

from tilesolve.machine import model
from tilesolve.system import files


def forget_what_was_told():
    """Have files of machines read, and what is wrong with them told, again."""
    files._warned.clear()
    model._read_machine.cache_clear()
