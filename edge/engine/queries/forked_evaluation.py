"""Evaluation apart: in a process of its own, which can be stopped at any time and takes its memory with it.

Oxigraph evaluates to the end whatever anybody wants. So what is not sure to be done soon (`bounds`) is done by a child
that is forked for it. It has the whole state as it is at that moment and shares all memory that neither of the two
changes. That costs some milliseconds, and nothing while nobody asks.

A child is one thread in a copy of a process of many. It does nothing but evaluate, write what comes of it to a pipe and
end: it takes no lock of another thread, and keeps no file of the gateway open.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import pickle
import resource
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Final, Generic, NoReturn, TypeVar

from edge.engine.faults import contained, without_frames
from edge.protocol.errors import EdgeError, NotReady, RequestTimeout, ResultTooLarge

T = TypeVar("T")

_CHUNK: Final = 1 << 16
"""Bytes read at a time."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Signals that end a child, whatever the gateway does when it gets them."""
_NICER: Final = 5
"""By how much a child is nicer than the gateway, whose updates go first."""


class ForkedEvaluator:
    """Does things apart. Any thread may ask."""

    def __init__(self, max_memory: int) -> None:
        """`max_memory`: bytes that a child may have beside what it was born with (engine.max_query_memory)."""
        self.max_memory = max_memory
        self._children: set[int] = set()
        self._lock = threading.Lock()
        self._open = True

    def begin(self, action: Callable[[], T], seconds: float, setting: str, memory: int = 0) -> Child[T]:
        """Begin to do something, on the state as it is now. Raises `NotReady`.

        `memory`: bytes that it may have more than `max_memory`.
        It may take so many seconds, which `setting` says. Raises `RequestTimeout` where there is no time left.
        """
        if seconds <= 0:
            raise _too_late(setting)
        deadline = time.monotonic() + seconds
        with self._lock:
            if not self._open:
                raise self.closed()
            readable, writable = os.pipe()
            try:
                pid = _fork()
            except OSError as error:
                os.close(readable)
                os.close(writable)
                raise NotReady(f"No process can be had to evaluate this: {error.strerror}; try again later") from None
            if pid == 0:
                _serve(action, writable, self.max_memory, memory, seconds)
            os.close(writable)
            self._children.add(pid)
        return Child(self, pid, readable, deadline, setting)

    def forget(self, pid: int) -> None:
        """A child is about to be ended by the thread that waits for it."""
        with self._lock:
            self._children.discard(pid)

    @property
    def open(self) -> bool:
        """Whether anything may be begun."""
        return self._open

    def closed(self) -> NotReady:
        """The error for what is not begun, or not finished, because of `close`."""
        return NotReady("The gateway is stopping; try again when it is back")

    def close(self) -> None:
        """Stop all children; begin no more."""
        with self._lock:
            self._open = False
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)


class Child(Generic[T]):
    """A process that does one thing."""

    def __init__(self, apart: ForkedEvaluator, pid: int, pipe: int, deadline: float, setting: str) -> None:
        self._apart = apart
        self._pid = pid
        self._pipe = pipe
        self._deadline = deadline
        self._setting = setting

    def result(self) -> T:
        """Wait for it, and end it.

        Raises what it raised, `RequestTimeout` if its time is over, `ResultTooLarge` if its memory is full, `NotReady`.
        """
        pipe = _Pipe(self._pipe, self._deadline, self._setting)
        try:
            value, error = pickle.Unpickler(pipe).load()  # noqa: S301  our own child wrote it
        except _Ended:
            if not self._apart.open:
                raise self._apart.closed() from None
            raise _too_much_memory(self._apart.max_memory) from None
        finally:
            self.end()
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def end(self) -> None:
        """End it, because nobody wants the result."""
        self._apart.forget(self._pid)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._pipe)


class _Ended(Exception):
    """A child ended before it had written everything."""


class _Pipe:
    """What a child writes, as a file for `pickle`.

    The C code of `pickle` holds the lock of Python's threads from one call of `read` to the next. A child writes frames
    of 64 KiB, so other threads wait for a fraction of a millisecond, and not for the whole result.
    """

    def __init__(self, pipe: int, deadline: float, setting: str) -> None:
        self._pipe = pipe
        self._deadline = deadline
        self._setting = setting
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)
        self._buffer = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        """Return so many bytes. Raises `RequestTimeout`, `_Ended`."""
        if len(self._buffer) - self._at >= size:
            found = self._buffer[self._at : self._at + size]
            self._at += size
            return found
        parts = [self._buffer[self._at :]]
        missing = size - len(parts[0])
        while missing > 0:
            chunk = self._more()
            parts.append(chunk[:missing])
            self._buffer, self._at = chunk, min(missing, len(chunk))
            missing -= len(chunk)
        return b"".join(parts)

    def readline(self) -> bytes:
        """Return a line, as protocol 0 of `pickle` has them. No child writes one."""
        raise _Ended

    def _more(self) -> bytes:
        left = self._deadline - time.monotonic()
        if left <= 0 or not self._poll.poll(math.ceil(left * 1000)):
            raise _too_late(self._setting)
        chunk = os.read(self._pipe, _CHUNK)
        if not chunk:
            raise _Ended
        return chunk


def _fork() -> int:
    with warnings.catch_warnings():  # Python from 3.12 on warns of what a child of several threads must not do
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(action: Callable[[], object], pipe: int, max_memory: int, more: int, seconds: float) -> NoReturn:
    """The life of a child."""
    try:
        gc.disable()  # no object of the gateway is to be ended here
        _cut_off(pipe)
        _limit(max_memory + more, seconds)
        said = _on_new_thread(lambda: _outcome(action, max_memory))
        with open(pipe, "wb", closefd=False) as out:
            out.write(said)
    finally:
        os._exit(0)


def _on_new_thread(action: Callable[[], bytes]) -> bytes:
    """Do something on a thread that has not existed at the fork.

    The random numbers of Oxigraph (BNODE, UUID, RAND, new blank nodes) come from a generator of the thread, which a
    fork copies: two children would make the same blank nodes. A new thread seeds its own from the system.
    """
    said: list[bytes] = []
    thread = threading.Thread(target=lambda: said.append(action()))
    thread.start()
    thread.join()
    return said[0]


def _outcome(action: Callable[[], object], max_memory: int) -> bytes:
    try:
        return pickle.dumps((action(), None))
    except MemoryError:
        error: Exception = _too_much_memory(max_memory)
    except EdgeError as refused:
        error = refused
    except BaseException as fault:  # noqa: BLE001  whoever asked is told, and it is logged there
        error = RuntimeError(repr(contained(fault)))
    return pickle.dumps((None, without_frames(error)))


def _cut_off(pipe: int) -> None:
    """Have nothing to do with the gateway any more, its signals and open files above all."""
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) != pipe:
            with contextlib.suppress(OSError):  # that of the listing
                os.close(int(name))


def _limit(max_memory: int, seconds: float) -> None:
    """Have the kernel end this process even if nobody does."""
    signal.alarm(math.ceil(seconds) + 1)
    with contextlib.suppress(OSError):  # edge.service is not let change priorities
        os.nice(_NICER)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:  # noqa: PTH123  as small as can be
        file.write(b"1000")
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        data = int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (data + max_memory, data + max_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _too_late(setting: str) -> RequestTimeout:
    return RequestTimeout(f"The evaluation took longer than it may ({setting}); ask for less")


def _too_much_memory(max_memory: int) -> ResultTooLarge:
    return ResultTooLarge(
        f"The evaluation takes more than {max_memory} bytes of memory (engine.max_query_memory); ask for less"
    )
