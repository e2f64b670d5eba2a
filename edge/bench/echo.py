"""WebSocket echo server with the gateway's WebSocket library, as the baseline for notifications.

`python -m edge.bench.echo` prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

from websockets.asyncio.server import ServerConnection, serve


async def main() -> None:
    """Serve until standard input ends."""
    # Without compression, like the gateway by default (ws.compression).
    async with serve(_echo, "127.0.0.1", 0, compression=None) as server:
        print(f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", flush=True)
        # The pipe is closed even if the benchmark is killed, so no server is left behind.
        await asyncio.to_thread(sys.stdin.read)


async def _echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


if __name__ == "__main__":
    asyncio.run(main())
