"""Machine code: the generated kernels and the micro-benchmarks."""
