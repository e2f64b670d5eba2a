"""Threads that evaluate subscribed queries off the writer thread."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Final

from edge.engine.settings import Processing
from edge.engine.subscriptions.reevaluation import Reevaluation

_NICER: Final = 5
"""Increment of the nice value of these threads: on a busy machine updates have priority."""


class EvaluationThreads:
    """Pool of evaluation threads. They start on demand and end with `close`."""

    def __init__(self, reevaluation: Reevaluation, threads: int, processing: Processing, *, start: bool = True) -> None:
        """`threads`: 0 for one per processor of the process. `start=False`: run no threads, see `Reevaluation`."""
        # Not `os.cpu_count`: a container or CPUAffinity= may allow fewer processors.
        self.threads = threads or len(os.sched_getaffinity(0))
        self._processing: Processing = processing
        self._reevaluation = reevaluation
        self._lock = threading.Lock()
        self._begun: list[threading.Thread] = []
        self._open = True
        if start:
            reevaluation.threaded = True
            reevaluation.work_waits = self._begin

    @property
    def processing(self) -> Processing:
        """Whether one evaluation or several run at a time. Any thread may set it."""
        return self._processing

    @processing.setter
    def processing(self, processing: Processing) -> None:
        self._processing = processing
        self._reevaluation.wake()

    def width(self) -> int:
        """Limit of concurrent evaluations."""
        return self.threads if self._processing == "parallel" else 1

    def close(self, timeout: float = 5.0) -> bool:
        """End the threads after their current evaluations. Return False if some still run after `timeout` seconds."""
        with self._lock:
            self._open = False
            begun = self._begun.copy()
        self._reevaluation.wake()
        # One deadline for all threads together.
        deadline = time.monotonic() + timeout
        for thread in begun:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in begun)

    def _begin(self) -> None:
        """Start another thread unless there are enough."""
        with self._lock:
            if not self._open or len(self._begun) >= self.width():
                return
            # A daemon, because an evaluation by Oxigraph cannot be interrupted (docs/adr/0007).
            thread = threading.Thread(target=self._work, name=f"spu-{len(self._begun)}", daemon=True)
            self._begun.append(thread)
        thread.start()

    def _work(self) -> None:
        with contextlib.suppress(OSError):  # on Linux this applies to the thread; a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICER)
        reevaluation = self._reevaluation
        while (job := reevaluation.wait(self.width, lambda: self._open)) is not None:
            reevaluation.finish(reevaluation.run(job))
