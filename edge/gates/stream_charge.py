"""Size of requests to streams in the byte quota of their client, from their arrival until they are processed."""

from __future__ import annotations

import sys
from typing import Final

_REQUEST: Final = 1024
"""Bytes of a waiting request in addition to its text and elements."""
_ELEMENT: Final = 200
"""Bytes of an element in addition to its triples. Elements of one triple take 170 more than the triple."""
_TRIPLE: Final = 300
"""Bytes of a triple of Oxigraph in addition to its text: measured with Oxigraph 0.5, 230 to 280."""


def request_size(text: str, elements: int = 0, triples: int = 0) -> int:
    """Return approximately the bytes of a request. `triples`: of all its elements."""
    return _REQUEST + sys.getsizeof(text) + _ELEMENT * elements + _TRIPLE * triples
