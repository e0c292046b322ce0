"""Sweeps and studies: how fast plans run beside peers, and how well the model predicts it.

`command` is ``tilesolve bench``. `cases` finds the problems, `contenders` the peers, `procedure`
says how runs are timed. `run` measures, `results` keeps, writes and shows sweeps, and `studies`
compares plans with each other and with simulated caches.
"""
