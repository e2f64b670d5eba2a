"""Comparison with other gateways: the same readings and the same rule, one side after the other in one run."""

from edge.bench.peers.comparison import run

__all__ = ["run"]
