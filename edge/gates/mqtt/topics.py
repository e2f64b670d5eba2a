"""The topics of the gate: all of them under one root, the client's name at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["request", "status"]
"""What a client sends: a request, or how it is."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics under a root. A client has three, so a broker can give each by one pattern to whom it belongs."""

    root: str

    @property
    def status(self) -> str:
        """How the gateway is; retained."""
        return f"{self.root}/status"

    @property
    def filters(self) -> tuple[str, str]:
        """What clients send."""
        return f"{self.root}/request/+", f"{self.root}/status/+"

    def response(self, client: str) -> str:
        """Where a client is answered."""
        return f"{self.root}/response/{client}"

    def result(self, query: str) -> str:
        """The result of a standing query; retained."""
        return f"{self.root}/query/{query}"

    def delta(self, query: str) -> str:
        """What changes in it."""
        return f"{self.root}/query/{query}/delta"

    def read(self, topic: str) -> tuple[Kind, str]:
        """What a topic that matches `filters` is for, and which client's it is."""
        kind, client = topic[len(self.root) + 1 :].split("/")
        return cast("Kind", kind), client
