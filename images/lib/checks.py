"""What the tests of images and packages say, and how they end."""

from __future__ import annotations


class Failed(Exception):
    """An assertion of these tests does not hold."""


def check(what: str, good: object, found: object = "") -> None:
    """Say it, and end the test where it is not so."""
    print(f"{'ok  ' if good else 'FAIL'} {what}{f': {found}' if found != '' else ''}", flush=True)
    if not good:
        raise Failed(what)
