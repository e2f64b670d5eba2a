"""What the tests of images and packages say, and how they end."""

from __future__ import annotations

import time

_BEGAN = time.monotonic()


class Failed(Exception):
    """An assertion of these tests does not hold."""


def check(what: str, good: object, found: object = "") -> None:
    """Say it, and end the test where it is not so."""
    result = f"{'ok  ' if good else 'FAIL'} {what}{f': {found}' if found != '' else ''}"
    print(f"{time.monotonic() - _BEGAN:5.0f} s {result}", flush=True)
    if not good:
        raise Failed(what)
