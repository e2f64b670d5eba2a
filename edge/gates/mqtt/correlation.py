"""MQTT 5 requests with response topic and correlation data (MQTT 5.0, section 4.10).

Sessions return the alias of a request in everything that concerns it. The gate therefore encodes response topic and
correlation data in the alias. A secret in it, which never leaves the process, keeps clients from forging such aliases.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from typing import NamedTuple

from edge.protocol.messages import Follow, Message


class Reply(NamedTuple):
    """Response topic and correlation data of one request."""

    topic: str
    correlation: bytes
    alias: str | None
    """The client's own alias."""


class Correlation:
    """Encodes replies as aliases, and decodes them."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._member = re.compile(rf'(, ?)?"alias": ?"{self._mark}([\w=-]*)"(, ?)?')

    def alias(self, reply: Reply) -> str:
        """Return the alias that encodes a reply."""
        parts = [reply.topic, reply.correlation.hex(), reply.alias]
        # This alphabet needs no escapes in JSON, so that `take` finds the alias in the text of a message.
        return self._mark + base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    def with_alias(self, request: Message | Follow, reply: Reply) -> str:
        """Return a request as JSON text with the encoded reply as its alias."""
        members = request.model_dump(by_alias=True, exclude_unset=True)
        return json.dumps({request.kind: {**members, "alias": self.alias(reply)}})

    def take(self, text: str) -> tuple[str, Reply] | None:
        """Return a message with the client's own alias, and its reply. None: it belongs to no reply."""
        if self._mark not in text or (found := self._member.search(text)) is None:
            return None
        before, code, after = found[1] or "", found[2], found[3] or ""
        topic, correlation, alias = json.loads(base64.urlsafe_b64decode(code))
        # Without an alias, the member is removed, with one of the commas around it.
        member = (before and after) if alias is None else f'{before}"alias": {json.dumps(alias)}{after}'
        return text[: found.start()] + member + text[found.end() :], Reply(topic, bytes.fromhex(correlation), alias)
