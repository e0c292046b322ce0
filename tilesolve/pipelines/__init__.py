"""Functions of NumPy, and statements one after another, as plans."""
