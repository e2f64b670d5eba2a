"""Packages of npm for tests, installed once outside the source tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sepa-edge-tests"


def installed(directory: Path) -> Path:
    """Return `node_modules` with the versions of the lock file of a directory. Skips the test without npm."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: install the packages nodejs and npm")
    lock = directory / "package-lock.json"
    place = CACHE / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if not (place / "installed").exists():
        place.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(directory / name, place)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=110, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm could not install the packages of {directory.name}: {done.stderr.strip()[-300:]}")
        (place / "installed").touch()
    return place / "node_modules"
