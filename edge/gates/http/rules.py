"""Resources of the rules, and the dry run of a rule with the recent values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from edge.gates.http.documents import DocumentKind, DocumentResources, Documents, Endpoint, read_members, to_json
from edge.gates.settings import HttpGateSettings
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotReady, TooManyRequests

_KIND: Final = DocumentKind(
    "/api/rules", "text/plain", ("", "text/plain", "application/toml"), "Rules read and change any graph"
)
_EXAMPLE: Final = '{"name": "damp", "text": "property = ...", "hours": 24}'
_MOST_HOURS: Final = 24 * 31


class RuleDocuments(Documents, Protocol):
    """The operator's rules. A written one applies at once."""

    def test(self, name: str, text: str, hours: float) -> Mapping[str, object]:
        """Return what a rule would have done in the last hours."""


class RuleResources:
    """The endpoints. Each is for administrators only, which the caller checks before it calls them."""

    def __init__(
        self,
        documents: Callable[[], RuleDocuments | None],
        settings: HttpGateSettings,
        by: Callable[[Request], Access],
    ) -> None:
        """See `DocumentResources`."""
        self._documents = documents
        self._settings = settings
        self._files = DocumentResources(_KIND, documents, settings, by)
        self._trying = False

    def routes(self) -> Iterable[tuple[str, Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (*self._files.routes(), ("/api/rule-test", self._test, ["POST"]))

    async def _test(self, request: Request) -> Response:
        members = await read_members(request, self._settings)
        name, text, hours = members.get("name", "new"), members.get("text"), members.get("hours", 24)
        if (
            not isinstance(name, str)
            or not isinstance(text, str)
            or not isinstance(hours, int | float)
            or isinstance(hours, bool)
        ):
            raise InvalidRequest(f"Send a JSON object, for example {_EXAMPLE}")
        if not 0 < hours <= _MOST_HOURS:
            raise InvalidRequest(f'"hours" can be up to {_MOST_HOURS}, and more than 0')
        self._files.check(request)  # a dry run reads all graphs
        documents = self._documents()
        if documents is None:
            raise NotReady("The gateway is starting or stopping; try again in a few seconds")
        # Others do not wait: clients that have long gone would keep the processor busy.
        if self._trying:
            raise TooManyRequests("Another rule is being tried; try again when it is done", retry_after=5)
        self._trying = True
        try:
            return to_json(await asyncio.to_thread(documents.test, name, text, float(hours)))
        finally:
            self._trying = False
