"""Composition: schemes of loops around microkernels of several sizes, as TTile has them."""
