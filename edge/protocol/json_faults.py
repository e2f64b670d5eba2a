"""Messages for JSON documents that cannot be parsed, in terms of the document instead of the parser."""

from __future__ import annotations

import json


def json_fault(what: str, error: ValueError | RecursionError) -> str:
    """Describe the problem of `what` ("The message") from the error that `json.loads` raised."""
    if isinstance(error, json.JSONDecodeError):
        return f"{what} is not JSON: {error}"
    if isinstance(error, UnicodeError):
        return f"{what} is not JSON: it is not Unicode text (UTF-8)"
    if isinstance(error, RecursionError):
        return f"{what} is nested too deeply; put fewer arrays and objects into each other"
    return f"{what} has a number of too many digits; write it shorter, or as a text"
