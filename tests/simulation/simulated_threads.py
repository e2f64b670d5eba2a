"""Threads of a simulated process: real threads, of which one runs at a time until it waits.

The simulation decides which thread runs next. A module uses them instead of `threading`; it holds a lock only where
nothing waits, so locks are real. All times are those of a simulated clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol


class ProcessEnded(BaseException):
    """Raised in a waiting thread when its process ends. The product does not catch it."""


class Clock(Protocol):
    """Microseconds since the machine started."""

    up: int


class Threads:
    """All threads of one process."""

    Lock = staticmethod(threading.Lock)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads: list[SimulatedThread] = []
        self._current: SimulatedThread | None = None
        self._back = threading.Lock()
        self._back.acquire()
        self._ending = False

    # Interface of `threading`

    def Thread(  # noqa: N802
        self, *, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True
    ) -> SimulatedThread:
        """Return a thread that has not started."""
        return SimulatedThread(self, lambda: target(*args), name, daemon=daemon)

    def Event(self) -> SimulatedEvent:  # noqa: N802
        """An event that is not set."""
        return SimulatedEvent(self)

    # Interface for the simulation

    def runnable(self) -> list[SimulatedThread]:
        """Return the threads that can run."""
        return [thread for thread in self._threads if thread.ready()]

    def run(self, thread: SimulatedThread) -> None:
        """Run a thread until it waits. Raise the exception that ended it."""
        self._current = thread
        thread.go.release()
        self._back.acquire()
        self._current = None
        if thread.error is not None:
            raise thread.error

    def end(self) -> None:
        """End the process: no thread runs any more."""
        self._ending = True
        for thread in list(self._threads):
            self.run(thread)
            thread.real.join()
        self._threads.clear()

    # Interface for threads

    def wait(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for a condition. Return False if it was not true in time."""
        if ready():
            return True
        thread = self._current
        assert thread is not None, "the simulation itself would wait for ever"
        deadline = None if seconds is None else self._clock.up + int(seconds * 1_000_000)
        thread.ready = lambda: ready() or (deadline is not None and self._clock.up >= deadline)
        self._pause(thread)
        return ready()

    def _pause(self, thread: SimulatedThread) -> None:
        self._back.release()
        thread.go.acquire()
        if self._ending:
            raise ProcessEnded

    def begin(self, thread: SimulatedThread) -> None:
        """Start a thread when it is selected."""
        self._threads.append(thread)
        thread.real.start()

    def body(self, thread: SimulatedThread) -> None:
        """Run the function of the real thread."""
        thread.go.acquire()
        try:
            if not self._ending:
                thread.target()
        except ProcessEnded:
            pass
        except BaseException as error:  # noqa: BLE001  the simulation reports it
            thread.error = error
        if not self._ending:
            self._threads.remove(thread)
        self._back.release()


class SimulatedThread:
    """Replacement for `threading.Thread`."""

    def __init__(self, threads: Threads, target: Callable[[], None], name: str, *, daemon: bool) -> None:
        self._threads = threads
        self.name = name
        self.target = target
        self.go = threading.Lock()
        self.go.acquire()
        self.ready: Callable[[], bool] = lambda: True
        self.error: BaseException | None = None
        self.real = threading.Thread(target=threads.body, args=(self,), name=name, daemon=daemon)

    def start(self) -> None:
        self._threads.begin(self)

    def is_alive(self) -> bool:
        return self.real.is_alive()


class SimulatedEvent:
    """Replacement for `threading.Event`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._threads.wait(self.is_set, timeout)


@contextmanager
def results_wait_on(threads: Callable[[], Threads]) -> Iterator[None]:
    """Let `Future.result` wait like other operations."""
    original = Future.result

    def result(future: Future[Any], timeout: float | None = None) -> Any:
        threads().wait(future.done, timeout)
        return original(future, 0)

    Future.result = result  # type: ignore[method-assign]
    try:
        yield
    finally:
        Future.result = original  # type: ignore[method-assign]
