"""Modules of the image, which lie there beside the script that uses them, in no package."""

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
    """Whoever runs the tests owns what would be root's or a service's."""
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _: me)


def load(name: str) -> ModuleType:
    """The module of that name, which may import the others."""
    if str(DIRECTORY) not in sys.path:
        sys.path.append(str(DIRECTORY))
    spec = importlib.util.spec_from_file_location(name, DIRECTORY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
