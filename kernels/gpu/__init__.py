"""Kernels for GPUs: one emitter, and a table of what targets do in their own way."""
