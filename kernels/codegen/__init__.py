"""Code generation: microkernels, packing and transposing kernels in LLVM IR, and object code."""
