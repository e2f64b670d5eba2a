"""Delayed updates: the pending ones in memory and on disk, and the engine time that delays are measured in."""
