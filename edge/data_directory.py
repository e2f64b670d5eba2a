"""The default data directory. Commands and clients look there for a running gateway, so this imports no library."""

from __future__ import annotations

import os
from pathlib import Path


def default_data_dir() -> Path:
    """Return the default data directory: systemd's `STATE_DIRECTORY`, else the XDG state directory."""
    if state := os.environ.get("STATE_DIRECTORY"):
        return Path(state.split(":")[0])
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "sepa-edge"
