"""Desired state of an actuator: the rows of its query by topic, and the messages for changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyoxigraph as ox

from edge.mapping.actuators import Actuator, Command, Message
from edge.mapping.solution import CommandError, Solution, SolutionTerm
from edge.protocol.bag import Bag
from edge.protocol.results import Row

Refuse = Callable[[Solution, str], None]
"""Receives a solution that gives no valid message, and the reason."""


class DesiredState:
    """Desired state of one actuator. If several rows name a topic, the newest one counts.

    Rows form a bag. A row without a valid topic is reported once and then ignored. Not thread-safe.
    """

    def __init__(self, actuator: Actuator, refuse: Refuse) -> None:
        self.actuator = actuator
        self._refuse = refuse
        self._variables: Sequence[str] = ()
        self._topics: dict[str, Bag[Row]] = {}

    def replace(self, variables: Sequence[str], rows: Iterable[Row]) -> list[Command]:
        """Replace the complete state (sequence 0 of a subscription). Returns the messages for differences."""
        before: Bag[Row] = Bag()
        for known in self._topics.values():
            before.merge(known)
        change = Bag.of(rows).since(before)
        return self.apply(variables, change.added, change.removed)

    def apply(self, variables: Sequence[str], added: Iterable[Row], removed: Iterable[Row]) -> list[Command]:
        """Apply one change. Returns at most one message for each topic, in the order of their first mention."""
        self._variables = variables
        gone: dict[str, Row] = {}
        before: dict[str, Row | None] = {}
        news: set[str] = set()
        for row in removed:
            topic = self._topic(row, self._ignore)
            rows = self._topics.get(topic, Bag())
            if row not in rows:
                continue
            before.setdefault(topic, next(reversed(rows)))
            gone[topic] = row
            rows.add(row, -1)
            if not rows:
                del self._topics[topic]
        for row in added:
            topic = self._topic(row, self._refuse)
            if not topic:
                continue
            rows = self._topics.setdefault(topic, Bag())
            before.setdefault(topic, None)
            news.add(topic)
            rows[row] = rows.pop(row, 0) + 1  # the newest row is the last one
        commands = []
        for topic, previous in before.items():
            left = self._topics.get(topic)
            if left is None:
                commands += self._message(self.actuator.removed, gone[topic])
            elif topic in news or next(reversed(left)) != previous:
                commands += self._message(self.actuator.added, next(reversed(left)))
        return commands

    def commands(self) -> Iterator[Command]:
        """Return the messages for the complete state, one for each topic."""
        for rows in self._topics.values():
            yield from self._message(self.actuator.added, next(reversed(rows)))

    def _message(self, message: Message | None, row: Row) -> list[Command]:
        if message is None:
            return []
        solution = self._solution(row)
        try:
            return [message.render(solution)]
        except CommandError as error:
            self._refuse(solution, str(error))
            return []

    def _topic(self, row: Row, refuse: Refuse) -> str:
        """Return the topic of a row; empty if it is not valid."""
        solution = self._solution(row)
        try:
            return self.actuator.added.topic.render(solution)
        except CommandError as error:
            refuse(solution, str(error))
            return ""

    def _solution(self, row: Row) -> Solution:
        terms: dict[str, SolutionTerm] = {}
        for name, term in zip(self._variables, row, strict=True):
            if isinstance(term, ox.Literal):
                terms[name] = SolutionTerm(term.value, term.datatype.value)
            elif isinstance(term, ox.NamedNode):
                terms[name] = SolutionTerm(term.value, None)
        return self.actuator.solution(terms)

    @staticmethod
    def _ignore(_: Solution, __: str) -> None:
        """Do nothing: the problem was reported when the row arrived."""
