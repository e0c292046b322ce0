"""Contractions on GPUs: tiles of blocks and warps by the same solver and price, and what runs them."""
