"""Calibration data: real inputs, read from files or Python, checked before anything is changed."""
