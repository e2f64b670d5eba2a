"""Resource for the profile of an application (JSAP): its entries, and the text of one with values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.errors import InvalidRequest, UnsupportedMediaType
from edge.protocol.json_faults import json_fault

_JSON: Final = "application/json"
_LARGEST: Final = 256 * 1024
"""Bytes of a request body."""
_KINDS: Final = ("query", "update")
_EXAMPLE: Final = (
    '{"name": "chat.jsap", "text": "{...}", "kind": "update", "entry": "SEND", "bindings": {"text": "Hi"}}'
)


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A profile, and the entry whose text is wanted."""

    name: str
    """File name: the ending decides between JSON and YAML."""
    text: str
    kind: str
    """`query` or `update`; empty: only the entries are wanted."""
    entry: str
    bindings: Mapping[str, object]
    """Values by variable: texts, numbers, booleans, or binding objects of the SPARQL JSON results."""


ReadProfile = Callable[[ProfileRequest], Mapping[str, object]]
"""Returns the entries of a profile with their variables, and the text of the wanted one. Any thread may call it.

Raises `InvalidRequest`.
"""


async def read_profile_request(request: Request, settings: HttpGateSettings) -> ProfileRequest:
    """Return what a POST requests. Raises `InvalidRequest`, `UnsupportedMediaType`, and the errors of `read_text`."""
    if content_type(request).media_type != _JSON:
        raise UnsupportedMediaType(f"Send {_JSON}, for example {_EXAMPLE}")
    try:
        found = json.loads(await read_text(request, settings, _LARGEST))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The body", error)) from None
    members = found if isinstance(found, dict) else {}
    bindings = members.get("bindings", {})
    name: Any = members.get("name", "profile.jsap")
    text: Any = members.get("text")
    kind, entry = members.get("kind", ""), members.get("entry", "")
    if not all(isinstance(each, str) for each in (name, text, kind, entry)) or not isinstance(bindings, dict):
        raise InvalidRequest(f"Send an object like {_EXAMPLE}; kind, entry and bindings may be left out")
    if kind and kind not in _KINDS:
        raise InvalidRequest('"kind" can be "query" or "update"')
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"The body has half a surrogate pair, which is not a character: {error.reason}") from None
    return ProfileRequest(name, text, kind, entry, bindings)
