"""Producer and consumer for programs without asyncio. (An aggregator there is a plain handler of an `Application`.)"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import overload

from edge.client.answers import Scheduled, Updated
from edge.client.backlog import Notification
from edge.client.brokers import Agent, Brokers
from edge.client.callback_thread import CallbackThread
from edge.client.closing import Closing
from edge.client.consumer import Consumer
from edge.client.loop_thread import LoopThread
from edge.client.options import Options
from edge.client.producer import Producer
from edge.client.rows import Row
from edge.client.sync_iterator import SyncIterator, next_item
from edge.jsap import Profile, Value


class _SyncAgent(Closing):
    """An agent on an event loop in a thread."""

    def __init__(self, options: Options | None, host: str | None) -> None:
        self._callback_thread = CallbackThread()
        self._brokers = Brokers(self._callback_thread.with_callbacks(options or Options()), host=host)

    @property
    def connected(self) -> bool:
        """Whether the WebSockets in use are open."""
        return self._brokers.connected

    def _begin(self, agent: Agent) -> None:
        self._agent = agent
        self._thread = LoopThread("edge-client")

    def close(self) -> None:
        """Stop the agent, its connections and its thread."""
        if not self._thread.closed:
            self._thread.run(self._agent.close())
            self._thread.run(self._brokers.close())
            self._thread.close()
            self._callback_thread.close()


class SyncProducer(_SyncAgent):
    """Blocking `Producer`."""

    def __init__(self, profile: Profile, name: str, *, host: str | None = None, options: Options | None = None) -> None:
        super().__init__(options, host)
        self._producer = Producer(profile, name, brokers=self._brokers)
        self._begin(self._producer)

    def produce(self, *, repeat: bool = False, **bindings: Value) -> Updated:
        """See `Producer.produce`."""
        return self._thread.run(self._producer.produce(repeat=repeat, **bindings))

    @overload
    def update(self, bindings: Mapping[str, Value], *, repeat: bool = ...) -> Updated: ...
    @overload
    def update(
        self,
        bindings: Mapping[str, Value],
        *,
        delay: timedelta | None = ...,
        at: datetime | None = ...,
        id: str | None = ...,
        repeat: bool = ...,
    ) -> Updated | Scheduled: ...
    def update(
        self,
        bindings: Mapping[str, Value],
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the protocol's name
        repeat: bool = False,
    ) -> Updated | Scheduled:
        """See `Producer.update`."""
        return self._thread.run(self._producer.update(bindings, delay=delay, at=at, id=id, repeat=repeat))


class SyncConsumer(_SyncAgent, SyncIterator[Notification]):
    """Blocking `Consumer`: iterate over it. The constructor waits at most `timeout` seconds for the first result."""

    def __init__(
        self,
        profile: Profile,
        name: str,
        bindings: Mapping[str, Value] | None = None,
        *,
        host: str | None = None,
        options: Options | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(options, host)
        self._consumer = Consumer(profile, name, bindings, brokers=self._brokers)
        self._begin(self._consumer)
        try:
            self._thread.run(self._consumer.start(), timeout)
        except BaseException:
            self.close()
            raise

    @property
    def results(self) -> list[Row]:
        """See `Consumer.results`."""
        return self._thread.run(_results(self._consumer))

    def next(self, timeout: float | None = None) -> Notification | None:
        """Return the next notification; None when closed. Raises `TimeoutError` after `timeout` seconds, `Refused`."""
        return self._thread.run(next_item(self._consumer), timeout)


async def _results(consumer: Consumer) -> list[Row]:
    return consumer.results
