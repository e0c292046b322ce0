"""The kit that machine code is made from: vectors, masks, arithmetic and functions in LLVM IR."""
