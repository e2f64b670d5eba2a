"""Backtests: stored observations are played through a gateway's engine, with a simulated clock.

The package has no sockets, no threads and no Spark. `replay` is its entry.
"""
