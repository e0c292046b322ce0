"""Contractions on GPUs: tiles by the same solver and price, and what runs them."""
