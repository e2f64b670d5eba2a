"""Replacement of the appliance's users by the one who runs the tests."""

from __future__ import annotations

import os
import pwd

import pytest


def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user who runs the tests own files of root and of services."""
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _: me)
