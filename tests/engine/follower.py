"""A subscriber of a simulated engine that checks each notification against the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyoxigraph as ox

from edge.engine.requests import ActiveSubscription, SubscribeFailed, SubscriberNotification


@dataclass
class Follower:
    """A subscriber, and the notifications that it received."""

    query: str
    items: list[SubscriberNotification | SubscribeFailed] = field(default_factory=list)
    outcomes: list[ActiveSubscription | Exception] = field(default_factory=list)
    bag: Counter = field(default_factory=Counter)
    """Its result according to the notifications that it has read."""
    state: int = 0
    """The earliest committed state that its next notification may lead to."""
    read: int = 0
    gone: bool = False

    def follow(self) -> Iterator[None]:
        """Read the notifications since the last call, and pause after each."""
        for item in self.items[self.read :]:
            assert isinstance(item, SubscriberNotification), item
            assert item.sequence == self.read
            self.read += 1
            added, removed = Counter(item.delta.added), Counter(item.delta.removed)
            assert not added & removed
            assert removed <= self.bag
            assert item.sequence == 0 or added or removed, "the notification has no rows"
            self.bag = self.bag - removed + added
            yield


def result_of(store: ox.Store, query: str) -> Counter:
    """Return the result of a query as a bag of rows, computed with a separate store."""
    answer = store.query(query)
    if isinstance(answer, ox.QueryBoolean):
        return Counter([(ox.Literal(bool(answer)),)])
    return Counter(map(tuple, answer))
