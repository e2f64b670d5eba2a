"""The private names of uvicorn exist and are used as `edge.compat.uvicorn` expects."""

import inspect
import socket

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl as library
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from edge.compat import uvicorn as compat
from tests.support.private_names import check_attributes, check_parameters, check_used

METHODS = {"_start_asgi_task": ["cycle", "app"], "_unsupported_upgrade_warning": []}
METHODS_OF_SERVER = {
    "startup": ["sockets"],
    "capture_signals": [],
    "main_loop": [],
    "on_tick": ["counter"],
    "shutdown": ["sockets"],
}


def test_the_protocol_has_and_calls_the_overridden_methods():
    more = {
        "_unset_keepalive_if_required": [],
        "send_400_response": ["msg"],
        "on_message_begin": [],
        "on_header": ["name", "value"],
        "on_headers_complete": [],
        "on_response_complete": [],
    }
    check_parameters("uvicorn", compat, HttpToolsProtocol, METHODS | more)
    check_used("uvicorn", compat, library, *(f"self.{name}(" for name in METHODS), "self.send_400_response(")


async def test_the_protocol_and_its_requests_have_the_attributes_that_the_limits_use():
    config = uvicorn.Config(app=lambda *_: None)
    config.load()
    protocol = compat.HookedProtocol(config, uvicorn.Server(config).server_state, {})
    names = ("connections", "client", "headers", "pipeline", "parser", "transport", "loop")
    check_attributes("uvicorn", compat, protocol, *names)
    check_used(
        "uvicorn", compat, RequestResponseCycle, "self.more_body", "self.disconnected", "self.message_event",
        "self.response_complete",
    )  # fmt: skip


async def test_the_server_starts_as_the_copied_method_does():
    check_parameters("uvicorn", compat, uvicorn.Server, METHODS_OF_SERVER)
    check_used("uvicorn", compat, uvicorn.Server, "self.startup(", "self.capture_signals()")
    check_used("uvicorn", compat, uvicorn.Server, "await self.main_loop()", "await self.shutdown(")
    check_used("uvicorn", compat, uvicorn.Server.on_tick, "if counter % 10 == 0", "if self.should_exit:")
    check_used("uvicorn", compat, uvicorn.Server.startup, "await self.lifespan.startup()", "self.started = True")
    parameters = list(inspect.signature(HttpToolsProtocol.__init__).parameters)
    assert parameters[:4] == ["self", "config", "server_state", "app_state"]
    server = compat.EmbeddedServer(uvicorn.Config(lambda *_: None), HttpToolsProtocol, backlog=8, handshake=10)
    check_attributes("uvicorn", compat, server, "server_state", "should_exit", "started")


@pytest.mark.parametrize(("answer", "expected"), [("complete", ["startup", "shutdown"]), ("failed", ["startup"])])
async def test_the_server_starts_and_ends_the_lifespan_of_the_application(answer, expected):
    seen = []

    async def app(scope, receive, send):
        assert scope["type"] == "lifespan"
        while "shutdown" not in seen:
            seen.append((await receive())["type"].removeprefix("lifespan."))
            await send({"type": f"lifespan.{seen[-1]}.{answer}"})

    config = uvicorn.Config(app, lifespan="on", log_config=None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = compat.EmbeddedServer(config, HttpToolsProtocol, backlog=8, handshake=10)
        server.up.add_done_callback(lambda _: setattr(server, "should_exit", True))
        await server.serve([listener])
    assert (seen, server.started) == (expected, answer == "complete")
