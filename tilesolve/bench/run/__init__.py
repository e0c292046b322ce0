"""Running a sweep: peers in processes of their own, in turns."""
