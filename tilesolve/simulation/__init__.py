"""Simulation: the trace of a nest and caches that it runs through, to hold the model against."""
