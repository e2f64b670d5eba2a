"""Settings of the gateway, from a TOML file and the environment."""

from edge.config.loading import ConfigurationError, Loaded, load, read_password
from edge.config.models import (
    PACKS,
    EngineSettings,
    HostSettings,
    HttpSettings,
    LogSettings,
    MappingsSettings,
    MqttSettings,
    ObservationsSettings,
    SecuritySettings,
    Settings,
    ShutdownSettings,
    WsSettings,
)

__all__ = [
    "PACKS",
    "ConfigurationError",
    "EngineSettings",
    "HostSettings",
    "HttpSettings",
    "Loaded",
    "LogSettings",
    "MappingsSettings",
    "MqttSettings",
    "ObservationsSettings",
    "SecuritySettings",
    "Settings",
    "ShutdownSettings",
    "WsSettings",
    "load",
    "read_password",
]
