"""Transport over the WebSocket of subscriptions: ordered, with concurrent requests. Only gateways support it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge.client.answers import Scheduled, Timer, Updated
from edge.client.errors import BadAnswer
from edge.client.pending_requests import Message
from edge.client.results import Result, query_form, read_result
from edge.client.transport import QUERY_DATASET, UPDATE_DATASET, RequestAttempt, RequestText
from edge.client.websocket import WebSocketClient


class WebSocketTransport:
    """`Transport` over the WebSocket."""

    def __init__(self, link: WebSocketClient) -> None:
        self._link = link

    async def query(self, text: RequestText, attempt: RequestAttempt) -> Result:
        """Execute a query."""
        answer = await self._request("query", {"sparql": text.sparql, **text.members(*QUERY_DATASET)}, attempt)
        return read_result(_object(answer, "result"), query_form(text.sparql))

    async def update(self, text: RequestText, due: Mapping[str, Any], attempt: RequestAttempt) -> Updated | Scheduled:
        """Execute an update now, or when `due` says."""
        members = {"sparql": text.sparql, **text.members(*UPDATE_DATASET), **due}
        answer = await self._request("update", members, attempt)
        return Scheduled.of(_object(answer, "scheduled")) if due else Updated.of(_object(answer, "updated"))

    async def timers(self, state: str | None, attempt: RequestAttempt) -> list[Timer]:
        """Return delayed updates, waiting and finished."""
        answer = await self._request("timers", {} if state is None else {"state": state}, attempt)
        return Timer.several(answer)

    async def timer(self, id: str, attempt: RequestAttempt) -> Timer:  # noqa: A002 - the protocol's name
        """Return one delayed update."""
        return Timer.of(_object(await self._request("timer", {"id": id}, attempt), "timer"))

    async def cancel(self, id: str, attempt: RequestAttempt) -> None:  # noqa: A002 - the protocol's name
        """Cancel a waiting delayed update."""
        _object(await self._request("cancel", {"id": id}, attempt), "cancelled")

    async def _request(self, kind: str, members: Message, attempt: RequestAttempt) -> Message:
        # Each message has the token, which may be newer than that of the connection's handshake.
        if attempt.authorization is not None:
            members = {**members, "authorization": attempt.authorization}
        return await self._link.request(kind, members, attempt.deadline, repeat=attempt.repeat)


def _object(answer: Message, member: str) -> Message:
    found = answer.get(member)
    if not isinstance(found, dict):
        raise BadAnswer(f'no "{member}" in {answer!r:.200}')
    return found
