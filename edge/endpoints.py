"""File in the data directory with the addresses of a running gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edge import durable

NAME: Final = "endpoints.json"

DEFAULTS: Final = {
    "http": "http://127.0.0.1:8000",
    "ws": "ws://127.0.0.1:9000/subscribe",
    "mqtt": "mqtt://127.0.0.1:1883",
}
"""Addresses of a gateway with default settings."""


def write(data_dir: Path, endpoints: Mapping[str, str]) -> None:
    """Write the file atomically. Raises `OSError`."""
    file = data_dir / NAME
    durable.write(file, (json.dumps(dict(endpoints), indent=2) + "\n").encode(), draft=file.with_suffix(".part"))


def remove(data_dir: Path) -> None:
    """Remove the file, if it exists."""
    (data_dir / NAME).unlink(missing_ok=True)


def read(data_dir: Path) -> dict[str, str]:
    """Return URL by service. Raises `OSError` without the file, `ValueError` for a file of another program."""
    found = json.loads((data_dir / NAME).read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one error for all that is wrong with the content
    return {str(service): str(url) for service, url in found.items()}
