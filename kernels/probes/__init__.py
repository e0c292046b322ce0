"""Micro-benchmarks: bandwidths of levels, rates of microkernels."""
