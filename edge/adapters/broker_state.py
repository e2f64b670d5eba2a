"""Connection state of amqtt sessions.

amqtt uses a general state machine for it: 150 objects and 15 KB for each session. They refer to each other, so they
stay in memory until the garbage collector runs.
"""

from __future__ import annotations

import time
import weakref

from amqtt.session import Session


class ConnectionState:
    """Replacement for amqtt's use of `transitions.Machine`."""

    __slots__ = ("_session", "state")

    def __init__(self, session: Session) -> None:
        self.state = "new"
        """`new`, `connected` or `disconnected`."""
        self._session = weakref.ref(session)

    def is_connected(self) -> bool:
        """Whether the client is connected."""
        return self.state == "connected"

    def connect(self) -> None:
        """Note that the client has connected. Raises `ValueError` if it is connected already."""
        if self.is_connected():
            raise ValueError("the client is connected already")
        self.state = "connected"
        if (session := self._session()) is not None:
            session.last_connect_time, session.last_disconnect_time = int(time.time()), None

    def disconnect(self) -> None:
        """Note that the client has disconnected."""
        self.state = "disconnected"
        if (session := self._session()) is not None:
            session.last_disconnect_time = int(time.time())


def use_connection_states() -> None:
    """Install this state for all sessions of amqtt."""

    def begin(session: Session) -> None:
        session.transitions = ConnectionState(session)

    Session._init_states = begin
