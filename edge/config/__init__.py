"""Settings of the gateway, from a TOML file and the environment."""

from edge.config.models import (
    PACKS,
    EngineSettings,
    HostSettings,
    HttpSettings,
    LogSettings,
    MappingsSettings,
    MqttSettings,
    ObservationsSettings,
    Settings,
    ShutdownSettings,
    WsSettings,
)

__all__ = [
    "PACKS",
    "EngineSettings",
    "HostSettings",
    "HttpSettings",
    "LogSettings",
    "MappingsSettings",
    "MqttSettings",
    "ObservationsSettings",
    "Settings",
    "ShutdownSettings",
    "WsSettings",
]
