"""Convolution layers as people call them: once, many times with the same weights, or in a model."""
