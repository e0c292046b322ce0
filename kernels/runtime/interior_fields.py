"""Fields of an interior point: what `interior_steps` knows of a program and of its iterates.

`tilesolve.solver.interior` writes them. First come numbers, then addresses of arrays of doubles and
of integers: those of the program, those of the point, and what is worked out on the way.
"""

from __future__ import annotations

VARIABLES = 0
"""Logarithms of sizes, and the longest time if that is one of them."""

TERMS = 1

SUMS = 2

ROWS = 3
"""Sums that are bounded."""

LINES = 4
"""Linear limits: pairs in order, lower and upper bounds."""

LESS = 5
"""Terms that sums take off."""

TIMED = 6
"""Whether the last variable is the longest time, which bounds the sums that are minimised."""

STEP = 7
"""How many steps were made."""

# Addresses of the program's arrays

POWERS = 8
"""A row of exponents for each term."""

LOGS = 9

SUM_OF = 10
"""The sum of each term, as an integer."""

OPENS = 11
"""For each sum 1 if it is minimised, else 0."""

BOUNDS = 12
"""What each sum may be at most, beside the time where that is what is minimised."""

ROW_SUMS = 13
"""The sums that are bounded, as integers."""

ENDS = 14
"""What each linear limit may be at most."""

LESS_POWERS = 15

LESS_LOGS = 16

LESS_OF = 17
"""The sum that each of these terms is taken off, as an integer."""

OPTIONS = 18

# The point

X = 19

SLACKS = 20

DUALS = 21

SHARE = 22
"""One number: the share of the gap that the next step aims at."""

# What is worked out

TOTALS = 23
"""Each sum."""

SLOPES = 24
"""The gradient of each sum's logarithm, less that of its bound's."""

SHARES = 25
"""Each term's share of its sum."""

ROOM = 26
"""What bounds each sum."""

WEIGHTS = 27
"""Of each sum's logarithm: its multiplier."""

EXTRA = 28
"""What each sum adds to the objective."""

FALLS = 29
"""The gradient of what each sum takes off."""

GRADIENT = 30

HESSIAN = 31

CONCAVE = 32
"""The part of it that may lead to no minimum."""

LIMITS = 33

LIMIT_SLOPES = 34
"""A row for each limit; those of linear ones stay."""

MATRIX = 35

MOVE = 36

SLACK_MOVES = 37

DUAL_MOVES = 38

MISSED = 39
"""By how much each limit and its slack differ from 0."""

PARTS = 40
"""Each term that is taken off."""

SIZE = 41

# Options

GAP, LEAST_GAP, RESIDUAL, REACH, WHOLE_STEP, NEAR_SHARE, FAR_SHARE, SCALE = range(8)
"""See `INTERIOR_GAP` and those after it; the scale is that of sums beside the longest time."""
