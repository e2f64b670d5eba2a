"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell has what it starts in the background ignore Ctrl-C, and processes that tests start and interrupt inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
