"""Oxigraph behind a minimal HTTP server, as the baseline for the gateway's answers.

`python -m edge.bench.endpoint` prints its address and serves until its standard input ends. It accepts only SPARQL by
POST with a Content-Length, as the benchmarks send it.
"""

from __future__ import annotations

import asyncio
import re
import sys

import pyoxigraph as ox

_STORE = ox.Store()


async def main() -> None:
    """Serve until standard input ends."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    async with server:
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        # The pipe is closed even if the benchmark is killed, so no server is left behind.
        await asyncio.to_thread(sys.stdin.read)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            text = (await reader.readexactly(int(length[1]) if length else 0)).decode()
            body = _answer(text, query=b"application/sparql-query" in head)
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    except asyncio.IncompleteReadError:
        writer.close()


def _answer(text: str, *, query: bool) -> bytes:
    if not query:
        _STORE.update(text)
        return b""
    found = _STORE.query(text)
    assert isinstance(found, ox.QuerySolutions)
    return found.serialize(format=ox.QueryResultsFormat.JSON) or b""


if __name__ == "__main__":
    asyncio.run(main())
