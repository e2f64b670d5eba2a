"""The threads that evaluate subscribed queries beside each other when processing is parallel."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from edge.engine.evaluation import Outcome
from edge.engine.settings import Processing


class Workers:
    """A pool of threads that costs nothing until it is used. `begin` and `close` belong to the writer thread."""

    def __init__(self, threads: int, processing: Processing) -> None:
        """`threads`: 0 is as many as the process has processors."""
        self.threads = threads or len(os.sched_getaffinity(0))
        self.processing: Processing = processing
        """Any thread may set it."""
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="spu")

    @property
    def width(self) -> int:
        """See `Pool`."""
        return self.threads if self.processing == "parallel" else 1

    def begin(self, task: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """See `Pool`."""
        return self._pool.submit(task).result

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
