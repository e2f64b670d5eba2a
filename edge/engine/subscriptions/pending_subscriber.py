"""New subscribers that wait for a whole result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge.engine.requests import ActiveSubscription
from edge.engine.subscriptions.full_refresh import FullRefresh
from edge.engine.subscriptions.spu import Subscriber

Ready = Callable[[ActiveSubscription | Exception], None]
"""Called once on the writer thread: with the subscription after its notification 0, or with the error."""


@dataclass(frozen=True, slots=True)
class PendingSubscriber:
    """A new subscriber that waits for the whole result."""

    subscriber: Subscriber
    ready: Ready
    silent: bool = False
    """Whether the subscriber has the result already, from the previous process of the gateway."""
    refresh: FullRefresh | None = None
    """If set, its subscribers receive the difference to their result, in place of `subscriber`."""
