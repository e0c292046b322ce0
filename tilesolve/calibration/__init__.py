"""Calibration: measuring bandwidths, peaks and microkernels of this computer."""
