"""Topics of the gate: all below one root, with the client's name as the last level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import quote

Kind = Literal["request", "status", "query"]
"""Kind of a received message: a request, a client status, or a retained result of a continuous query."""

_KINDS = get_args(Kind)


_NO_LEVEL = frozenset("/+#% ")
_AS_IT_IS = "!'()*"
"""Characters that JavaScript's encodeURIComponent does not encode, in addition to letters, digits and `-._~`."""


def level(identity: str) -> str:
    """Return the name of a client in its topics: its identity, percent-encoded (RFC 3986, section 2.1) if necessary.

    The result is unique: identities that stay unencoded contain no `%`.
    """
    return identity if _NO_LEVEL.isdisjoint(identity) else quote(identity, safe=_AS_IT_IS)


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics below a root. Each client has three, so that a broker can grant access to them with one pattern each."""

    root: str

    @property
    def status(self) -> str:
        """Topic of the gateway status; retained."""
        return f"{self.root}/status"

    @property
    def filters(self) -> tuple[str, ...]:
        """Topic filters to which the gate subscribes."""
        return tuple(f"{self.root}/{kind}/+" for kind in _KINDS)

    def request(self, client: str) -> str:
        """Topic for requests of a client."""
        return f"{self.root}/request/{client}"

    def client_status(self, client: str) -> str:
        """Topic for the status of a client."""
        return f"{self.root}/status/{client}"

    def response(self, client: str) -> str:
        """Topic for responses to a client."""
        return f"{self.root}/response/{client}"

    def result(self, query: str) -> str:
        """Topic of the result of a continuous query; retained."""
        return f"{self.root}/query/{query}"

    def delta(self, query: str) -> str:
        """Topic of the deltas of a continuous query."""
        return f"{self.root}/query/{query}/delta"

    def read(self, topic: str) -> tuple[Kind, str] | None:
        """Return the kind of a topic, and the name of the client or query. None: not a topic for the gate."""
        root, _, rest = topic.partition(f"{self.root}/")
        kind, separator, name = rest.partition("/")
        if root or not separator or "/" in name or kind not in _KINDS:
            return None
        return cast("Kind", kind), name

    def includes(self, topic: str) -> bool:
        """Whether a topic belongs to the gate, in any direction."""
        match topic.removeprefix(f"{self.root}/").split("/"):
            case ["status"] | ["request" | "status" | "query", _] | ["response", _, *_] | ["query", _, "delta"]:
                # An empty last level is not the name of a client.
                return not topic.endswith("/")
        return False
