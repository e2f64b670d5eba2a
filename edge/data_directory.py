"""The data directory without --data-dir. Commands and clients look there for a running gateway, so this imports no
library.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path


def configured_data_dir() -> Path | None:
    """Return the data directory that the settings file of `EDGE_CONFIG` names; None: no file, or it names none.

    Raises `ValueError` if the file cannot be read.
    """
    named = os.environ.get("EDGE_CONFIG")
    if not named:
        return None
    file = Path(named)
    try:
        found = tomllib.loads(file.read_text("utf-8")).get("data_dir")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"the settings file {file} (EDGE_CONFIG) cannot be read: {reason}") from None
    return file.absolute().parent / Path(found).expanduser() if isinstance(found, str) else None


def default_data_dir() -> Path:
    """Return the default data directory: systemd's `STATE_DIRECTORY`, else the XDG state directory."""
    if state := os.environ.get("STATE_DIRECTORY"):
        return Path(state.split(":")[0])
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "sepa-edge"
