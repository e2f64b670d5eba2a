"""Fixtures of the recent history."""

from __future__ import annotations

import pytest
from recent_world import World


@pytest.fixture
def world(tmp_path):
    """`world(**settings)` opens a history on the test's directory."""
    return lambda **settings: World(tmp_path, **settings)
