"""Assertions and progress lines of the tests of images and packages."""

from __future__ import annotations

import time

_BEGAN = time.monotonic()


class Failed(Exception):
    """An assertion of these tests does not hold."""


def check(what: str, good: object, found: object = "") -> None:
    """Print the result of a check. Raises `Failed` if it does not hold."""
    result = f"{'ok  ' if good else 'FAIL'} {what}{f': {found}' if found != '' else ''}"
    print(f"{time.monotonic() - _BEGAN:5.0f} s {result}", flush=True)
    if not good:
        raise Failed(what)
