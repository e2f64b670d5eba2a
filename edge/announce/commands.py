"""Commands of Home Assistant: each one becomes a desired value, as those of other clients."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final

import pyoxigraph as ox

from edge.announce.entities import CommandOf
from edge.announce.following import Engine, Post
from edge.engine.requests import UpdateOutcome, UpdateRequest
from edge.observed_values import desired_value
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

_MOST: Final = 20
"""Updates that run at a time."""
_LONGEST: Final = 10_000
"""Bytes of a command."""
_SET: Final = """PREFIX edge: <urn:sepa-edge:>
DELETE { ?observation edge:desired ?old }
INSERT { ?observation edge:desired ?value }
WHERE { OPTIONAL { ?observation edge:desired ?old } }"""


class Commands:
    """Commands by topic: the newest one of each waits while the one before is carried out."""

    def __init__(self, engine: Engine, post: Post) -> None:
        self._engine = engine
        self._post = post
        self.access: Access | None = None
        """Rights of the updates; None: no values are set."""
        self._topics: dict[str, CommandOf] = {}
        self._waiting: dict[str, bytes] = {}
        self._running: set[str] = set()
        self.refused = 0
        """Commands that were refused."""

    def put(self, topic: str, command: CommandOf) -> None:
        """Accept commands on a topic."""
        self._topics[topic] = command

    def remove(self, topic: str) -> None:
        """Accept no more commands on a topic."""
        self._topics.pop(topic, None)
        self._waiting.pop(topic, None)

    def take(self, topic: str, payload: bytes) -> None:
        """Note a command. A topic of which nothing is set is ignored."""
        if topic in self._topics:
            self._waiting[topic] = payload

    def send(self) -> None:
        """Carry out what waits."""
        for topic in [each for each in self._waiting if each not in self._running]:
            if len(self._running) >= _MOST:
                return
            self._set(topic, self._waiting.pop(topic))

    def _set(self, topic: str, payload: bytes) -> None:
        command, access = self._topics[topic], self.access
        try:
            if access is None:
                return
            if len(payload) > _LONGEST:
                raise ValueError(f"it has more than {_LONGEST} bytes")
            value = desired_value(command.json(payload), command.settable)
            # As over HTTP: the old value is replaced also for a client that may not read it.
            update = UpdateRequest(
                _SET,
                bindings={"observation": ox.NamedNode(command.iri), "value": value},
                access=replace(access, read=None),
                source=access.client,
            )
            future = self._engine.update([update])
        except (EdgeError, ValueError) as error:
            self._refused(topic, error)
            return
        self._running.add(topic)
        future.add_done_callback(lambda done: self._post(partial(self._done, topic, done)))

    def _done(self, topic: str, future: Future[list[UpdateOutcome]]) -> None:
        self._running.discard(topic)
        if (error := future.exception()) is not None:
            self._refused(topic, error)

    def _refused(self, topic: str, error: BaseException) -> None:
        self.refused += 1
        reason = error.description if isinstance(error, EdgeError) else str(error)
        _log.warning("announce.command_refused", extra={"topic": topic, "reason": reason})
