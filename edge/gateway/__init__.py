"""Composition: creates all components from the settings, and stops them in order."""

from edge.gateway.errors import StartError, StopError
from edge.gateway.gateway import Gateway
from edge.gateway.maintenance import Launch

__all__ = ["Gateway", "Launch", "StartError", "StopError"]
