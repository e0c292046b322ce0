"""Ranking: variants of a plan, in the order that several rules put them in, and measured."""
