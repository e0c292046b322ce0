"""How long tests wait: for a process that hangs, never for one that is slow."""

PATIENCE = 300.0
"""Seconds after which a child process or a thread is taken to hang, however busy the machine."""
