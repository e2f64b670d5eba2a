"""Composition: builds the house from its settings, and takes it down in order."""

from edge.gateway.errors import StartError, StopError
from edge.gateway.gateway import Gateway

__all__ = ["Gateway", "StartError", "StopError"]
