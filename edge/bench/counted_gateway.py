"""The gateway with a count of the functions that it calls. `python -m edge.bench.counted_gateway run ...` starts it.

The signal SIGUSR1 starts a count, and the next one ends it and writes the result to the file that the environment
variable `EDGE_BENCH_COUNTS` names.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

FILE: Final = "EDGE_BENCH_COUNTS"
"""Environment variable with the path of the result."""


class FunctionCounter:
    """Counts the calls of Python functions on all threads that start after `install`."""

    def __init__(self, file: Path) -> None:
        """`file`: receives `calls` by function, a JSON object."""
        self._file = file
        self._calls: Counter[CodeType] | None = None

    def install(self) -> None:
        """Observe the threads, and listen to the signal."""
        signal.signal(signal.SIGUSR1, lambda *_: self._toggle())
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        # Another thread may end the count at any time.
        calls = self._calls
        if event == "call" and calls is not None:
            calls[frame.f_code] += 1

    def _toggle(self) -> None:
        calls = self._calls
        if calls is None:
            self._calls = Counter()
            return
        self._calls = None
        found = {f"{code.co_filename}:{code.co_firstlineno} {code.co_name}": count for code, count in calls.items()}
        # The reader waits for the file, so it must appear with its content.
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.rename(self._file)


if __name__ == "__main__":
    FunctionCounter(Path(os.environ[FILE])).install()
    runpy.run_module("edge", run_name="__main__")
