"""A client that follows the reports of a registered query, over any gate: its permissions, limits and counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from edge.engine.admission.byte_quota import Charge
from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.rate_limit import client_of
from edge.gates.sessions import Sessions
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidRequest, NotFound, ResultTooLarge
from edge.protocol.report_position import ReportPosition

_DIGITS: Final = 18
"""Most digits of the number of a report."""
REPORT: Final = '{"report":{'
"""Beginning of the message of each report."""


def no_streams() -> NotFound:
    """Return the error of requests for streams and registered queries without them."""
    return NotFound("The gateway has no streams: the setting streams.enabled is false, or it runs in rescue mode")


def read_after(values: Sequence[str], of: Sequence[str] = ()) -> ReportPosition | None:
    """Return the last report that a client has, from the values of the parameters `after` and `of`; None without.

    Raises `InvalidRequest`.
    """
    if not values:
        return None
    text = values[0]
    if len(values) > 1 or not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        raise InvalidRequest('"after" is the number of the last report that the client has received, such as after=41')
    return ReportPosition(int(text), of[0] if of else None)


class FollowedQuery(Protocol):
    """The reports of a query that wait for one client."""

    @property
    def query(self) -> str:
        """Name of the query."""

    @property
    def number(self) -> int:
        """Number of the last report before those that follow."""

    @property
    def of(self) -> str:
        """Identifier of the query, which an earlier or later one with this name does not have."""

    @property
    def error(self) -> EdgeError | None:
        """Why no reports follow those that wait; None: some may."""

    def take(self) -> str | None:
        """Remove the next report, and return it as a JSON message that begins with `REPORT`; None: none waits. It
        counts for the client until the next call.
        """

    def close(self) -> None:
        """End following."""


class ReportSource(Protocol):
    """The registered queries."""

    async def query(self, name: str, access: Access) -> Mapping[str, object]:
        """Return a description of a query. Raises `EdgeError`."""

    async def follow(
        self,
        name: str,
        access: Access,
        charge: Charge,
        wake: Callable[[], object],
        largest: int | None = None,
        after: ReportPosition | None = None,
    ) -> FollowedQuery:
        """Follow a query of the client. `charge` counts the reports that wait. `wake` is called on the event loop when
        there are some, or no more follow. `largest`: bytes beyond which waiting reports are not added up to one; None:
        the default. `after`: the last report that the client has; those since then come first, as far as
        they are kept; None: the next report is the first. Raises `EdgeError`.
        """


class ReportFollowing:
    """One client and one query. All methods are called on the event loop."""

    def __init__(
        self,
        sessions: Sessions,
        streams: Callable[[], ReportSource | None],
        authorization: str | None,
        peer: str,
        wake: Callable[[], None],
        largest: int | None = None,
        added: int = 0,
    ) -> None:
        """`sessions`: guard, limits and metrics of the gate. `streams` returns None without streams; raises `NotReady`
        while the gateway starts. `authorization` and `peer`: token and origin of the request. `wake` is called when
        `take` or `error` may have changed. `largest`: bytes of the largest message of the gate; None: it has no limit.
        A longer report is an error. `added`: bytes that the gate adds to the message of each report.
        """
        self._shared = sessions
        self._streams = streams
        self._authorization = authorization
        self._peer = peer
        self._wake = wake
        self._largest = largest
        self._added = added
        self._access: Access | None = None
        self._who = ""
        self._followed: FollowedQuery | None = None
        self._watch: AuthorizationWatch | None = None
        self._error: EdgeError | None = None
        self.stopping = asyncio.Event()
        """Set by `end`: not even the reports that wait may be sent."""

    def admit(self) -> str:
        """Count the request, and return its client for the limits. Raises `EdgeError`."""
        self._access = self._shared.admit(self._authorization, self._peer, "query")
        self._who = client_of(self._access, self._peer)
        return self._who

    async def begin(self, name: str, after: ReportPosition | None = None) -> dict[str, object]:
        """Follow a query; `admit` is called first if it was not. `after`: see `ReportSource.follow`. Returns the name
        and the identifier of the query, and the number of the last report before those that follow. Raises `EdgeError`.
        """
        shared = self._shared
        if self._access is None:
            self.admit()
        access = self._access
        assert access is not None  # noqa: S101
        streams = self._streams()
        if streams is None:
            raise no_streams()
        # Half of the largest message: in JSON, the text of graphs has escape sequences.
        largest = None if self._largest is None else (self._largest - self._added) // 2
        shared.rate_limit.subscribe(self._who)
        try:
            charge = shared.rate_limit.bytes.charge(self._who)
            followed = self._followed = await streams.follow(name, access, charge, self._wake, largest, after)
        except BaseException:
            shared.rate_limit.unsubscribe(self._who)
            raise
        shared.active.inc()
        self._watch = AuthorizationWatch(shared.guard, access, self._authorization, self.end)
        return {"query": followed.query, "number": followed.number, "of": followed.of}

    def take(self) -> str | None:
        """Remove the next report, and return it as a JSON message; None: none waits."""
        if self._followed is None or self._error is not None:
            return None
        text = self._followed.take()
        if text is None:
            return None
        if self._largest is not None and len(text.encode()) + self._added > self._largest:
            limit = f"{self._largest} bytes ({self._shared.section}.max_result)"
            self.end(ResultTooLarge(f"A report is larger than {limit}; let the query report less"))
            return None
        self._shared.notified()
        return text

    @property
    def error(self) -> EdgeError | None:
        """Why no reports follow those that wait; None: some may."""
        return self._error or (None if self._followed is None else self._followed.error)

    def end(self, error: EdgeError) -> None:
        """Take no more reports, for a reason of the gate or of the permissions."""
        self._error = self._error or error
        self.stopping.set()
        self._wake()

    def close(self) -> None:
        """End following. Idempotent; does nothing if it did not begin."""
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        followed, self._followed = self._followed, None
        if followed is not None:
            followed.close()
            self._shared.active.dec()
            self._shared.rate_limit.unsubscribe(self._who)
