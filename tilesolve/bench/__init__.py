"""Sweeps: how fast plans run beside peers.

`case` says what can be measured; `cases`, `layers` and `nests` have contractions, layers and nests.
`contenders` are who computes, `procedure` says how runs are timed. `run` measures, `results` keeps,
writes and shows what was found.
"""
