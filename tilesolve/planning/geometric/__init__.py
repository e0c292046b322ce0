"""The geometric program: tile sizes by continuous optimum, then integers."""
