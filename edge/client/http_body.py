"""Bodies of HTTP responses, with a limit of their length."""

from __future__ import annotations

from typing import Final

import httpx

from edge.client.errors import BadAnswer

PLAIN: Final = {"Accept-Encoding": "identity"}
"""Header of requests whose answer has a limit: a few compressed bytes may contain many."""
ENDPOINTS_BYTES: Final = 65_536
"""Maximum length of the answer with the addresses of a gateway, in bytes."""


async def read_body(response: httpx.Response, limit: int | None = None) -> httpx.Response:
    """Return a streamed response with its body, and release its connection.

    `limit`: maximum length in bytes; None: any. A limited body must not be compressed. Raises `BadAnswer` for a longer
    body, and `httpx.TransportError`.
    """
    try:
        if limit is None:
            await response.aread()
            return response
        body = b""
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > limit:
                raise BadAnswer(f"the answer of {response.url} has more than {limit // 1024} KiB")
        return httpx.Response(response.status_code, content=body, request=response.request)
    finally:
        await response.aclose()
