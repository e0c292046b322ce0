"""What runs inside a call: compiled loops over tiles, packing, prefetch, staging and transposes."""
