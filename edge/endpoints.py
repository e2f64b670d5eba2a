"""The file in the data directory that tells where a running gateway listens."""

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
"""Where a gateway listens that nobody gave settings."""


def write(data_dir: Path, endpoints: Mapping[str, str]) -> None:
    """Put the file there as a whole: a reader finds all of it or none. Raises `OSError`."""
    file = data_dir / NAME
    durable.write(file, (json.dumps(dict(endpoints), indent=2) + "\n").encode(), draft=file.with_suffix(".part"))


def remove(data_dir: Path) -> None:
    """Take the file away; it may be gone already."""
    (data_dir / NAME).unlink(missing_ok=True)


def read(data_dir: Path) -> dict[str, str]:
    """Service to URL. Raises `OSError` where there is no file, `ValueError` where it is not one of ours."""
    found = json.loads((data_dir / NAME).read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one error for all that is wrong with the content
    return {str(service): str(url) for service, url in found.items()}
