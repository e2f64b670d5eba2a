"""Why a JSON document could not be read, for who sent it: in terms of the document, not of what read it."""

from __future__ import annotations

import json


def json_fault(what: str, error: ValueError | RecursionError) -> str:
    """A sentence about `what` ("The message"), of what `json.loads` raised."""
    if isinstance(error, json.JSONDecodeError):
        return f"{what} is not JSON: {error}"
    if isinstance(error, UnicodeError):
        return f"{what} is not JSON: it is no Unicode text (UTF-8)"
    if isinstance(error, RecursionError):
        return f"{what} is nested too deeply; put fewer arrays and objects into each other"
    return f"{what} has a number of too many digits; write it shorter, or as a text"
