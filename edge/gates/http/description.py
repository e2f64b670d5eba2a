"""The description of the HTTP interface for programs: OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from edge import __version__


@cache
def openapi() -> bytes:
    """The description as JSON."""
    import yaml  # not every gateway is ever asked

    text = resources.files(__package__).joinpath("openapi.yaml").read_text(encoding="utf-8")
    description: dict[str, Any] = yaml.safe_load(text)
    description["info"]["version"] = __version__
    return json.dumps(description).encode()
