"""The HTTP gate: the SPARQL 1.1 Protocol, the page, health and metrics."""

from edge.gates.http.gate import HttpGate
from edge.gates.http.views import Views

__all__ = ["HttpGate", "Views"]
