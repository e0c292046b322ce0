"""The system below: files, settings, locks, interrupts, threads, processes, array checks."""
