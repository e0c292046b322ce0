"""Sweeps: how fast plans run beside peers.

`case` says how a case is measured; `cases`, `layers` and `nests` have contractions, layers and
nests. `contenders` are the libraries that compute, `procedure` says how runs are timed. `run`
measures, `results` keeps, writes and shows the results.
"""
