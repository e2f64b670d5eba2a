"""Follower of a registered window query: its reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from edge.backtest.change import Change
from edge.backtest.unthreaded import UnthreadedEngine
from edge.engine.clock import SimulatedClock
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.protocol.errors import InvalidRequest
from edge.streams.language import parse
from edge.streams.live_subscriptions import LiveSubscriptions
from edge.streams.model import QueryForm
from edge.streams.observations import LiveObservations, PastValue
from edge.streams.processor import Processor
from edge.streams.report import Report
from edge.streams.running_query import RunningQuery
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

_STEP: Final = 60_000_000
"""Longest step of the windows in microseconds. After a longer one, they leave out reports, as after a pause of the
gateway.
"""


class WindowFollower:
    """Follows a window query, on a processor without a thread. See `Follower`."""

    def __init__(
        self,
        engine: UnthreadedEngine,
        clock: SimulatedClock,
        text: str,
        settings: EngineSettings,
        past: Callable[[int, int], Iterable[PastValue]],
    ) -> None:
        """`past` returns the values of a period before the start, with which time windows begin."""
        self._clock = clock
        self._text = text
        self._actions: deque[Callable[[], None]] = deque()
        self._store = StreamStore(None)
        live = LiveSubscriptions(engine, self._actions.append)
        self._processor = Processor(
            StreamSettings(),
            self._store,
            lambda: make_engine(settings),
            live,
            lambda access: access,
            observations=LiveObservations(live, past),
        )
        self._query: RunningQuery | None = None
        self._advanced = 0
        """Time up to which the windows have slid."""

    def start(self) -> Sequence[str]:
        """See `Follower`."""
        processor, now = self._processor, self._clock.at
        processor.restore(now)
        # As a subscription first: it reports the variables, and refuses what the engine cannot evaluate.
        sample, first = processor.subscribe(self._text, ANYBODY, now)
        processor.unsubscribe(sample.name)
        self._query = processor.register(parse(self._text).name, self._text, ANYBODY, now)
        self._advanced = now
        return first.variables

    def due(self) -> int | None:
        """Return the time of the next slide."""
        due = self._processor.due()
        return None if due is None else min(max(due, self._advanced + 1), self._advanced + _STEP)

    def tick(self) -> None:
        """Let the windows slide."""
        self._advance()

    def take(self) -> list[Change]:
        """See `Follower`."""
        # The order of the service of a gateway: an element comes into windows that have slid up to its time.
        self._advance()
        while self._actions:
            self._actions.popleft()()
            self._advance()
        if self._query is not None and self._query.failure:
            raise InvalidRequest(self._query.failure)
        return [change for report in self._processor.store_reports() for change in _changes(report)]

    def close(self) -> None:
        """See `Follower`."""
        self._processor.close()
        self._store.close()

    def _advance(self) -> None:
        # With very many slides, each call does a part of them.
        while not self._processor.advance(self._clock.at):
            pass
        self._advanced = self._clock.at


def _changes(report: Report) -> Iterable[Change]:
    # The result of ASK is its last row.
    rows = report.rows[-1:] if report.form is QueryForm.ASK else report.rows
    return [Change(report.time, report.number, "reported", row) for row in rows]
