"""Constants that no CPU has: cut-offs of the search, and what generated code is like.

What a CPU costs is measured, and stands in its machine file; see `tilesolve.machine.costs`.
"""
