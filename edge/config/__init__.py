"""Settings of the gateway, from a TOML file and the environment."""

from edge.adapters.settings import PACKS
from edge.config.loading import ConfigurationError, Loaded, load
from edge.config.models import Settings

__all__ = ["PACKS", "ConfigurationError", "Loaded", "Settings", "load"]
