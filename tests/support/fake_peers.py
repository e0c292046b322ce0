"""Contenders that misbehave, each in one way, on any problem but the tiny one made ready first."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from tilesolve.bench.run.peers import write_einsum


def right(problem, machine, threads, operands, out):
    """What the others do before they go wrong."""
    text = write_einsum(problem)
    return lambda: np.einsum(text, *operands, out=out)


def _fake(go_wrong, *, from_run=1):
    """Return a maker whose runs go wrong from a certain one on; the tiny problem goes well."""

    def make(problem, machine, threads, operands, out):
        run = right(problem, machine, threads, operands, out)
        if max(problem.sizes.values()) <= 3:
            return run
        runs = 0

        def faulty():
            nonlocal runs
            runs += 1
            result = run()
            if runs >= from_run:
                go_wrong(operands, result)
            return result

        return faulty

    return make


def _everywhere(operands, result):
    result *= 1.01


def _once(operands, result):
    result.flat[result.size // 2 + 1] += 1.0


def _crash(*_):
    os.kill(os.getpid(), signal.SIGSEGV)


def _quit(*_):
    print("out of luck", file=sys.stderr)
    os._exit(3)


def _leave_a_child(*_):
    if os.fork():
        os._exit(3)
    time.sleep(600)


def _hang_up(*_):
    os.close(int(sys.argv[1]))
    time.sleep(600)


def _raise(*_):
    raise ValueError("this peer\ndoes not like the problem")


def _hang(*_):
    time.sleep(600)


def _spoil(operands, result):
    operands[0].flat[0] = operands[0].flat[0] + 1.0
    operands[0][...] = 2 * operands[0]


def compiling(*_):
    """A maker that does not end."""
    time.sleep(600)


wrong = _fake(_everywhere)
subtly_wrong = _fake(_once)
crashing = _fake(_crash)
quitting = _fake(_quit)
raising = _fake(_raise)
hanging = _fake(_hang)
hanging_later = _fake(_hang, from_run=3)
crashing_later = _fake(_crash, from_run=3)
spoiling = _fake(_spoil)
leaving_a_child = _fake(_leave_a_child)
hanging_up = _fake(_hang_up)


def _seeing(offset):
    """Return a maker that takes no arrays but those that begin so many bytes after a line."""

    def make(problem, machine, threads, operands, out):
        for array in (*operands, out):
            assert array.ctypes.data % 64 == offset
        return right(problem, machine, threads, operands, out)

    return make


seeing_0, seeing_16 = _seeing(0), _seeing(16)
