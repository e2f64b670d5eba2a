"""What operators see of the process: its log, its settings, and the administration commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edge.config import Settings
from edge.gateway.administration_tools import AdministrationTools
from edge.log_memory import LogMemory


@dataclass(frozen=True, slots=True)
class Launch:
    """What the command that starts a gateway knows, besides the settings."""

    origins: Mapping[str, str] = field(default_factory=dict)
    """Source of each setting that does not have its default."""
    log: LogMemory = field(default_factory=LogMemory)
    """The last log lines."""


class Maintenance:
    """See `edge.gates.http.maintenance.Maintenance`."""

    def __init__(self, settings: Settings, launch: Launch, restart: Callable[[], None]) -> None:
        """`restart` stops the gateway and starts it again, soon."""
        self.restart = restart
        self._settings = settings
        self._launch = launch
        self.tools = AdministrationTools(settings.data_dir)

    def log(self, level: str, text: str, most: int) -> list[str]:
        """Return the last log lines, oldest first, each a JSON object."""
        return self._launch.log.read(level, text, most)

    def settings(self) -> str:
        """Return the settings in effect as TOML, without secrets."""
        from edge.config.reference import to_toml  # not every gateway is ever asked

        return to_toml(self._settings, self._launch.origins)
