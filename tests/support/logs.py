"""Log records of one component: a worker of the test run may also contain Spark, which logs at any time."""

from __future__ import annotations

import logging

import pytest


def records_of(name: str, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records of the logger `name` and its children in this test."""
    return [record for record in caplog.records if f"{record.name}.".startswith(f"{name}.")]
