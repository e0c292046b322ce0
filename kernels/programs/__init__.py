"""Loop programs: values that are printed, interpreted and lowered to machine code."""
