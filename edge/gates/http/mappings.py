"""Resources of the mapping files: list, read, write, delete, and a test with a message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.requests import Request

from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.errors import InvalidRequest, UnsupportedMediaType
from edge.protocol.json_faults import json_fault

_MOST: Final = 256 * 1024
"""Bytes of a mapping file."""
_TYPES: Final = ("", "text/plain")
_EXAMPLE: Final = '{"topic": "room/1", "payload": "21.5", "name": "rooms", "text": "[[mapping]] ..."}'


class MappingDocuments(Protocol):
    """The operator's mapping files. Any thread may call it. Its methods raise `EdgeError`."""

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Return a JSON object for each file."""

    def read(self, name: str, *, previous: bool = False) -> str:
        """Return the text of a file, or of its previous version."""

    def write(self, name: str, text: str) -> None:
        """Check and write a file. Its mappings apply when this returns."""

    def delete(self, name: str) -> None:
        """Delete a file."""

    def test(self, topic: str, payload: bytes, name: str, text: str | None) -> Mapping[str, object]:
        """Return what the gateway would make of a message, with this text as the file."""


@dataclass(frozen=True, slots=True)
class MappingTest:
    """A message, and the file that it tests."""

    topic: str
    payload: bytes
    name: str
    text: str | None


def wants_previous(request: Request) -> bool:
    """Return whether the request is for the previous version of a file. Raises `InvalidRequest`."""
    value = request.query_params.get("previous", "false")
    if value not in ("true", "false"):
        raise InvalidRequest(f'"previous" is {json.dumps(value)}; it can be "true" or "false"')
    return value == "true"


async def read_document(request: Request, settings: HttpGateSettings) -> str:
    """Return the text of a mapping file that a PUT sends. Raises the errors of `read_text`."""
    if content_type(request).media_type not in _TYPES:
        raise UnsupportedMediaType("Send the mapping file as text/plain")
    return await read_text(request, settings, _MOST)


async def read_test(request: Request, settings: HttpGateSettings) -> MappingTest:
    """Return the test that a POST requests. Raises `InvalidRequest`, and the errors of `read_text`."""
    try:
        wanted = json.loads(await read_text(request, settings, 4 * _MOST))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The body", error)) from None
    members = wanted if isinstance(wanted, dict) else {}
    topic, name, text = members.get("topic"), members.get("name", "new"), members.get("text")
    if not isinstance(topic, str) or not isinstance(name, str) or not (text is None or isinstance(text, str)):
        raise InvalidRequest(f"Send a JSON object of texts, for example {_EXAMPLE}")
    try:
        for each in (topic, name, text or ""):
            each.encode()
        return MappingTest(topic, _payload(members), name, text)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"The body has half a surrogate pair, which is not a character: {error.reason}") from None


def _payload(members: Mapping[str, object]) -> bytes:
    payload, digits = members.get("payload"), members.get("hex")
    if isinstance(payload, str) and digits is None:
        return payload.encode()
    if isinstance(digits, str) and payload is None:
        try:
            return bytes.fromhex(digits)
        except ValueError:
            raise InvalidRequest('"hex" is not hexadecimal, such as 01 00 D7') from None
    raise InvalidRequest(f'A test needs one of "payload" (a text) and "hex" (bytes), for example {_EXAMPLE}')
