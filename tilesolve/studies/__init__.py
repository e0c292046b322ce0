"""Studies beside a sweep: cache misses, other tiles."""
