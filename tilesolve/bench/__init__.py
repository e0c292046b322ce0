"""Sweeps: how fast plans run beside peers, and how well the model foresees it.

`tilesolve bench` is the command. `cases` says what is measured, `contenders` and `peers` who
computes, `worker` and `team` are the processes, `sweep` takes turns, `results` keeps what was
found, and the other modules show it.
"""
