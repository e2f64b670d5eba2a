"""Authentication and authorization of the embedded broker, as the broker uses them."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from edge.protocol.errors import InvalidGrant

BETWEEN: Final = "\x1f"
"""Separator of client name and client identifier. Names are printable, so they cannot contain it."""


class ConnectedClient(Protocol):
    """Permissions of an authenticated client while it is connected."""

    @property
    def name(self) -> str:
        """Client name in printable characters. Sessions of different names are separate."""

    def may_publish(self, topic: str) -> bool:
        """Whether it may publish to a topic."""

    def may_receive(self, topic: str) -> bool:
        """Whether it may receive messages of a topic."""

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether it may subscribe to a topic filter."""

    def may_publish_will(self, topic: str) -> bool:
        """Whether its will may be published to a topic."""

    def disconnected(self) -> None:
        """Notify that the client has disconnected."""


class BrokerAuth(Protocol):
    """Authenticates clients. Called on the event loop."""

    def admit(self, password: str | None, over: Callable[[], None]) -> ConnectedClient:
        """Authenticate a client by its password. `over` is called when the connection must end. Raises `EdgeError`."""


class _Anybody:
    """A client with all permissions."""

    name = ""

    def _yes(self, topic: str) -> bool:
        return True

    may_publish = may_receive = may_subscribe = may_publish_will = _yes

    def disconnected(self) -> None:
        pass


ANYBODY: Final[ConnectedClient] = _Anybody()


class OwnClientsAuth:
    """Authentication of the gateway's own clients, with a random secret that is new at each start."""

    def __init__(self) -> None:
        self.secret = secrets.token_urlsafe(32)

    def admit(self, password: str | None, over: Callable[[], None]) -> ConnectedClient:
        """Check the secret. Raises `InvalidGrant`."""
        if not hmac.compare_digest(self.secret.encode(), (password or "").encode()):
            raise InvalidGrant("This port is the gateway's own")
        return ANYBODY
