"""Observations on their way to the Spark store: stored with the update that made them, cut into segments, shipped."""
