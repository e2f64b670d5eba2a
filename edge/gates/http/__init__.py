"""The HTTP gate: the SPARQL 1.1 Protocol, the page, health and metrics."""

from edge.gates.http.app import Views
from edge.gates.http.gate import HttpGate

__all__ = ["HttpGate", "Views"]
