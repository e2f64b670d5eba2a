"""Loader for the modules of the image. They lie next to their script, outside any package."""

from __future__ import annotations

import importlib.util
import os
import pwd
import sys
from pathlib import Path
from types import ModuleType

import pytest

DIRECTORY = Path(__file__).parents[2] / "images" / "system" / "usr" / "lib" / "sepa-edge-appliance"


def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user who runs the tests own files of root and of services."""
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _: me)


def load(name: str) -> ModuleType:
    """Return the module of this name, which may import the others."""
    if str(DIRECTORY) not in sys.path:
        sys.path.append(str(DIRECTORY))
    spec = importlib.util.spec_from_file_location(name, DIRECTORY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look the module up here
    spec.loader.exec_module(module)
    return module
