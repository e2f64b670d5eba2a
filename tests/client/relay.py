"""A TCP relay that can be cut: it forwards a port to another one until then."""

import asyncio
from contextlib import asynccontextmanager


class Relay:
    """The relay. `heard` contains the answers since the last cut."""

    def __init__(self, port):
        self.port = 0
        self.heard = bytearray()
        self._to = port
        self._writers = set()

    def cut(self):
        """Close all connections without a close handshake."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self.heard.clear()

    async def accept(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer, self.heard))

    async def _pass(self, reader, writer, heard=None):
        try:
            while data := await reader.read(65_536):
                if heard is not None:
                    heard += data
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


@asynccontextmanager
async def relay(port):
    """Relay to a port of this machine."""
    passing = Relay(port)
    async with await asyncio.start_server(passing.accept, "127.0.0.1", 0) as server:
        passing.port = server.sockets[0].getsockname()[1]
        yield passing
        passing.cut()
