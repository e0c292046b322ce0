"""Expressions: einsum, tensordot and contractions that are compiled once and called often."""
