"""Solvers that misbehave, to be run in place of the real one."""

import os
import time


def aborts(_):
    os.write(2, b"SCIP: assertion failed\n")
    os.abort()


def hangs(_):
    time.sleep(600)
    return ""


def raises(_):
    raise ValueError("not a program")


def prints(text):
    os.write(1, b"a banner\n")
    print("another")
    return text
