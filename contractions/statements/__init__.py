"""What a nest computes: positions, terms and stages, and the text that they are read from."""
