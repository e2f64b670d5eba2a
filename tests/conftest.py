"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell has what it starts in the background ignore Ctrl-C, and processes that tests start and interrupt inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No property is about time, and a machine may be busy.
settings.register_profile("unhurried", parent=settings(), deadline=None)
settings.load_profile("unhurried")
