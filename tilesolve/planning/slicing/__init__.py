"""Slicing: convolutions as SConv tiles them, by closed formulas."""
