"""The movement model: what each level of memory moves for a nest, and what that costs."""
