"""MQTT 5 requests that say where and under what they want to be answered (MQTT 5.0, section 4.10).

Sessions know an alias for each request, and give it back with everything that concerns it. So the alias carries it all,
marked by a secret that never leaves: what is sent is looked up nowhere, and nobody can make one up.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from typing import NamedTuple

from edge.protocol.messages import Message


class Reply(NamedTuple):
    """How one request wants to be answered."""

    topic: str
    correlation: bytes
    alias: str | None
    """The client's own alias."""


class Correlation:
    """From replies to aliases, and back."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._member = re.compile(rf'(, ?)?"alias": ?"{self._mark}([\w=-]*)"(, ?)?')

    def alias(self, reply: Reply) -> str:
        """The alias that stands for a reply."""
        parts = [reply.topic, reply.correlation.hex(), reply.alias]
        return self._mark + base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    def with_alias(self, request: Message, reply: Reply) -> str:
        """A request as JSON text, the reply being its alias."""
        members = request.model_dump(by_alias=True, exclude_unset=True)
        return json.dumps({request.kind: {**members, "alias": self.alias(reply)}})

    def take(self, text: str) -> tuple[str, Reply] | None:
        """The text of a message with the client's own alias, and the reply it belongs to. None: to no reply."""
        if self._mark not in text or (found := self._member.search(text)) is None:
            return None
        before, code, after = found[1] or "", found[2], found[3] or ""
        topic, correlation, alias = json.loads(base64.urlsafe_b64decode(code))
        # Without an alias the member goes, and one of the commas around it.
        member = (before and after) if alias is None else f'{before}"alias": {json.dumps(alias)}{after}'
        return text[: found.start()] + member + text[found.end() :], Reply(topic, bytes.fromhex(correlation), alias)
