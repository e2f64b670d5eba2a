"""Who may connect to the embedded broker where there is security, and what each may say and hear there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.guard import Guard
from edge.gates.mqtt.topics import Topics, level
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidGrant, MissingAuthorization
from edge.protocol.topics import EVERYTHING, covers, is_topic

_REMEMBERED: Final = 1000
"""Topics of one connection whose answer is remembered; beyond, all are looked up again."""
_SHORT: Final = 200
"""Characters of a topic that is worth it."""


class TokenAuth:
    """The door of the embedded broker: a token is the password."""

    def __init__(self, guard: Guard, root: str) -> None:
        """`root`: of the gate's own topics; empty where there is no gate."""
        self._guard = guard
        self._topics = Topics(root)

    def admit(self, password: str | None, over: Callable[[], None]) -> ClientAcl:
        """Let a client in. `over` is called, once, when its connection must end.

        Raises `MissingAuthorization`, `InvalidGrant`, `InvalidClient`. To be called on the event loop.
        """
        try:
            access = self._guard.access(password)
        except MissingAuthorization:
            raise MissingAuthorization(
                "A token is needed, as the password of MQTT; it comes from /oauth/token"
            ) from None
        return ClientAcl(self._guard, access, password, self._topics, over)


class ClientAcl:
    """One connection of a client.

    Of the gate's topics a client has its own, whatever else it may say or hear: those of others are covered by filters
    alone that name the root. So nobody hears another's answers who listens to all there is.
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
        self._tenure = AuthorizationWatch(guard, access, authorization, self._end)

    def may_publish(self, topic: str) -> bool:
        """Whether it may say something on this topic."""
        return not self._ended and self.may_leave(topic)

    def may_leave(self, topic: str) -> bool:
        """Whether its will may be published, also after its token has expired."""
        return self._remembered(self._said, self._publish, topic)

    def may_receive(self, topic: str) -> bool:
        """Whether it may hear what is said on this topic."""
        return not self._ended and self._remembered(self._heard, self._receive, topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether it may ask for these topics. It hears of them what it may receive."""
        return not self._ended and self._within(self._receive, topic_filter)

    def leave(self) -> None:
        """The connection is closed."""
        self._tenure.end()

    def _set(self, access: Access | None) -> None:
        self._publish, self._receive = _filters(access, self._topics) if access is not None else ((), ())
        self._said: dict[str, bool] = {}
        self._heard: dict[str, bool] = {}

    def _within(self, filters: Iterable[str], asked: str) -> bool:
        root = f"{self._topics.root}/"
        private = bool(self._topics.root) and asked.startswith(root)
        return any(covers(given, asked) for given in filters if not private or given.startswith(root))

    def _remembered(self, known: dict[str, bool], filters: Iterable[str], topic: str) -> bool:
        allowed = known.get(topic)
        if allowed is None:
            allowed = is_topic(topic) and self._within(filters, topic)
            if len(known) >= _REMEMBERED:
                known.clear()
            if len(topic) <= _SHORT:
                known[topic] = allowed
        return allowed

    def _end(self, _: EdgeError) -> None:
        """Its will goes by the rights that it has now. A token that has expired tells nothing against its client."""
        self._ended = True
        try:
            self._set(self._guard.access(self._authorization))
        except InvalidGrant:
            pass
        except EdgeError:
            self._set(None)
        self._over()


def _filters(access: Access, topics: Topics) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a client may publish to and receive."""
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
