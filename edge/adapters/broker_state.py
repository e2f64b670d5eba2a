"""Whether the client of a session of amqtt is connected.

amqtt has a general state machine for that: 150 objects and 15 KB for each session, which refer to each other, so that
they stay until the garbage collector looks at all objects.
"""

from __future__ import annotations

import time
import weakref

from amqtt.session import Session


class ConnectionState:
    """What amqtt uses of `transitions.Machine`."""

    __slots__ = ("_session", "state")

    def __init__(self, session: Session) -> None:
        self.state = "new"
        """`new`, `connected` or `disconnected`."""
        self._session = weakref.ref(session)

    def is_connected(self) -> bool:
        """Whether it is."""
        return self.state == "connected"

    def connect(self) -> None:
        """Note that the client has connected. Raises `ValueError` if it is connected already."""
        if self.is_connected():
            raise ValueError("the client is connected already")
        self.state = "connected"
        if (session := self._session()) is not None:
            session.last_connect_time, session.last_disconnect_time = int(time.time()), None

    def disconnect(self) -> None:
        """Note that the client has gone."""
        self.state = "disconnected"
        if (session := self._session()) is not None:
            session.last_disconnect_time = int(time.time())


def use_connection_states() -> None:
    """Have all sessions of amqtt use them."""

    def begin(session: Session) -> None:
        session.transitions = ConnectionState(session)

    Session._init_states = begin
