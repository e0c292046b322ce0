"""A plugin of pytest: opt_einsum's tests with tilesolve where they would take numpy."""

from importlib import import_module

import tilesolve

contract = import_module("opt_einsum.contract")  # a function has its name, too
_parse, _calls = contract.parse_backend, []


def parse_backend(arrays, backend):
    """Return ours for arrays of numpy."""
    found = _parse(arrays, backend)
    _calls.append(found)
    return "tilesolve" if found == "numpy" else found


contract.parse_backend = parse_backend


def pytest_terminal_summary(terminalreporter):
    """Say how often ours was taken."""
    terminalreporter.write_line(f"{tilesolve.__name__} computed {_calls.count('numpy')} times")
