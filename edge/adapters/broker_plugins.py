"""The embedded broker's plug-ins: whom it lets in, and how much it retains."""

from __future__ import annotations

from dataclasses import dataclass

from amqtt.broker import BrokerContext, RetainedApplicationMessage
from amqtt.plugins.base import BaseAuthPlugin, BasePlugin
from amqtt.session import Session


class AnonymousPlugin(BaseAuthPlugin):  # type: ignore[misc] # amqtt tells no types
    """Everyone on this machine may connect. Nothing is kept for those who left, so that memory is bounded."""

    async def authenticate(self, *, session: Session) -> bool:
        """Let the client in."""
        session.is_anonymous = True
        return True


class RetainedPlugin(BasePlugin[BrokerContext]):  # type: ignore[misc] # as above
    """Forgets the oldest retained messages beyond a limit."""

    @dataclass
    class Config:
        """Configuration in amqtt's form."""

        limit: int = 10_000

    async def on_broker_retained_message(
        self, *, client_id: str | None, retained_message: RetainedApplicationMessage
    ) -> None:
        """A message was retained, or cleared."""
        del client_id, retained_message
        retained = self.context.retained_messages
        while len(retained) > self.config.limit:
            del retained[next(iter(retained))]
