"""The WebSocket gate: the SPARQL 1.1 Subscribe Language over RFC 6455."""

from edge.gates.ws.gate import WsGate

__all__ = ["WsGate"]
