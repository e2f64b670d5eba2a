"""A listening socket under many unauthenticated connections: acceptance, refusal, and capacity for known clients."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.logs import records_of

from edge import listener as listening
from edge.listener import AT_ONCE, Listener
from edge.security import certificates
from tests.support.examples import examples

MOST, OF_ONE = 4, 3


@contextmanager
def listener(most: int = MOST, of_one: int = OF_ONE) -> Iterator[Listener]:
    with Listener("127.0.0.1", 0, most, of_one) as made:
        made.setblocking(False)
        made.listen()
        yield made


@pytest.fixture
def remote(monkeypatch):
    """Let addresses 127.0.0.x stand for other machines."""
    monkeypatch.setattr(listening, "is_local", lambda host: False)


@pytest.fixture
def small_room(monkeypatch):
    monkeypatch.setattr(listening, "_UNAUTHENTICATED", 5)


class Clients:
    """Clients of a listener, and the state of their connections."""

    def __init__(self, to: Listener, stack: ExitStack) -> None:
        self.to = to
        self.stack = stack
        self.accepted: list[tuple[listening._Connection, tuple[str, int]]] = []

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        """Open a connection and wait until the listener has processed it."""
        client = socket.create_connection(("127.0.0.1", self.to.port), 5, source_address=(host, 0))
        self.stack.enter_context(client)
        try:
            connection, address = self.to.accept()
        except BlockingIOError:
            return client
        self.stack.enter_context(connection)
        self.accepted.append((connection, address))
        return client

    def request(self, host: str = "127.0.0.1") -> socket.socket:
        """Open a connection and send a complete request."""
        before = len(self.accepted)
        client = self.connect(host)
        if len(self.accepted) > before:
            self.to.mark_known(self.accepted[-1][1])
        return client


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@contextmanager
def clients(most: int = MOST, of_one: int = OF_ONE) -> Iterator[Clients]:
    with listener(most, of_one) as to, ExitStack() as stack:
        yield Clients(to, stack)


def test_one_address_gets_a_few_extra_connections_for_error_messages(remote):
    with clients() as those:
        opened = [those.connect() for _ in range(6)]
        assert [is_open(client) for client in opened] == [True] * (OF_ONE + 1) + [False] * 2
        assert is_open(those.connect("127.0.0.2"))
        those.accepted[0][0].close()
        assert is_open(those.connect())
        assert not is_open(those.connect())


def test_local_connections_count_in_total_only():
    with clients() as those:
        most = MOST + 1 + AT_ONCE
        opened = [those.request() for _ in range(most + 2)]
        assert [is_open(client) for client in opened] == [True] * most + [False] * 2
        those.accepted[0][0].close()
        assert is_open(those.connect())


def test_a_new_connection_replaces_the_oldest_one_without_a_complete_request():
    with clients() as those:
        first = those.request()
        silent = [those.connect() for _ in range(MOST + AT_ONCE)]
        assert all(map(is_open, silent))
        late = those.request()
        assert [is_open(client) for client in (first, *silent[:2], late)] == [True, False, True, True]
        assert those.to.complete == 2
        those.accepted[1][0].close()
        assert not is_open(silent[0])
        assert those.to._known == 1 + MOST + AT_ONCE


def test_a_remote_client_replaces_a_connection_with_half_a_request(monkeypatch):
    monkeypatch.setattr(listening, "is_local", lambda host: host == "127.0.0.1")
    with clients(of_one=100) as those:
        half = [those.connect("127.0.0.2") for _ in range(MOST + 1)]
        for _, address in those.accepted:
            those.to.mark_known(address, complete=False)
        assert those.to.complete == 0
        assert is_open(those.request("127.0.0.3"))
        assert [is_open(client) for client in half] == [False] + [True] * MOST


def test_uploads_are_not_replaced_while_there_are_more_silent_connections():
    with clients() as those:
        uploads = [those.connect() for _ in range(3)]
        for _, address in those.accepted:
            those.to.mark_known(address, complete=False)
        silent = [those.connect() for _ in range(20)]
        assert all(map(is_open, uploads))
        assert is_open(silent[-1])
        assert those.to.complete == 0


def test_half_bodies_leave_new_connections_the_time_for_a_header():
    with clients() as those:
        for _ in range(MOST + 1 + AT_ONCE):
            those.connect()
            those.to.mark_known(those.accepted[-1][1], complete=False)
        silent = [those.connect() for _ in range(20)]
        assert [is_open(client) for client in silent[-6:]] == [True] * 6


def test_a_replaced_connection_is_aborted_by_its_transport():
    """Also if the gate registers its transport after the replacement. Its request must be dropped."""
    aborted = []
    with clients() as those:
        opened = [those.connect() for _ in range(MOST + 1 + AT_ONCE)]
        address, late = (those.accepted[number][1] for number in (0, 1))
        those.to.set_abort(address, lambda: aborted.append("registered"))
        those.connect()
        assert aborted == ["registered"]
        assert is_open(opened[0]), "its transport closes it"
        those.connect()
        assert not is_open(opened[1])
        those.to.set_abort(late, lambda: aborted.append("late"))
        assert aborted == ["registered", "late"]
        known = [those.to.mark_known(address) for _, address in those.accepted]
        assert known == [False, False] + [True] * (MOST + 1 + AT_ONCE)
        assert those.to.complete == MOST + 1 + AT_ONCE


def test_a_new_connection_from_the_port_of_a_replaced_one_is_not_taken_for_it():
    with clients() as those:
        for _ in range(MOST + 1 + AT_ONCE):
            those.connect()
        old, address = those.accepted[0]
        those.connect()
        with socket.create_connection(("127.0.0.1", those.to.port), 5):
            plain, _ = socket.socket.accept(those.to)
            new = those.to._let_in(plain, address)
            assert new is not None
            with new:
                assert those.to.mark_known(address)
                old.close()
                assert (those.to._known, those.to._closing, those.to.complete) == (MOST + 1 + AT_ONCE, 1, 1)


def test_a_full_port_closes_no_unauthenticated_connection_for_nothing(monkeypatch):
    monkeypatch.setattr(listening, "is_local", lambda host: host == "127.0.0.1")
    monkeypatch.setattr(listening, "_UNAUTHENTICATED", 3)
    with clients(of_one=100) as those:
        waiting = [those.connect("127.0.0.2") for _ in range(3)]
        full = [those.request() for _ in range(MOST + 1 + AT_ONCE)]
        assert not any(is_open(those.connect(f"127.0.0.{host}")) for host in (3, 4, 5))
        assert all(map(is_open, [*waiting, *full]))
        assert those.to._known == those.to.complete == len(full)


def test_few_replaced_connections_have_a_descriptor_at_a_time(monkeypatch):
    monkeypatch.setattr(listening, "_CLOSING", 2)
    with clients() as those:
        for _ in range(MOST + 1 + AT_ONCE):
            those.connect()
        assert [is_open(those.connect()) for _ in range(3)] == [True, True, False]
        those.accepted[0][0].close()
        assert is_open(those.connect())


def test_some_connections_are_reserved_for_this_machine(monkeypatch):
    monkeypatch.setattr(listening, "is_local", lambda host: host == "127.0.0.1")
    with clients(of_one=100) as those:
        while is_open(those.connect("127.0.0.2")):
            those.to.mark_known(those.accepted[-1][1])
        assert len(those.accepted) == MOST + 1
        assert is_open(those.connect())


def test_the_oldest_unauthenticated_connection_of_the_busiest_address_is_closed(remote, small_room):
    with clients(of_one=10) as those:
        first = those.connect("127.0.0.9")
        crowd = [those.connect("127.0.0.2") for _ in range(4)]
        assert all(map(is_open, [first, *crowd]))
        late = those.connect("127.0.0.3")
        assert is_open(first)
        assert is_open(late)
        assert [is_open(client) for client in crowd] == [False, True, True, True]


def test_a_new_connection_of_the_busiest_address_is_refused(remote, small_room):
    with clients(of_one=10) as those:
        opened = [those.connect("127.0.0.2") for _ in range(5)]
        assert not is_open(those.connect("127.0.0.2"))
        assert all(map(is_open, opened))


def test_a_known_client_is_not_evicted(remote, small_room):
    with clients(of_one=100) as those:
        opened = [those.connect("127.0.0.2") for _ in range(5)]
        those.to.mark_known(those.accepted[0][1])
        later = [those.connect(f"127.0.0.{host}") for host in (2, 3, 4)]
        assert [is_open(client) for client in [*opened, *later]] == [True, False, False, *[True] * 5]


def test_unauthenticated_connections_do_not_block_known_clients(remote):
    with clients(most=2, of_one=100) as those:
        for _ in range(20):
            those.connect("127.0.0.2")
        assert is_open(those.connect())
        for _, address in those.accepted[:3]:
            those.to.mark_known(address)
        assert not is_open(those.connect())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["connect", "head", "know", "close"]), st.integers(0, 9)), max_size=40))
def test_the_count_of_connections_is_exact(steps):
    """Connections by address, unauthenticated ones and known ones: closed connections leave no count behind."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(listening, "is_local", lambda host: host == "127.0.0.1")
        patch.setattr(listening, "_UNAUTHENTICATED", 3)
        those = stack.enter_context(clients())
        complete = set()
        for what, number in steps:
            if what == "connect":
                those.connect(f"127.0.0.{number % 3 + 1}")
            elif those.accepted:
                connection, address = those.accepted[number % len(those.accepted)]
                if what != "close":
                    assert those.to.mark_known(address, complete=what == "know") == (
                        not connection.replaced or connection.fileno() < 0
                    )
                    if what == "know" and not connection.replaced:
                        complete.add(connection)
                else:
                    connection.close()
            open_ = [(connection, address) for connection, address in those.accepted if connection.fileno() >= 0]
            living = [address for _, address in open_]
            assert len(those.to._unauthenticated) <= 3
            assert those.to._closing == sum(connection.replaced for connection, _ in open_)
            assert those.to._known + len(those.to._unauthenticated) + those.to._closing == len(living)
            assert those.to.complete == sum(connection in complete for connection, _ in open_)
            assert 0 <= those.to.complete <= those.to._known <= MOST + 1 + AT_ONCE
            assert those.to._of_one == {
                host: count
                for host in ("127.0.0.2", "127.0.0.3")
                if (count := sum(address[0] == host for address in living))
            }


def test_the_lowest_descriptors_are_not_for_clients():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = 400 + 4 * len(list(Path("/proc/self/fd").iterdir()))  # the lowest quarter has free slots
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
    try:
        with clients(most=10_000) as those:

            def comes_in() -> bool:
                with those.connect() as client:
                    return is_open(client)

            while comes_in():
                assert highest // 4 <= those.accepted[-1][0].fileno() < highest
            assert len(those.accepted) > 200
            with socket.socket() as own:
                assert own.fileno() < highest // 4
            those.accepted[0][0].close()
            assert comes_in()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_descriptors_asyncio_logs_once_a_second(monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with clients() as those, ExitStack() as stack:
        waiting = [stack.enter_context(socket.create_connection(("127.0.0.1", those.to.port))) for _ in range(2)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting[-1].fileno(), limits[1]))
        try:
            while True:
                try:
                    stack.enter_context(socket.socket())
                except OSError:
                    break
            with pytest.raises(OSError, match="Too many open files"):
                those.to.accept()
            with pytest.raises(BlockingIOError):
                those.to.accept()
            monkeypatch.setattr(those.to, "_exhausted_at", those.to._exhausted_at - 2)
            with pytest.raises(OSError, match="Too many open files"):
                those.to.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert those.to.accept()[0].close() is None


async def test_a_port_that_is_deaf_is_logged_once_and_leaves_the_loop_alone(caplog):
    """Its socket stays readable forever, and accepts no connection."""
    caplog.set_level(logging.WARNING)
    with Listener("127.0.0.1", 0, MOST, OF_ONE) as to:
        async with await asyncio.start_server(lambda *_: None, sock=to, backlog=AT_ONCE):
            to.shutdown(socket.SHUT_RDWR)
            for _ in range(100):
                await asyncio.sleep(0)
            (line,) = caplog.records
            assert (line.message, line.port) == ("listener.deaf", to.port)
            assert to.fileno() not in asyncio.get_running_loop()._selector.get_map()


def test_many_refused_connections_are_one_log_line(caplog):
    caplog.set_level(logging.WARNING)
    with clients() as those:
        for _ in range(50):
            those.connect()
    (line,) = records_of("edge", caplog)
    assert line.message == "listener.turned_away"


async def test_silent_connections_do_not_keep_a_client_from_its_tls_handshake(tmp_path, remote, small_room):
    """Far more connections than free slots, from several addresses."""
    files = certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    trust = ssl.create_default_context(cafile=files.authority)

    with Listener("127.0.0.1", 0, 100, 50) as to, ExitStack() as stack:

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(10))
            writer.close()

        server = await asyncio.start_server(echo, sock=to, ssl=context, backlog=AT_ONCE)
        async with server:
            for number in range(120):
                source = (f"127.0.0.{number % 3 + 2}", 0)
                silent = await asyncio.to_thread(
                    socket.create_connection, ("127.0.0.1", to.port), 5, source_address=source
                )
                stack.enter_context(silent)
            reader, writer = await asyncio.open_connection("127.0.0.1", to.port, ssl=trust, server_hostname="localhost")
            writer.write(b"hello")
            assert await reader.read() == b"hello"
            writer.close()
            await writer.wait_closed()
            assert len(to._unauthenticated) <= 25
