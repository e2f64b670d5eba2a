"""Measurements, as figures and ratios of one run; never tests."""
