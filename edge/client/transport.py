"""What a way to a broker can do. There are two: HTTP, and messages over the WebSocket of subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from edge.client.answers import Scheduled, Timer, Updated
from edge.client.results import Result


class Attempt(NamedTuple):
    """One attempt to be answered."""

    authorization: str | None
    """The value of the header `Authorization`."""

    deadline: float
    """When nobody wants the answer any more, in the event loop's time (s); infinite: they want it however late."""

    repeat: bool = False
    """Whether it may be sent again though it may have arrived."""


@dataclass(frozen=True, slots=True)
class Text:
    """A query or update, and its RDF dataset; None leaves that to the text."""

    sparql: str
    default_graphs: Sequence[str] | None = None
    named_graphs: Sequence[str] | None = None

    def members(self, default: str, named: str) -> dict[str, Any]:
        """The dataset as members of a message. `default` and `named` are the protocol's names."""
        given = {default: self.default_graphs, named: self.named_graphs}
        return {name: list(graphs) for name, graphs in given.items() if graphs is not None}


QUERY_DATASET = ("default-graph-uri", "named-graph-uri")
UPDATE_DATASET = ("using-graph-uri", "using-named-graph-uri")


class Transport(Protocol):
    """All raise `Refused`, `NoAnswer`, `BadAnswer` and `Closed`."""

    async def query(self, text: Text, attempt: Attempt) -> Result:
        """Ask."""
        ...

    async def update(self, text: Text, due: Mapping[str, Any], attempt: Attempt) -> Updated | Scheduled:
        """Change the graph now, or when `due` says (see `answers.when`)."""
        ...

    async def timers(self, state: str | None, attempt: Attempt) -> list[Timer]:
        """The updates that are scheduled, or were."""
        ...

    async def timer(self, id: str, attempt: Attempt) -> Timer:  # noqa: A002 - the protocol's name
        """One of them."""
        ...

    async def cancel(self, id: str, attempt: Attempt) -> None:  # noqa: A002 - the protocol's name
        """Take one back that waits."""
        ...
