"""The topics of the gate: all of them under one root, the client's name at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import quote

Kind = Literal["request", "status", "query"]
"""What comes: a request, how a client is, the result of a standing query that the broker retained."""

_KINDS = get_args(Kind)


_NO_LEVEL = frozenset("/+#% ")
_AS_IT_IS = "!'()*"
"""What JavaScript's encodeURIComponent leaves alone beside letters, digits and `-._~`."""


def level(identity: str) -> str:
    """The name of a client in its topics: its identity, percent-encoded (RFC 3986, 2.1) where that is no level of one.

    No two identities have the same: those that stand as they are have no `%`.
    """
    return identity if _NO_LEVEL.isdisjoint(identity) else quote(identity, safe=_AS_IT_IS)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics under a root. A client has three, so a broker can give each by one pattern to whom it belongs."""

    root: str

    @property
    def status(self) -> str:
        """How the gateway is; retained."""
        return f"{self.root}/status"

    @property
    def filters(self) -> tuple[str, ...]:
        """What the gate listens to."""
        return tuple(f"{self.root}/{kind}/+" for kind in _KINDS)

    def request(self, client: str) -> str:
        """Where a client asks."""
        return f"{self.root}/request/{client}"

    def client_status(self, client: str) -> str:
        """Where a client says how it is."""
        return f"{self.root}/status/{client}"

    def response(self, client: str) -> str:
        """Where a client is answered."""
        return f"{self.root}/response/{client}"

    def result(self, query: str) -> str:
        """The result of a standing query; retained."""
        return f"{self.root}/query/{query}"

    def delta(self, query: str) -> str:
        """What changes in it."""
        return f"{self.root}/query/{query}/delta"

    def read(self, topic: str) -> tuple[Kind, str] | None:
        """What a topic is for, and the name of the client or query. None: not for us, though brokers may send it."""
        root, _, rest = topic.partition(f"{self.root}/")
        kind, separator, name = rest.partition("/")
        if root or not separator or "/" in name or kind not in _KINDS:
            return None
        return cast("Kind", kind), name

    def are(self, topic: str) -> bool:
        """Whether a topic is one of these, whoever writes there."""
        match topic.removeprefix(f"{self.root}/").split("/"):
            case ["status"] | ["request" | "status" | "query", _] | ["response", _, *_] | ["query", _, "delta"]:
                return not topic.endswith("/")
        return False
