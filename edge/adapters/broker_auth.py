"""Who may come to the embedded broker, and what he may say and hear there; as the broker sees it."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from edge.protocol.errors import InvalidGrant

BETWEEN: Final = "\x1f"
"""Between the name of a client and its identifier at the broker. Names are printable, so none has it."""


class ConnectedClient(Protocol):
    """A client that was let in, for as long as it is connected."""

    @property
    def name(self) -> str:
        """Who it is, in printable characters. Sessions of one name are apart from those of others."""

    def may_publish(self, topic: str) -> bool:
        """Whether it may say something on a topic."""

    def may_receive(self, topic: str) -> bool:
        """Whether it may hear what is said on a topic."""

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether it may ask for topics."""

    def may_leave(self, topic: str) -> bool:
        """Whether its will may be published there."""

    def leave(self) -> None:
        """It is no longer connected."""


class BrokerAuth(Protocol):
    """What lets clients in. Called on the event loop."""

    def admit(self, password: str | None, over: Callable[[], None]) -> ConnectedClient:
        """Let in who has this password. `over` is called when its connection must end. Raises `EdgeError`."""


class _Anybody:
    """Who may do everything."""

    name = ""

    def _yes(self, topic: str) -> bool:
        return True

    may_publish = may_receive = may_subscribe = may_leave = _yes

    def leave(self) -> None:
        pass


ANYBODY: Final[ConnectedClient] = _Anybody()


class OwnClientsAuth:
    """The door for the gateway's own clients: they know a secret that is made at each start, and nobody else does."""

    def __init__(self) -> None:
        self.secret = secrets.token_urlsafe(32)

    def admit(self, password: str | None, over: Callable[[], None]) -> ConnectedClient:
        """Let in who knows the secret. Raises `InvalidGrant`."""
        if not hmac.compare_digest(self.secret.encode(), (password or "").encode()):
            raise InvalidGrant("This port is the gateway's own")
        return ANYBODY
