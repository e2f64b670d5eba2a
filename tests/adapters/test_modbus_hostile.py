"""Peers that do not speak Modbus properly: each request ends in time, with a reason."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from edge.modbus_client import ModbusClient, NoResponse, Refused


@contextmanager
def peer(answer: Callable[[socket.socket, bytes], None]) -> Iterator[ModbusClient]:
    """A client of a peer that gets each request; it may send what it likes."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    while request := connection.recv(300):
                        answer(connection, request)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client = ModbusClient.tcp("127.0.0.1", server.getsockname()[1], "tcp", 0.2)
    try:
        client.connect()
        yield client
    finally:
        client.close()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def frame(request: bytes, pdu: bytes, transaction: int | None = None) -> bytes:
    number = struct.unpack(">H", request[:2])[0] if transaction is None else transaction
    return struct.pack(">HHHB", number, 0, len(pdu) + 1, request[6]) + pdu


def flood(connection: socket.socket, _: bytes) -> None:
    for _ in range(200):
        connection.sendall(b"\xff" * 2000)


ANSWERS: dict[str, Callable[[socket.socket, bytes], None]] = {
    "nothing": lambda connection, request: None,
    "garbage": lambda connection, request: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "flood": flood,
    "end": lambda connection, request: connection.shutdown(socket.SHUT_RDWR),
    "half": lambda connection, request: connection.sendall(frame(request, b"\x03\x04\x00\x01\x00\x02")[:-3]),
    "too few": lambda connection, request: connection.sendall(frame(request, b"\x03\x02\x00\x01")),
    "too many": lambda connection, request: connection.sendall(frame(request, b"\x03\x06" + b"\0\1" * 3)),
    "another transaction": lambda connection, request: connection.sendall(
        frame(request, b"\x03\x04\x00\x01\x00\x02", 9999)
    ),
    "a wrong length": lambda connection, request: connection.sendall(frame(request, b"\x03\xff\x00\x01\x00\x02")),
    "an unknown function": lambda connection, request: connection.sendall(frame(request, b"\x63\x00")),
    "bits": lambda connection, request: connection.sendall(frame(request, b"\x01\x01\x05")),
}


@pytest.mark.parametrize("kind", list(ANSWERS))
def test_a_request_ends_with_a_reason(kind):
    with peer(ANSWERS[kind]) as client:
        with pytest.raises(NoResponse, match=r"127.0.0.1:\d+"):
            client.read(1, "holding", 0, 2)
        assert not client.connected, "a late response must not be taken for that of the next request"


def test_the_next_request_works():
    def answer(connection: socket.socket, request: bytes) -> None:
        good = request[8:10] == b"\0\1"
        connection.sendall(frame(request, b"\x03\x04\x00\x01\x00\x02") if good else b"garbage")

    with peer(answer) as client:
        with pytest.raises(NoResponse):
            client.read(1, "holding", 0, 2)
        assert client.read(1, "holding", 1, 2) == [1, 2]


def test_an_exception_has_a_remedy():
    with (
        peer(lambda connection, request: connection.sendall(frame(request, b"\x83\x02"))) as client,
        pytest.raises(Refused, match=r"exception 2, illegal data address: .*check `address`") as caught,
    ):
        client.read(1, "holding", 0, 2)
    assert caught.value.code == 2


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NoResponse, match="cannot be connected"):
        ModbusClient.tcp("127.0.0.1", port, "tcp", 0.2).connect()
