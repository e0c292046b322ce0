"""Planning: from a problem and a machine to a solution."""
