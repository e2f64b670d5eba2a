"""Resources of the mapping files, a test with a message, and the newest message of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from edge.gates.http.documents import DocumentKind, DocumentResources, Documents, Endpoint, read_members, to_json
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotReady

_KIND: Final = DocumentKind(
    "/api/mappings",
    "text/plain",
    ("", "text/plain"),
    "Mapping files write to the graph, and their actuators read any graph and publish on any topic",
)
_EXAMPLE: Final = '{"topic": "room/1", "payload": "21.5", "name": "rooms", "text": "[[mapping]] ..."}'


class MappingDocuments(Documents, Protocol):
    """The operator's mapping files. A written one applies at once."""

    def test(self, topic: str, payload: bytes, name: str, text: str | None) -> Mapping[str, object]:
        """Return what the gateway would make of a message, with this text as the file."""

    def newest_message(self, topic_filter: str) -> Mapping[str, object] | None:
        """Watch a topic filter, and return its newest message since then; None without one. Raises `EdgeError`."""


@dataclass(frozen=True, slots=True)
class MappingTest:
    """A message, and the file that it tests."""

    topic: str
    payload: bytes
    name: str
    text: str | None


class MappingResources:
    """The endpoints. Each is for administrators only, which the caller checks before it calls them."""

    def __init__(
        self,
        documents: Callable[[], MappingDocuments | None],
        settings: HttpGateSettings,
        by: Callable[[Request], Access],
    ) -> None:
        """See `DocumentResources`."""
        self._documents = documents
        self._settings = settings
        self._by = by
        self._files = DocumentResources(_KIND, documents, settings, by)

    def routes(self) -> Iterable[tuple[str, Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (
            *self._files.routes(),
            ("/api/mapping-test", self._test, ["POST"]),
            ("/api/newest-message", self._newest_message, ["GET"]),
        )

    async def _test(self, request: Request) -> Response:
        wanted = _read_test(await read_members(request, self._settings))
        self._by(request)
        return to_json(
            await self._files.call(
                self._documents(),
                lambda documents: documents.test(wanted.topic, wanted.payload, wanted.name, wanted.text),
            )
        )

    async def _newest_message(self, request: Request) -> Response:
        # The filter may match any topic.
        self._files.check(request)
        documents = self._documents()
        if documents is None:
            raise NotReady("The gateway is starting or stopping; try again in a few seconds")
        found = documents.newest_message(request.query_params.get("topic", ""))
        return Response(status_code=204) if found is None else to_json(found)


def _read_test(members: Mapping[str, object]) -> MappingTest:
    """Return the test that a POST requests. Raises `InvalidRequest`."""
    topic, name, text = members.get("topic"), members.get("name", "new"), members.get("text")
    if not isinstance(topic, str) or not isinstance(name, str) or not (text is None or isinstance(text, str)):
        raise InvalidRequest(f"Send a JSON object of texts, for example {_EXAMPLE}")
    return MappingTest(topic, _payload(members), name, text)


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
