"""Plans: what users hold, their files, cache, report and certificate."""
