"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings

# A shell has what it starts in the background ignore Ctrl-C, and processes that tests start and interrupt inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No property is about time, and a machine may be busy.
settings.register_profile("unhurried", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Where tests run side by side, those of a file stay together, and so do those that share a Spark session."""
    for item in items:
        shared = "spark" if "spark" in getattr(item, "fixturenames", ()) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(shared))
