"""A ranker that is learned from measured variants, judged on problems that it has not seen."""
