"""Continuous queries whose result is one value: they are announced as entities of the gateway."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import pyoxigraph as ox

from edge.announce.entities import Observed
from edge.announce.following import Engine, Following, Post
from edge.engine.requests import QueryRequest, SubscriberNotification
from edge.protocol.access import Access
from edge.protocol.results import Row, Term

_log = logging.getLogger(__name__)

QUERIES: Final = "urn:sepa-edge:query:"
"""Beginning of the IRIs that stand for continuous queries."""
_MOST_ROWS: Final = 1000
"""Rows of a result from which on it is not followed: it will hardly become a single value."""


class QueryResult:
    """The result of one query."""

    def __init__(self, name: str, text: str, follow: Callable[[QueryResult], Following]) -> None:
        self.iri = QUERIES + quote(name, safe="")
        self.name = name
        self.text = text
        self.known = False
        """Whether there was a first result, or a failure."""
        self._rows: dict[Row, int] = {}
        self._suits = True
        self.following = follow(self)

    @property
    def value(self) -> ox.Literal | None:
        """The value; None: the result has another number of values than one."""
        if len(self._rows) != 1:
            return None
        ((row, count),) = self._rows.items()
        return _literal(row[0]) if count == 1 else None

    def observed(self, hint: str) -> Observed | None:
        """Return it as an observation; None: the query has several columns or very many rows."""
        return Observed(self.iri, self.name, self.value, hint=hint) if self._suits else None

    def take(self, notification: SubscriberNotification) -> None:
        """Apply a notification."""
        self.known = True
        delta = notification.delta
        if notification.sequence == 0:
            self._rows = {}
        if len(delta.variables) != 1 or len(self._rows) + len(delta.added) > _MOST_ROWS:
            self._suits, self._rows = False, {}
            self.following.close()
            return
        for rows, sign in ((delta.removed, -1), (delta.added, 1)):
            for row in rows:
                count = self._rows.pop(row, 0) + sign
                if count:
                    self._rows[row] = count

    def failed(self, reason: str) -> None:
        """Note that the query has failed."""
        if not self.known:
            _log.warning("announce.query_failed", extra={"query": self.name, "reason": reason})
        self.known, self._rows = True, {}


class QueryResults:
    """All continuous queries, by the IRI that stands for them."""

    def __init__(self, engine: Engine, post: Post, waiting: Callable[[], bool], changed: Callable[[str], None]) -> None:
        """`changed` receives the IRI of a query whose result has changed, or that has ended."""
        self._engine = engine
        self._post = post
        self._waiting = waiting
        self._changed = changed
        self._all: dict[str, QueryResult] = {}

    def __iter__(self) -> Iterator[Following]:
        """Yield the subscriptions."""
        return (each.following for each in self._all.values())

    def __contains__(self, iri: str) -> bool:
        return iri in self._all

    @property
    def known(self) -> bool:
        """Whether each query has had a first result."""
        return all(each.known for each in self._all.values())

    def observed(self, iri: str, hint: str) -> Observed | None:
        """Return a query as an observation; None: it has no single value, or has ended."""
        found = self._all.get(iri)
        return None if found is None else found.observed(hint)

    def follow(self, texts: Mapping[str, str], access: Access | None) -> None:
        """Replace the queries, by name, which are evaluated with these rights. None: no rights."""
        texts = texts if access is not None else {}
        for iri, each in list(self._all.items()):
            if texts.get(each.name) != each.text or each.following.request.access != access:
                each.following.close()
                del self._all[iri]
                self._changed(iri)
        known = {each.name for each in self._all.values()}
        for name, text in texts.items():
            if name not in known and access is not None:
                self._add(name, text, access)

    def close(self) -> None:
        """End all subscriptions."""
        for each in self:
            each.close()

    def _add(self, name: str, text: str, access: Access) -> None:
        def follow(result: QueryResult) -> Following:
            def take(notification: SubscriberNotification) -> None:
                result.take(notification)
                self._changed(result.iri)

            def failed(reason: str) -> None:
                result.failed(reason)
                self._changed(result.iri)

            request = QueryRequest(text, access=access, source=access.client)
            return Following(self._engine, request, self._post, self._waiting, take, failed)

        found = QueryResult(name, text, follow)
        self._all[found.iri] = found


def _literal(term: Term | None) -> ox.Literal | None:
    if isinstance(term, ox.NamedNode):
        return ox.Literal(term.value)
    return term if isinstance(term, ox.Literal) else None
