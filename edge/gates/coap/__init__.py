"""The CoAP gate: query, update, subscriptions and readings for constrained devices (RFC 7252).

Importing it takes memory and time, so who composes the gateway does so only where the gate is wanted.
"""

from edge.gates.coap.gate import CoapGate

__all__ = ["CoapGate"]
