"""Compile queue: compiles long texts on separate threads, clients in turn.

Only one text of a client is compiled at a time, so one thread remains free for other clients. A compiled text takes
several times the memory of its source, so only a few compiled texts wait for the writer; the others wait as texts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from edge.engine.admission.fair_queue import LEAST_COST, FairQueue
from edge.protocol.access import Priority
from edge.protocol.errors import NotReady

LONG_TEXT: Final = 4_096
"""Characters from which the text of a subscription, or of a due update, is not compiled on the writer thread."""

_THREADS: Final = 2
_AHEAD: Final = 2
"""Compiled requests of one client that are not done yet: the one that the writer executes, and the next one."""
_MOST_AHEAD: Final = 8
"""Compiled requests of all clients from which on each client may have only one."""


class CompileQueue:
    """Long texts of one scheduler that wait to be compiled. Thread-safe."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="compile")
        self._lock = threading.Lock()
        self._waiting: FairQueue[_Text] = FairQueue()
        self._running: set[str] = set()
        """Clients with a text that is being compiled."""
        self._ahead: Counter[str] = Counter()
        """By client: compiled requests that are not done yet, and those being compiled."""

    def put(self, source: str, priority: Priority, compile_: Callable[[], None], done: Future[Any]) -> None:
        """Add a text. `compile_` must not raise; `done`: future of the request. Raises `NotReady` after `close`."""
        text = _Text(self, source, priority, compile_, done)
        with self._lock:
            self._waiting.put(text)
        try:
            self._pool.submit(self._run)
        except RuntimeError:  # shut down
            raise NotReady("The gateway is stopping; try again when it is back") from None

    def close(self, *, wait: bool = False) -> None:
        """Accept no more texts; the waiting ones are still compiled. `wait`: block until then."""
        self._pool.shutdown(wait=wait)

    def is_ready(self, source: str) -> bool:
        """Return whether a text of a client can be compiled now. The caller holds the lock."""
        if source in self._running:
            return False
        ahead = self._ahead
        return ahead[source] < (_AHEAD if ahead.total() < _MOST_AHEAD else 1)

    def _run(self) -> None:
        while True:
            with self._lock:
                text = self._waiting.take()
                if text is None:
                    return
                self._running.add(text.source)
                self._ahead[text.source] += 1
            began = time.monotonic()
            text.compile()
            with self._lock:
                self._running.remove(text.source)
                self._waiting.charge(text.source, max(LEAST_COST, (time.monotonic() - began) * 1_000_000))
                self._waiting.look_again(text.source)
            text.done.add_done_callback(lambda _, source=text.source: self._forget(source))  # type: ignore[misc]

    def _forget(self, source: str) -> None:
        """Note that a compiled request is done: another text may be compiled."""
        with self._lock:
            self._ahead[source] -= 1
            if not self._ahead[source]:
                del self._ahead[source]
            # The limit for all clients may have been the obstacle, so any client can be ready now.
            for text in list(self._waiting):
                self._waiting.look_again(text.source)
            more = bool(self._waiting)
        if more:
            try:
                self._pool.submit(self._run)
            except RuntimeError:  # shut down; the remaining threads continue
                self._run()


class _Text:
    """A text that waits."""

    def __init__(
        self, queue: CompileQueue, source: str, priority: Priority, compile_: Callable[[], None], done: Future[Any]
    ) -> None:
        self.source = source
        self.priority = priority
        self.compile = compile_
        self.done = done
        self._queue = queue

    @property
    def ready(self) -> bool:
        """Whether it can be compiled now."""
        return self._queue.is_ready(self.source)
