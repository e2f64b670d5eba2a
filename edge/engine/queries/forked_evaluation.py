"""Evaluation in a forked process, which the gateway can stop at any time.

Oxigraph cannot be interrupted. Work that is not certainly short (see `cost_estimate`) therefore runs in a child process
that is forked for it. The child has the state of the graph at the time of the fork, and shares all memory pages that
neither process changes. A fork costs some milliseconds; without requests the component costs nothing.

A child has one thread of a process that had many. It only evaluates, writes the outcome to a pipe and exits. It takes
no lock that another thread may hold, and closes all files of the gateway.
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
"""Bytes of one read from the pipe."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Signals that end a child. The gateway itself has handlers for them."""
_NICER: Final = 5
"""Increment of the nice value of a child: updates in the gateway have priority."""


class ForkedEvaluator:
    """Starts evaluations in forked processes. All methods may be called from any thread."""

    def __init__(self, max_memory: int) -> None:
        """`max_memory`: bytes that a child may allocate after the fork (engine.max_query_memory)."""
        self.max_memory = max_memory
        self._children: set[int] = set()
        self._lock = threading.Lock()
        self._open = True

    def begin(self, action: Callable[[], T], seconds: float, setting: str, memory: int = 0) -> Child[T]:
        """Start an action on the current state in a forked process.

        `seconds`: time limit, from the setting with the name `setting`. `memory`: additional bytes beyond `max_memory`.
        Raises `NotReady`, and `RequestTimeout` if no time is left.
        """
        if seconds <= 0:
            raise _too_late(setting)
        deadline = time.monotonic() + seconds
        # The lock covers the fork and the entry in `_children`, so that `close` finds every child.
        with self._lock:
            if not self._open:
                raise self.closed()
            readable, writable = os.pipe()
            try:
                pid = _fork()
            except OSError as error:
                os.close(readable)
                os.close(writable)
                raise NotReady(
                    f"The system cannot start a process for this evaluation: {error.strerror}; try again later"
                ) from None
            if pid == 0:
                _serve(action, writable, self.max_memory, memory, seconds)
            os.close(writable)
            self._children.add(pid)
        return Child(self, pid, readable, deadline, setting)

    def forget(self, pid: int) -> None:
        """Remove a child from the list, because the thread that waits for it is about to end it."""
        with self._lock:
            self._children.discard(pid)

    @property
    def open(self) -> bool:
        """Whether new evaluations may start."""
        return self._open

    def closed(self) -> NotReady:
        """Return the error for an evaluation that `close` prevented or stopped."""
        return NotReady("The gateway is stopping; try again when it is back")

    def close(self) -> None:
        """Kill all children and start no more."""
        with self._lock:
            self._open = False
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)


class Child(Generic[T]):
    """A forked process with one action, and the pipe for its outcome."""

    def __init__(self, forked: ForkedEvaluator, pid: int, pipe: int, deadline: float, setting: str) -> None:
        self._forked = forked
        self._pid = pid
        self._pipe = pipe
        self._deadline = deadline
        self._setting = setting

    def result(self) -> T:
        """Wait for the outcome, end the process and return the result.

        Raises the error of the action; `RequestTimeout` after the time limit, `ResultTooLarge` at the memory limit, and
        `NotReady` if the gateway is stopping.
        """
        pipe = _Pipe(self._pipe, self._deadline, self._setting)
        try:
            value, error = pickle.Unpickler(pipe).load()  # noqa: S301  our own child wrote it
        except _Ended:
            if not self._forked.open:
                raise self._forked.closed() from None
            raise _too_much_memory(self._forked.max_memory) from None
        finally:
            self.end()
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def end(self) -> None:
        """Kill the process and release its pipe. Any result is lost."""
        # First out of the list: once the pid is reaped, the kernel may give it to another process.
        self._forked.forget(self._pid)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._pipe)


class _Ended(Exception):
    """The child ended before it had written its whole outcome."""


class _Pipe:
    """Read end of a child's pipe, as a file for `pickle`.

    The C code of `pickle` holds the GIL between two calls of `read`. A child writes frames of 64 KiB, so other threads
    wait for a fraction of a millisecond, and not until the whole result has arrived.
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
        """Return exactly `size` bytes. Raises `RequestTimeout`, `_Ended`."""
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
        """Raise `_Ended`. Only protocol 0 of `pickle` has lines, and no child writes it."""
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
    with warnings.catch_warnings():  # from 3.12 on Python warns about forks of multi-threaded processes
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(action: Callable[[], object], pipe: int, max_memory: int, more: int, seconds: float) -> NoReturn:
    """Run the action in the child, write its outcome to the pipe and exit."""
    try:
        gc.disable()  # a finalizer of a gateway object must not run in the child
        _cut_off(pipe)
        _limit(max_memory + more, seconds)
        said = _on_new_thread(lambda: _outcome(action, max_memory))
        with open(pipe, "wb", closefd=False) as out:
            out.write(said)
    finally:
        os._exit(0)  # without the exit handlers and buffered files of the gateway


def _on_new_thread(action: Callable[[], bytes]) -> bytes:
    """Run an action on a new thread, and return its outcome.

    Oxigraph's random numbers (BNODE, UUID, RAND, new blank nodes) come from a generator of each thread. A fork copies
    its state, so two children would create the same blank nodes. A new thread gets a new seed from the system.
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
    except BaseException as fault:  # noqa: BLE001  the process that waits for the outcome logs it
        error = RuntimeError(repr(contained(fault)))
    return pickle.dumps((None, without_frames(error)))


def _cut_off(pipe: int) -> None:
    """Detach the child from the signals and open files of the gateway."""
    signal.set_wakeup_fd(-1)  # else signals of the child would wake the event loop of the gateway
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) != pipe:
            with contextlib.suppress(OSError):  # listdir's own descriptor is closed already
                os.close(int(name))


def _limit(max_memory: int, seconds: float) -> None:
    """Set kernel limits for time, memory and priority, in case the gateway does not end the child."""
    signal.alarm(math.ceil(seconds) + 1)
    with contextlib.suppress(OSError):  # edge.service does not allow changes of the priority
        os.nice(_NICER)
    # The kernel's OOM killer takes the process with the highest score first.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:  # noqa: PTH123  as small as can be
        file.write(b"1000")
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        data = int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (data + max_memory, data + max_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _too_late(setting: str) -> RequestTimeout:
    return RequestTimeout(f"The evaluation exceeded its time limit ({setting}); ask for less")


def _too_much_memory(max_memory: int) -> ResultTooLarge:
    return ResultTooLarge(
        f"The evaluation takes more than {max_memory} bytes of memory (engine.max_query_memory); ask for less"
    )
