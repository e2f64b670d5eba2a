"""Interface of a transport to a broker. Implementations: HTTP, and messages over the WebSocket of subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from edge.client.answers import Scheduled, Timer, Updated
from edge.client.results import Result


class RequestAttempt(NamedTuple):
    """One attempt of a request."""

    authorization: str | None
    """Value of the header `Authorization`."""

    deadline: float
    """Deadline of the answer in the event loop's time (s); infinite: none."""

    repeat: bool = False
    """Whether the request may be sent again although it may have arrived."""


@dataclass(frozen=True, slots=True)
class RequestText:
    """A query or update, and its RDF dataset; None leaves the dataset to the text."""

    sparql: str
    default_graphs: Sequence[str] | None = None
    named_graphs: Sequence[str] | None = None

    def members(self, default: str, named: str) -> dict[str, Any]:
        """Return the dataset as members of a message. `default` and `named` are the protocol's names."""
        given = {default: self.default_graphs, named: self.named_graphs}
        return {name: list(graphs) for name, graphs in given.items() if graphs is not None}


QUERY_DATASET = ("default-graph-uri", "named-graph-uri")
UPDATE_DATASET = ("using-graph-uri", "using-named-graph-uri")


class Transport(Protocol):
    """Requests to a broker. All methods raise `Refused`, `NoAnswer`, `BadAnswer` and `Closed`."""

    async def query(self, text: RequestText, attempt: RequestAttempt) -> Result:
        """Execute a query."""
        ...

    async def update(self, text: RequestText, due: Mapping[str, Any], attempt: RequestAttempt) -> Updated | Scheduled:
        """Execute an update now, or when `due` says (see `answers.when`)."""
        ...

    async def timers(self, state: str | None, attempt: RequestAttempt) -> list[Timer]:
        """Return delayed updates, waiting and finished."""
        ...

    async def timer(self, id: str, attempt: RequestAttempt) -> Timer:  # noqa: A002 - the protocol's name
        """Return one delayed update."""
        ...

    async def cancel(self, id: str, attempt: RequestAttempt) -> None:  # noqa: A002 - the protocol's name
        """Cancel a waiting delayed update."""
        ...
