"""The private names of asyncio's transports have the meaning that `edge.compat.asyncio_transports` expects."""

import asyncio
import ssl

import pytest

from edge.compat import asyncio_transports
from edge.compat.asyncio_transports import Unlink, limit_reads
from edge.protocol.trust import trusting
from edge.security.certificates import make

ADVICE = f"asyncio has changed: adapt {asyncio_transports.__name__}, the version in its docstring, and this test"


@pytest.mark.parametrize("tls", [False, True])
async def test_the_cycle_of_a_closed_transport_is_broken(tmp_path, tls):
    server_context = client_context = None
    if tls:
        files = make(tmp_path)
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_context.load_cert_chain(files.server, files.server_key)
        client_context = trusting(files.authority)
    accepted = asyncio.get_running_loop().create_future()

    def connected(reader, writer):
        accepted.set_result(writer)

    async with await asyncio.start_server(connected, "127.0.0.1", 0, ssl=server_context) as server:
        port = server.sockets[0].getsockname()[1]
        name = "localhost" if tls else None
        _, far = await asyncio.open_connection("127.0.0.1", port, ssl=client_context, server_hostname=name)
        writer = await accepted
        transport = writer.transport
        plain = transport
        if tls:
            assert hasattr(transport, "_ssl_protocol"), ADVICE
            plain = transport._ssl_protocol._transport
        else:
            assert transport.max_size > 0, ADVICE
            limit_reads(transport, 1024)
            assert transport.max_size == 1024
        assert callable(plain._read_ready_cb), ADVICE
        unlink = Unlink(transport)
        unlink()
        assert plain._read_ready_cb is not None, "it is open"
        transport.abort()
        unlink()
        assert plain._read_ready_cb is None
        far.transport.abort()
