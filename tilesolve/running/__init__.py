"""Running: what each thread does for arrays of given strides."""
