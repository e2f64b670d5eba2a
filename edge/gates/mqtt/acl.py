"""Authentication and access control of the embedded broker with security."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.guard import Guard
from edge.gates.mqtt.topics import Topics, level
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidGrant, MissingAuthorization
from edge.protocol.topics import EVERYTHING, covers, is_topic

_CACHE_SIZE: Final = 1000
"""Number of topics per connection whose decision is cached; the cache is cleared when it is full."""
_SHORT: Final = 200
"""Maximum length of cached topics in characters."""


class TokenAuth:
    """Authentication of the embedded broker: the MQTT password is a token."""

    def __init__(self, guard: Guard, root: str) -> None:
        """`root`: root of the gate's topics; empty without a gate."""
        self._guard = guard
        self._topics = Topics(root)

    def admit(self, password: str | None, over: Callable[[], None]) -> ClientAcl:
        """Authenticate a client. `over` is called once when its connection must end.

        Raises `MissingAuthorization`, `InvalidGrant`, `InvalidClient`. Call it on the event loop.
        """
        try:
            access = self._guard.access(password)
        except MissingAuthorization:
            raise MissingAuthorization(
                "A token is needed, as the password of MQTT; it comes from /oauth/token"
            ) from None
        return ClientAcl(self._guard, access, password, self._topics, over)


class ClientAcl:
    """Permissions of one client connection.

    Of the gate's topics, a client may use only its own, regardless of its other permissions: only filters that name
    the root cover them. A subscription to all topics therefore does not reveal responses to other clients.
    """

    def __init__(
        self, guard: Guard, access: Access, authorization: str | None, topics: Topics, over: Callable[[], None]
    ) -> None:
        self.name = access.client
        self._guard = guard
        self._authorization = authorization
        self._topics = topics
        self._over = over
        self._ended = False
        self._set(access)
        self._watch = AuthorizationWatch(guard, access, authorization, self._end)

    def may_publish(self, topic: str) -> bool:
        """Whether it may publish to this topic."""
        return not self._ended and self.may_publish_will(topic)

    def may_publish_will(self, topic: str) -> bool:
        """Whether its will may be published, even after its token has expired."""
        return self._cached(self._publish_cache, self._publish, topic)

    def may_receive(self, topic: str) -> bool:
        """Whether it may receive messages of this topic."""
        return not self._ended and self._cached(self._receive_cache, self._receive, topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether it may subscribe to this filter. It still receives only permitted topics."""
        return not self._ended and self._within(self._receive, topic_filter)

    def disconnected(self) -> None:
        """Stop watching the permissions: the connection is closed."""
        self._watch.end()

    def _set(self, access: Access | None) -> None:
        self._publish, self._receive = _filters(access, self._topics) if access is not None else ((), ())
        self._publish_cache: dict[str, bool] = {}
        self._receive_cache: dict[str, bool] = {}

    def _within(self, filters: Iterable[str], asked: str) -> bool:
        root = f"{self._topics.root}/"
        private = bool(self._topics.root) and asked.startswith(root)
        return any(covers(given, asked) for given in filters if not private or given.startswith(root))

    def _cached(self, known: dict[str, bool], filters: Iterable[str], topic: str) -> bool:
        allowed = known.get(topic)
        if allowed is None:
            # A topic with wildcards would be compared like a filter, and a message to it is not valid.
            allowed = is_topic(topic) and self._within(filters, topic)
            if len(known) >= _CACHE_SIZE:
                known.clear()
            # Long topics are checked each time, which bounds the memory of the cache.
            if len(topic) <= _SHORT:
                known[topic] = allowed
        return allowed

    def _end(self, _: EdgeError) -> None:
        """End the connection. Its will is checked against its current permissions; an expired token does not revoke
        it.
        """
        self._ended = True
        try:
            self._set(self._guard.access(self._authorization))
        except InvalidGrant:
            pass
        except EdgeError:
            self._set(None)
        self._over()


def _filters(access: Access, topics: Topics) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the filters for topics that a client may publish to and receive."""
    publish = [EVERYTHING] if access.publish is None else sorted(access.publish)
    receive = [EVERYTHING] if access.receive is None else sorted(access.receive)
    if topics.root:
        receive.append(topics.status)
        if access.receive is None and access.read is None:
            receive.append(topics.result(EVERYTHING))
        own = level(access.client)
        publish += [topics.request(own), topics.client_status(own)]
        receive.append(f"{topics.response(own)}/#")
    return tuple(publish), tuple(receive)
