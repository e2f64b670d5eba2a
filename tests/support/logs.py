"""Log records of one part of the program: a worker of the test run may also hold Spark, which logs when it wants."""

from __future__ import annotations

import logging

import pytest


def records_of(name: str, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what the logger `name` and those below it logged in this test."""
    return [record for record in caplog.records if f"{record.name}.".startswith(f"{name}.")]
