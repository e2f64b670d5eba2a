"""Peers that do not speak Modbus properly: each request ends in time, with a reason."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pymodbus.framer.rtu import FramerRTU

from edge.modbus_client import ModbusClient, NoResponse, Refused
from tests.adapters.modbus_simulator import NullModem


@contextmanager
def peer(
    answer: Callable[[socket.socket, bytes], object],
    framing: str = "tcp",
    greet: Callable[[socket.socket], object] = lambda connection: None,
) -> Iterator[ModbusClient]:
    """A client of a peer that gets each request; it may send what it likes. `greet` is called for each connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    greet(connection)
                    while request := connection.recv(300):
                        answer(connection, request)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client = ModbusClient.tcp("127.0.0.1", server.getsockname()[1], framing, 0.2)
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


WRITES: dict[str, tuple[int, list[int], bytes]] = {
    "a read": (6, [9], b"\x03\x02\x00\x09"),
    "another address": (6, [9], b"\x06\x00\x63\x00\x09"),
    "another value": (6, [9], b"\x06\x00\x05\x00\x08"),
    "another coil": (5, [1], b"\x05\x00\x06\xff\x00"),
    "a coil that stays off": (5, [1], b"\x05\x00\x05\x00\x00"),
    "fewer registers": (16, [1, 2], b"\x10\x00\x05\x00\x01"),
    "fewer coils": (15, [1, 0], b"\x0f\x00\x05\x00\x01"),
    "an exception of another function": (6, [9], b"\x83\x02"),
}


@pytest.mark.parametrize("kind", list(WRITES))
def test_a_write_with_the_response_to_another_request_has_failed(kind):
    function, values, pdu = WRITES[kind]
    with (
        peer(lambda connection, request: connection.sendall(frame(request, pdu))) as client,
        pytest.raises(NoResponse, match="another request"),
    ):
        client.write(1, function, 5, values)


@pytest.mark.parametrize(
    ("table", "pdu"),
    [("holding", b"\x04\x02\0\x01"), ("discrete", b"\x01\x01\x05"), ("coil", b"\x01\x02\0\0")],
    ids=["holding", "discrete", "coil"],
)
def test_a_read_with_the_response_to_another_request_has_failed(table, pdu):
    with peer(lambda connection, request: connection.sendall(frame(request, pdu))) as client, pytest.raises(NoResponse):
        client.read(1, table, 0, 1)


@pytest.mark.parametrize("function", [5, 6, 15, 16])
def test_a_write_with_its_own_response_has_succeeded(function):
    with peer(lambda connection, request: connection.sendall(frame(request, request[7:12]))) as client:
        client.write(1, function, 5, [1])


def rtu(body: bytes) -> bytes:
    return body + struct.pack(">H", FramerRTU.compute_CRC(body))


@contextmanager
def line(directory: Path, framing: str, late: threading.Event) -> Iterator[ModbusClient]:
    """A client of an RTU device whose registers contain their address. While `late` is not set, it keeps its response,
    and sends it as soon as the client has connected again.
    """
    kept: list[bytes] = []

    def answer(send: Callable[[bytes], object], request: bytes) -> None:
        response = rtu(request[:2] + b"\x02" + request[2:4])
        if late.is_set():
            send(response)
        else:
            kept.append(response)
            late.set()

    if framing == "rtu":
        # A converter sends a late response of the line to the client that is connected then.
        with peer(
            lambda connection, request: answer(connection.sendall, request),
            "rtu",
            lambda connection: [connection.sendall(kept.pop()) for _ in kept[:]],
        ) as client:
            yield client
        return
    with NullModem(directory) as cable:
        end = os.open(cable.other, os.O_RDWR | os.O_NOCTTY)

        def serve() -> None:
            while (request := os.read(end, 8)) != b"\0":
                answer(lambda response: os.write(end, response), request)

        client = ModbusClient.line(str(cable.one), 115_200, "none", 1, 0.2)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        opened = client._client.connect

        def connect() -> bool:
            done = opened()
            for _ in kept[:]:
                os.write(end, kept.pop())
            return done

        client._client.connect = connect  # type: ignore[method-assign]
        client.connect()
        yield client
        client.close()
        writer = os.open(cable.one, os.O_RDWR | os.O_NOCTTY)
        os.write(writer, b"\0")
        thread.join(10)
        os.close(writer)
        os.close(end)


@pytest.mark.parametrize("framing", ["line", "rtu"])
def test_a_late_response_without_a_number_is_not_that_of_the_next_request(tmp_path, framing):
    with line(tmp_path, framing, threading.Event()) as client:
        with pytest.raises(NoResponse, match="timeout"):
            client.read(1, "holding", 10, 1)
        client.connect()
        assert client.read(1, "holding", 20, 1) == [20]
        assert client.read(1, "holding", 30, 1) == [30]


def test_the_timeout_of_a_device_applies_to_a_response_in_pieces():
    def answer(connection: socket.socket, request: bytes) -> None:
        response = frame(request, b"\x03\x04\x00\x01\x00\x02")
        for part in (response[:5], response[5:]):
            time.sleep(0.3)  # longer than the timeout of the connection
            connection.sendall(part)

    with peer(answer) as client:
        client.set_timeout(30)
        assert client.read(1, "holding", 0, 2) == [1, 2]


def test_descriptors_from_1024_on():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 1400:
        pytest.skip("the system allows too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 1400), limits[1]))
    kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with peer(lambda connection, request: connection.sendall(frame(request, b"\x03\x02\x00\x07"))) as client:
            assert client.read(1, "holding", 0, 1) == [7]
    finally:
        for each in kept:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_reason_of_a_failed_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NoResponse, match="cannot be connected: Connection refused"):
        ModbusClient.tcp("127.0.0.1", port, "tcp", 0.2).connect()
    with pytest.raises(NoResponse, match=r"cannot be connected: .*No such file"):
        ModbusClient.line("/dev/no-such-line", 9600, "none", 1, 0.2).connect()
