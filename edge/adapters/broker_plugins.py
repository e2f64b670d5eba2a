"""Plug-ins of the embedded broker: authentication and retained messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from amqtt.broker import BrokerContext, RetainedApplicationMessage
from amqtt.plugins.base import BaseAuthPlugin, BasePlugin
from amqtt.session import Session

from edge.adapters.broker_auth import BETWEEN

_OVERHEAD: Final = 1000
"""Memory of a retained message in bytes without topic and payload."""


class AnonymousPlugin(BaseAuthPlugin):  # type: ignore[misc] # amqtt tells no types
    """Accepts all clients, as anonymous: amqtt then stores nothing for disconnected ones, so that memory is bounded."""

    async def authenticate(self, *, session: Session) -> bool:
        """Accept the client."""
        session.is_anonymous = True
        return True


class RetainedPlugin(BasePlugin[BrokerContext]):  # type: ignore[misc] # as above
    """Limits the retained messages by number and bytes.

    Beyond a limit, the client that uses the most loses its oldest message, so no client can displace those of others.
    """

    @dataclass
    class Config:
        """Configuration in amqtt's form."""

        limit: int = 10_000
        max_bytes: int = 16 * 1024 * 1024

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._owners: dict[str, str] = {}
        """Topic to client."""
        self._sizes: dict[str, dict[str, int]] = {}
        """Client to its topics, the oldest first, with their bytes."""
        self._totals: dict[str, int] = {}
        """Client to the bytes of all its topics."""
        self._total = 0

    async def on_broker_retained_message(
        self, *, client_id: str | None, retained_message: RetainedApplicationMessage
    ) -> None:
        """Account for a retained or deleted message."""
        del client_id  # amqtt does not set it
        topic, session = retained_message.topic, retained_message.source_session
        self._forget(topic)
        if not retained_message.data:
            return
        client = "" if session is None else session.client_id or ""
        retained_message.source_session = None  # it would keep the session of a disconnected client in memory
        # With security, the client's name: it may connect under several identifiers.
        self._add(client.partition(BETWEEN)[0] or client, topic, len(topic) + len(retained_message.data) + _OVERHEAD)
        retained = self.context.retained_messages
        while self._owners and (len(self._owners) > self.config.limit or self._total > self.config.max_bytes):
            largest = max(self._totals, key=self._totals.__getitem__)
            oldest = next(iter(self._sizes[largest]))
            self._forget(oldest)
            retained.pop(oldest, None)

    def _add(self, client: str, topic: str, size: int) -> None:
        self._owners[topic] = client
        self._sizes.setdefault(client, {})[topic] = size
        self._totals[client] = self._totals.get(client, 0) + size
        self._total += size

    def _forget(self, topic: str) -> None:
        client = self._owners.pop(topic, None)
        if client is None:
            return
        topics = self._sizes[client]
        size = topics.pop(topic)
        self._totals[client] -= size
        self._total -= size
        if not topics:
            del self._sizes[client], self._totals[client]
