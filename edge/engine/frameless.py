"""Errors that go from thread to thread, or from process to process."""

from __future__ import annotations


def frameless(error: Exception) -> Exception:
    """The error without the frames that it came through.

    They can hold an answer of Oxigraph, which must end on the thread it began on.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
