"""Queries: dependencies, cost estimates, incremental plans, and evaluation by Oxigraph in this or a forked process."""
