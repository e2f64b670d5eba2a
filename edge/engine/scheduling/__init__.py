"""Scheduling: the writer thread, the queues in front of it, and the threads that work off it."""
