"""A registered query at work: its subscription on the engine of the windows, and its next report."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine.requests import (
    STORE_DATASET,
    Dataset,
    Delta,
    QueryRequest,
    Sink,
    SubscribeFailed,
    SubscriberNotification,
)
from edge.protocol.access import Access
from edge.protocol.bag import Bag
from edge.protocol.results import Row
from edge.streams.live_data import Pattern, is_limited, reads_live_default
from edge.streams.model import ContinuousQuery, QueryForm, StreamOperator, WindowKind
from edge.streams.names import stream_iri
from edge.streams.pattern_constants import Constants
from edge.streams.report import Report
from edge.streams.stored_rows import StoredQuery
from edge.streams.window_engine import WindowEngine
from edge.streams.window_graph import WindowGraph
from edge.streams.window_names import with_graphs

_log = logging.getLogger(__name__)


class Mark(NamedTuple):
    """A report from which the windows of a query can pass over their elements again."""

    time: int
    """Microseconds since 1970."""
    earliest: Mapping[str, int] | None
    """Time of the first element that the windows had then, by stream; None: keep all elements."""


_MARKS: Final = 16
"""Marks within the lateness of the streams."""


class Follower(NamedTuple):
    """Gets the durable reports of a query, on the thread of the streams."""

    report: Callable[[Report], None]
    end: Callable[[str], None]
    """Called with the reason when the query cannot go on."""


class RunningQuery:
    """One query. `state`: "running", "paused" or "failed"."""

    def __init__(self, stored: StoredQuery, query: ContinuousQuery, *, is_subscription: bool = False) -> None:
        """`is_subscription`: its reports go to one subscriber only, as changes of the result, and are not stored."""
        self.name = stored.name
        self.access: Access = stored.access
        self.begun = stored.begun
        self.identifier = stored.identifier
        self.paused = stored.paused
        self.number = stored.number
        self.query = query
        self.windows: tuple[WindowGraph, ...] = ()
        self.patterns: tuple[Pattern, ...] = ()
        self.constants: Constants | None = None
        """Constants of its triple patterns; None: any element can change its result."""
        self.spuid = ""
        self.is_subscription = is_subscription
        self.failure = ""
        """Why it cannot go on; empty if it can."""
        self.is_late = False
        """Whether it has to begin later, because the live graph was busy."""
        self.skipped = 0
        """Reports that were left out after a long pause of the process."""
        self.lateness = 0
        """The greatest of its streams, in microseconds."""
        self.since = stored.since
        """Time of the first mark that is stored."""
        self.followers: dict[object, Follower] = {}
        self.marks: deque[Mark] = deque([Mark(stored.since, None)])
        """Reports in the order of time, the first of them before all that late elements can change."""
        self.unsaved: Bag[Row] = Bag()
        """Changes of the result at the last report that are not stored. Empty if reports do not depend on it."""
        self._variables: tuple[str, ...] = ()
        self._result: Bag[Row] = Bag()
        self._change: Bag[Row] = Bag()

    @property
    def state(self) -> str:
        """State: "running", "paused" or "failed"."""
        return "failed" if self.failure else "paused" if self.paused else "running"

    @property
    def makes_graphs(self) -> bool:
        """Whether its results are graphs, which can be a stream."""
        return self.query.form in (QueryForm.CONSTRUCT, QueryForm.DESCRIBE)

    @property
    def output_stream(self) -> str | None:
        """IRI of the stream of its results; None if they are not graphs."""
        return stream_iri(self.query.name) if self.makes_graphs else None

    def subscribe(self, engine: WindowEngine, graphs: Sequence[str], sink: Sink) -> str:
        """Subscribe with these graphs as the contents of its windows. Returns the id. Raises `EdgeError`."""
        return engine.subscribe(self.access.read, self.request(graphs), sink)

    def request(self, graphs: Sequence[str]) -> QueryRequest:
        """Return the query for the engine. `graphs`: IRIs of the contents of its windows."""
        query = self.query
        names = {window.name: graph for window, graph in zip(query.windows, graphs, strict=True) if window.name}
        unnamed = [graph for window, graph in zip(query.windows, graphs, strict=True) if not window.name]
        dataset = STORE_DATASET
        named = [*(query.named_graphs or ()), *names.values()]
        if not reads_live_default(query):
            dataset = Dataset.of([*(query.default_graphs or ()), *unnamed], named)
        elif is_limited(query):
            dataset = Dataset(readable=frozenset({"", *named}))
        return QueryRequest(with_graphs(query.sparql, names), dataset)

    def sink(self, notification: SubscriberNotification | SubscribeFailed) -> None:
        """Take a change of the result from the engine."""
        if isinstance(notification, SubscribeFailed):
            self.fail(notification.description)
            return
        delta = notification.delta
        self._variables = delta.variables
        change = Bag.of(delta.added, delta.removed)
        if self._is_whole and not self.is_subscription:
            self._result.merge(change)
        else:
            self._change.merge(change)

    def fail(self, reason: str) -> None:
        """End the query with a reason. It stays registered."""
        self.failure = reason
        _log.error("streams.query_failed", extra={"query": self.name, "reason": reason})
        self.end_followers(reason)

    def end_followers(self, reason: str) -> None:
        """Tell the followers why they get no more reports."""
        for follower in self.followers.values():
            follower.end(reason)
        self.followers.clear()

    def settle(self) -> Delta:
        """Return the first result, of which later reports of a subscription are changes.

        Rows that were there at the begin are not new: for ISTREAM and DSTREAM it has no rows.
        """
        rows = self._change.added if self._is_whole else ()
        self._reported()
        return Delta(self._variables, rows, ())

    def resume(self, reported: Bag[Row]) -> Delta:
        """Go on with changes since a report of an earlier process. `reported`: the result at that report."""
        if not self._is_whole:
            self._change = self._change.since(reported)
        return Delta(self._variables, (), ())

    def _reported(self) -> None:
        if not self.is_subscription:
            self.unsaved.merge(self._change)
        self._change = Bag()

    def shift(self, change: Bag[Row]) -> None:
        """Take a change as part of the last report: corrections have reported it."""
        self._change.merge(change.inverse)
        self.unsaved.merge(change)

    def earliest(self, time: int) -> dict[str, int]:
        """Return the times of the first elements that the windows need at a time, by stream."""
        found: dict[str, int] = {}
        for window in self.windows:
            definition = window.definition
            needed = window.needed_from()
            if definition.kind is WindowKind.SESSION:
                # A late element may start a session before all others.
                needed = min(time if needed is None else needed, time - self.lateness - definition.size)
            if needed is not None:
                found[definition.stream] = min(needed, found.get(definition.stream, needed))
        return found

    def mark(self, time: int) -> None:
        """Note a report, if late elements can change it and the last mark is old enough."""
        is_corrected = self.lateness and not self.is_subscription
        if is_corrected and time - self.marks[-1].time >= max(self.lateness // _MARKS, 1):
            self.marks.append(Mark(time, self.earliest(time)))

    def forget_marks(self, before: int) -> bool:
        """Forget marks, but not the last two before a time. Returns whether the first one has changed."""
        first = self.marks[0]
        while len(self.marks) > 2 and self.marks[2].time <= before:
            self.marks.popleft()
        return self.marks[0] is not first

    def base_before(self, time: int) -> int:
        """Return the time of a mark from which the reports from `time` on can be computed.

        Not that of the last report before, which may have been corrected away.
        """
        earlier = [mark.time for mark in self.marks if mark.time < time]
        return earlier[-2:][0]

    def report(self, time: int) -> Report | None:
        """Return the next report; None if there is nothing to report.

        RSTREAM and ASK report each result, also an empty one; to a subscriber only its changes. ISTREAM and DSTREAM
        report rows only.
        """
        removed = None
        if self._is_whole and self.is_subscription:
            rows, removed = self._change.added, self._change.removed
            if not rows and not removed:
                return None
            self._change = Bag()
        elif self._is_whole:
            rows = self._result.added
        else:
            rows = self._selected(self._change)
            self._reported()
            if not rows:
                return None
        self.number += 1
        return Report(self.name, self.number, time, self.query.form, self._variables, rows, removed)

    def correction(self, time: int, change: Bag[Row]) -> Report:
        """Return a report that corrects an earlier one."""
        self.number += 1
        added, removed = change.added, change.removed
        return Report(self.name, self.number, time, self.query.form, self._variables, added, removed)

    def output(self, change: Bag[Row]) -> Bag[Row] | None:
        """Return the rows of a report that the stream operator selects of a change; None: the whole result."""
        return None if self._is_whole else Bag.of(self._selected(change))

    @property
    def compares(self) -> bool:
        """Whether a report depends on the result before."""
        return not self._is_whole

    def _selected(self, change: Bag[Row]) -> tuple[Row, ...]:
        return change.added if self.query.operator is StreamOperator.ISTREAM else change.removed

    @property
    def _is_whole(self) -> bool:
        # The result of ASK has one row, so its additions and removals say nothing.
        return self.query.operator is StreamOperator.RSTREAM or self.query.form is QueryForm.ASK
