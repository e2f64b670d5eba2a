"""Thread that writes messages which need no acknowledgement: of serial ports, Modbus devices and Sparkplug nodes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from edge.adapters.ingest import Ingest
from edge.adapters.messages import MessageQueue, MqttMessage
from edge.adapters.writer import ReadingWriter, WriterSettings
from edge.engine.wakeups import together

_log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 60.0
"""Seconds after which the thread looks for work without a wake-up."""


class WriterThread:
    """A bounded queue of messages, and the thread that writes them to the engine."""

    def __init__(
        self,
        settings: WriterSettings,
        ingest: Ingest,
        queue: MessageQueue,
        name: str,
        work: Callable[[], float] | None = None,
        before: Callable[[], int] = lambda: 0,
    ) -> None:
        """`name`: name of the adapter in log lines. `work`: called on the thread instead of `turn`, which it calls
        itself; returns the seconds until the next call is necessary. `before`: number of messages from which `work` has
        yet to make those of the queue.
        """
        self._name = name
        self._queue = queue
        self._before = before
        self._ending = False
        """Whether the queue is closed as soon as nothing is before it."""
        self._stopping = threading.Event()
        self._wake_up = threading.Event()
        """Set when the thread has something to do."""
        self.wake = self._wake_up.set
        self._writer = ReadingWriter(settings, ingest, queue, name, done=self._finish, wake=self.wake)
        self.turn = self._writer.turn
        self._work = work or self.turn
        self._thread = threading.Thread(target=self._run, name=f"edge-{name}-write", daemon=True)
        self.written = 0
        """Messages that were processed."""

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def queued(self) -> int:
        """Messages that wait."""
        return len(self._queue)

    @property
    def taken(self) -> int:
        """Messages and batches that have left the queue, and are not submitted yet."""
        return self._writer.taken

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Process waiting messages within `timeout` seconds, and end the thread. Log how many remain."""
        deadline = time.monotonic() + timeout
        self._ending = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic() - 0.2))
        self._queue.close()
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(max(0.1, deadline - time.monotonic()))
        if left := self._before() + self.queued + self.taken:
            remedy = "the messages are lost; raise shutdown.timeout, or find out why the engine is slow (edge doctor)"
            _log.warning(f"{self._name}.not_processed", extra={"messages": left, "remedy": remedy})

    def offer(self, topic: str, payloads: Sequence[bytes]) -> int:
        """Queue payloads that have just arrived. Returns the number that found room."""
        now = datetime.now(UTC)
        taken = 0
        for payload in payloads:
            if not self._queue.offer(MqttMessage(topic, payload, 0, False, 0, now, 0, b"")):
                break
            taken += 1
        self.wake()
        return taken

    def _finish(self, messages: Sequence[MqttMessage]) -> None:
        """Count processed messages. Runs on the engine's writer thread too."""
        self.written += len(messages)

    def _run(self) -> None:
        while not (self._stopping.is_set() or (self._queue.closed and self._writer.idle)):
            with together():
                pause = self._work()
            if self._ending and not self._queue.closed and not self._before():
                self._queue.close()
                self.wake()
            self._wake_up.wait(min(pause, _LONGEST_WAIT))
            self._wake_up.clear()
