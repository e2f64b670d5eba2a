"""The gateway process: it runs until a signal and exits within the stop timeout; a second signal ends it at once."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Final, NoReturn

from edge import allocator
from edge.config import Settings
from edge.garbage import cycle_collection
from edge.gateway import Gateway, Launch, StopError
from edge.listener import ignore_disconnects, use_all_descriptors
from edge.supervisor import Supervisor

_log = logging.getLogger(__name__)

_ALL_MOVES = "Serves clients; all components are live"

LastWords = Callable[[str, str], None]
"""Called with a reason of `edge.last_run` and a detail, before the process is ended."""

_SAME_SIGNAL = 1.0
"""Seconds within which a second signal is ignored: signals to a process group may arrive twice."""


_GRACE: Final = 3.0
"""Seconds for the log line and the record of a process that is ended: disk or log reader may not respond."""

_SLICES = 10
"""Parts of the time limit for the event loop: a suspended process misses one of them, not all."""

_SWITCH_INTERVAL = 0.0001
"""Seconds after which a computing thread releases the interpreter for a waiting one.

An update passes from the event loop's thread to the writer's and back. It waits this long each time while another
thread compiles a text, and again after each system call: some 20 times. With 0.5 ms the 99th percentile of its latency
while others subscribe is 3 times as long, with Python's 5 ms up to 20 times. The total throughput of competing threads
is the same.
"""


def run(settings: Settings, launch: Launch, ready: Callable[[Gateway], None]) -> bool:
    """Run a gateway until SIGTERM or SIGINT; a second signal ends the process at once.

    Returns whether it has to start again, because an administrator has staged a backup.

    `ready` is called when the gateway is ready. Raises `StartError`, or `StopError` if waiting work was not done or a
    failure cannot be repaired. If the stop exceeds `shutdown.timeout`, or the event loop makes no progress for
    `watchdog.end_after`, the process ends with exit code 1. The timeout of the stop stays in force after this function:
    the caller must exit, with `exit_now`.
    """
    possible, wanted = use_all_descriptors(), _connections(settings)
    if wanted > possible:
        # Only a warning: the listener turns connections away that have no descriptor.
        _log.warning("process.few_descriptors", extra={"connections": wanted, "possible": possible})
    sys.setswitchinterval(_SWITCH_INTERVAL)
    allocator.configure()
    cycle_collection.hold()
    supervisor = Supervisor()
    try:
        return asyncio.run(_run(settings, launch, ready, supervisor))
    finally:
        supervisor.close()


def exit_now(code: int) -> NoReturn:
    """Exit now, without waiting for threads.

    The interpreter would wait without a limit for each thread that still parses or evaluates. After the stop no client
    waits for such a result, and everything acknowledged is stored.
    """
    with contextlib.suppress(OSError, ValueError):  # standard output is closed
        sys.stdout.flush()
    logging.shutdown()
    os._exit(code)


def start_again() -> NoReturn:
    """Start this program again: systemd does it, otherwise the new program takes the place of this process."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    logging.shutdown()
    if os.environ.get("NOTIFY_SOCKET"):
        os._exit(0)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  the same command


def _connections(settings: Settings) -> int:
    """Return the number of connections that the limits allow together."""
    ports = 2 if settings.security.enabled else 1
    broker = settings.mqtt.max_connections if settings.mqtt.enabled and not settings.mqtt.broker else 0
    return ports * (settings.http.max_connections + settings.ws.max_connections) + broker


async def _run(settings: Settings, launch: Launch, ready: Callable[[Gateway], None], supervisor: Supervisor) -> bool:
    asyncio.get_running_loop().set_exception_handler(ignore_disconnects)
    gateway = Gateway(
        settings,
        launch,
        on_progress=lambda stands_still: supervisor.alive(stands_still or _ALL_MOVES),
        longest_silence=supervisor.longest_silence,
    )
    stopping = _signals(gateway.last_words)
    if settings.watchdog.end_after:
        end_if_stuck(asyncio.get_running_loop(), settings.watchdog.end_after, gateway.last_words)
    starting = asyncio.create_task(gateway.start())
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        try:
            starting.result()
        except BaseException:
            asked.cancel()
            _end_after(settings.shutdown.timeout, gateway.last_words)
            raise
        cycle_collection.begin()
        watching = [asyncio.create_task(cycle_collection.watch()), asyncio.create_task(allocator.Trimming().watch())]
        ready(gateway)
        supervisor.ready(_ALL_MOVES)
        lost = asyncio.create_task(gateway.lost())
        again = asyncio.create_task(gateway.restart.wait())
        await asyncio.wait([asked, lost, again], return_when=asyncio.FIRST_COMPLETED)
        for task in watching:
            task.cancel()
    else:
        # `start` closes the components that it has opened when it is cancelled.
        starting.cancel()
        lost = None
    began = time.monotonic()
    # Nothing cancels this timeout: after the stop, the event loop and the interpreter wait for busy threads.
    _end_after(settings.shutdown.timeout, gateway.last_words)
    _log.info("gateway.stopping")
    supervisor.stopping("Stores what waits")
    await asyncio.wait([starting])
    await gateway.stop()
    _log.info("gateway.stopped", extra={"seconds": round(time.monotonic() - began, 2)})
    if lost is not None and lost.done():
        raise StopError(f"The gateway could not mend itself: {lost.result()}")
    return gateway.restart.is_set() and not stopping.is_set()


def _end_after(seconds: float, last_words: LastWords) -> None:
    """End the process with exit code 1 after this time, whatever its threads do. The journal is up to date."""

    def end() -> None:
        last_words("stop_timeout", f"after {seconds:g} s")
        _log.error("gateway.stop_timeout", extra={"seconds": seconds})
        os._exit(1)

    _end_without_python(seconds + _GRACE)
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _end_without_python(seconds: float) -> None:
    """End the process with exit code 1 after this time, from a thread of C code.

    A Python thread cannot do this while another one holds the interpreter's lock, while its own log line waits for a
    reader, or after the interpreter has begun to exit. The traceback is discarded: a full log would block it.
    """
    try:
        nowhere: IO[bytes] | int = open(os.devnull, "wb")  # noqa: SIM115, PTH123  open until the process ends
    except OSError:  # no descriptor is free
        nowhere = 2
    faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)


def end_if_stuck(loop: asyncio.AbstractEventLoop, seconds: float, last_words: LastWords) -> None:
    """End the process with exit code 1 when the event loop has made no progress for that long; log its stack."""

    def watch() -> None:
        moves = threading.Event()
        while True:
            try:
                loop.call_soon_threadsafe(moves.set)
            except RuntimeError:
                return  # it has ended
            if not any(moves.wait(seconds / _SLICES) for _ in range(_SLICES)):
                break
            moves.clear()
            time.sleep(seconds / _SLICES)
        _end_without_python(_GRACE)
        last_words("stuck", f"for {seconds:g} s")
        _log.critical("gateway.stuck", extra={"seconds": seconds})
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)

    threading.Thread(target=watch, name="edge-watch", daemon=True).start()


def _signals(last_words: LastWords) -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    asked = 0.0

    def stop(number: int) -> None:
        nonlocal asked
        if not stopping.is_set():
            asked = loop.time()
        elif loop.time() - asked > _SAME_SIGNAL:
            _log.warning("gateway.killed", extra={"signal": signal.Signals(number).name})
            last_words("stopped", "at once, by a second signal")
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    return stopping
