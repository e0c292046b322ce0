"""Transposes: copies of arrays in another order of axes."""
