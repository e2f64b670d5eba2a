"""Places where announcements may be retained: stored, so that they can be removed after a change of the settings."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from edge import durable
from edge.announce.topics import Place

_log = logging.getLogger(__name__)

FILE_NAME: Final = "home-assistant-places.json"
"""File in the data directory."""


def load(file: Path) -> list[Place]:
    """Return the stored places; none if the file is missing. Damaged ones are ignored and logged."""
    try:
        listed = list(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        _unreadable(file, error)
        return []
    found = []
    for each in listed:
        try:
            found.append(Place(*(str(each[name]) for name in Place.__slots__)))
        except (ValueError, LookupError, TypeError) as error:
            _unreadable(file, error)
    return found


def _unreadable(file: Path, error: Exception) -> None:
    _log.error("announce.places_unreadable", extra={"file": str(file), "reason": str(error)})


def store(file: Path, places: Iterable[Place]) -> None:
    """Store the places; without any, remove the file. Failures are logged."""
    listed = [{name: getattr(each, name) for name in Place.__slots__} for each in places]
    try:
        if listed:
            durable.write(file, json.dumps(listed).encode())
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        _log.error("announce.places_not_stored", extra={"file": str(file), "reason": str(error)})
