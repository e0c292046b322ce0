"""Machines: levels, peaks and costs, their file, what is detected, and kernels kept for them."""
