"""Delivery to callback URLs over real sockets: broken, slow and hostile receivers next to good ones."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from receiver import Behaviour, MemoryReports, Receiver, deaf, dribble, flood, hang, reset

from edge.backoff import Backoff
from edge.protocol.errors import StorageFailed
from edge.protocol.trust import trusting
from edge.security import certificates
from edge.streams.callback_hosts import CallbackHosts
from edge.streams.callback_request import Deadlines
from edge.streams.callbacks import CallbackLimits, Callbacks, Destination
from edge.streams.observer import ObserverStatus
from tests.support.waiting import eventually

QUICK = CallbackLimits(Deadlines(connect=5.0, answer=5.0), Backoff(first=0.001, most=0.002))
IMPATIENT = QUICK._replace(deadlines=Deadlines(connect=0.1, answer=0.1))
PATIENT = QUICK._replace(deadlines=Deadlines(connect=100.0, answer=100.0))
EVERYTHING = CallbackHosts(["*"], security=True)


class Delivery:
    """Callbacks over a store in memory."""

    def __init__(self, limits: CallbackLimits, hosts: CallbackHosts, tls: Callable[[], ssl.SSLContext]) -> None:
        self.reports = MemoryReports()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.executor = ThreadPoolExecutor(1)
        self.callbacks = Callbacks(
            self.reports, hosts, limits, ended=self.ended.put_nowait, executor=self.executor, tls=tls
        )

    def observe(self, observer_id: str, url: str, *numbers: int, body: bytes = b"{}") -> None:
        """Add an observer for which reports wait."""
        self.reports.put(observer_id, *numbers, body=body)
        self.callbacks.add(Destination(observer_id, "q", url, "http://gateway/queries/q", query_identifier="f1"))

    async def done(self, count: int) -> list[tuple[str, int]]:
        """Wait until this number of reports was acknowledged."""
        return [await self.reports.done.get() for _ in range(count)]

    async def failed(self, observer_id: str, failures: int = 1) -> str:
        """Wait until so many attempts in a row have failed. Return the reason."""
        status = await eventually(lambda: self._failed(observer_id, failures), "failed attempts")
        return str(status.problem)

    def _failed(self, observer_id: str, failures: int) -> ObserverStatus | None:
        status = self.callbacks.status(observer_id)
        return status if status is not None and status.failures >= failures else None

    async def idle(self) -> None:
        """Wait until no request runs."""
        await eventually(lambda: not self.callbacks.sending, "the end of all requests")


@asynccontextmanager
async def delivery(
    limits: CallbackLimits = QUICK,
    hosts: CallbackHosts = EVERYTHING,
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> AsyncIterator[Delivery]:
    made = Delivery(limits, hosts, tls)
    try:
        yield made
    finally:
        await made.callbacks.stop()
        made.executor.shutdown()


@asynccontextmanager
async def receiver(*behaviours: Behaviour) -> AsyncIterator[Receiver]:
    made = Receiver()
    async with made.then(*(behaviours or (made.answering("200 OK"),))).running():
        yield made


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_reports_arrive_in_order_with_their_headers() -> None:
    async with receiver() as server, delivery() as sender:
        sender.reports.put("o", 3, body=b'{"b":1}', merged=3)
        sender.observe("o", server.url, 4, 5)
        assert await sender.done(3) == [("o", 3), ("o", 4), ("o", 5)]
        first, *others = [server.requests.get_nowait() for _ in range(3)]
        assert first.line == "POST /hook?key=1 HTTP/1.1"
        assert first.body == b'{"b":1}'
        assert first.headers.pop("User-Agent").startswith("sepa-edge/")
        assert first.headers == {
            "Host": f"127.0.0.1:{server.port}",
            "Content-Type": "application/sparql-results+json",
            "Content-Length": "7",
            "Connection": "close",
            "Idempotency-Key": '"q:o:f1:3"',
            "Report-Query": '"q"',
            "Report-Number": "3",
            "Report-Time": "1970-01-01T00:00:03.000000Z",
            "Report-Merged": "3",
            "Link": '<http://gateway/queries/q>; rel="via"',
        }
        assert [request.headers["Report-Number"] for request in others] == ["4", "5"]
        status = sender.callbacks.status("o")
        assert status is not None
        assert status == (5, 0, 0, "", False)


async def test_an_observer_without_a_waiting_report_has_neither_task_nor_request() -> None:
    async with receiver() as server, delivery() as sender:
        sender.observe("o", server.url, 1)
        await sender.done(1)
        await sender.idle()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("callback-")]
        assert server.connections == 1
        sender.reports.put("o", 2)
        with ThreadPoolExecutor(1) as other:
            other.submit(sender.callbacks.notify, "o").result()
        assert await sender.done(1) == [("o", 2)]


async def test_a_report_is_sent_again_with_the_same_key_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edge")
    server = Receiver()
    answers = [server.answering(each) for each in ("500 No", "503 Busy", "429 Slow", "204 Done")]
    async with server.then(reset, *answers).running(), delivery() as sender:
        sender.observe("o", server.url, 1, 2)
        assert await sender.done(2) == [("o", 1), ("o", 2)]
        keys = [server.requests.get_nowait().headers["Idempotency-Key"] for _ in range(5)]
        assert keys == ['"q:o:f1:1"'] * 4 + ['"q:o:f1:2"']
    assert [record.getMessage() for record in caplog.records if record.name.startswith("edge.")] == [
        "callback.down",
        "callback.up",
    ]
    assert "key=1" not in str([vars(record) for record in caplog.records])  # a path may be a secret


async def test_a_refused_report_is_lost_and_the_next_one_follows() -> None:
    server = Receiver()
    refusals = [server.answering("404 Not Found")] * 4
    redirect = server.answering(b"HTTP/1.1 307 Moved\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")
    async with server.then(*refusals, redirect, server.answering("200 OK")).running(), delivery() as sender:
        sender.observe("o", server.url, 1, 2)
        assert await sender.done(2) == [("o", 1), ("o", 2)]
        assert server.connections == 6
        status = sender.callbacks.status("o")
        assert status is not None
        assert (status.delivered, status.lost) == (1, 1)


async def test_gone_ends_the_observer() -> None:
    server = Receiver()
    async with server.then(server.answering("410 Gone")).running(), delivery() as sender:
        sender.observe("o", server.url, 1, 2)
        assert await sender.ended.get() == "o"
        assert sender.callbacks.status("o") is None
        sender.callbacks.notify("o")
        assert server.connections == 1


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        pytest.param(hang, "no answer within 0.1 s", id="hangs"),
        pytest.param(deaf, "no answer within 0.1 s", id="does not read"),
        pytest.param(dribble(b"HTTP/1.1 200 OK\r\nA: "), "no answer within 0.1 s", id="a byte at a time"),
        pytest.param(dribble(b""), "no", id="garbage at a time"),
        pytest.param(flood(b"HTTP/1.1 200 OK\r\nA: "), "too long|within 0.1 s", id="endless header"),
        pytest.param(
            flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000), "too long|within 0.1 s", id="endless interim answers"
        ),
        pytest.param(flood(b"SSH-2.0-x\r\n"), "no valid answer|within 0.1 s", id="another protocol"),
        pytest.param(reset, "", id="resets"),
    ],
)
async def test_a_broken_receiver_neither_gets_nor_loses_reports_of_others(behaviour: Behaviour, reason: str) -> None:
    async with receiver(behaviour) as broken, receiver() as good, delivery(IMPATIENT) as sender:
        sender.observe("broken", broken.url, 1, body=b"x" * 3_000_000)
        sender.observe("good", good.url, 1, 2, 3)
        assert await sender.done(3) == [("good", 1), ("good", 2), ("good", 3)]
        assert re.search(reason, await sender.failed("broken", 2))
        # The report is still there for the time when the receiver works again.
        broken.then(broken.answering("200 OK"))
        assert await sender.done(1) == [("broken", 1)]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", id="half of the headers"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="only an interim answer"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="upgrade"),
        pytest.param(b"HTTP/1.1 abc OK\r\n\r\n", id="no status"),
        pytest.param(b"\x00\xff\r\n\r\n", id="binary"),
        pytest.param(b"HTTP/1.1 199 What\r\n\r\n", id="unknown interim answer"),
    ],
)
async def test_an_invalid_answer_does_not_deliver(answer: bytes) -> None:
    server = Receiver()
    async with server.then(server.answering(answer), server.answering("200 OK")).running(), delivery() as sender:
        sender.observe("o", server.url, 1)
        assert await sender.done(1) == [("o", 1)]
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.0 200\r\n\r\n", id="HTTP 1.0"),
        pytest.param(b"HTTP/1.1 103 Early\r\nRetry-After: 99\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", id="early hints"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="damaged body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", id="short body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabcdef", id="too much"),
        pytest.param(b"HTTP/1.1 205 Reset\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 200_000, id="long body"),
    ],
)
async def test_the_status_counts_for_each_body(answer: bytes) -> None:
    server = Receiver()
    async with server.then(server.answering(answer)).running(), delivery() as sender:
        sender.observe("o", server.url, 1)
        assert await sender.done(1) == [("o", 1)]
        assert server.connections == 1


async def test_an_endless_body_is_not_read() -> None:
    async with receiver(flood(b"HTTP/1.1 200 OK\r\n\r\n")) as server, delivery(PATIENT) as sender:
        sender.observe("o", server.url, 1, 2)
        assert await sender.done(2) == [("o", 1), ("o", 2)]


async def test_a_thousand_dead_observers_do_not_delay_a_good_one() -> None:
    listening = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(200)]  # they accept nothing
    try:
        async with receiver() as good, delivery(PATIENT) as sender:
            sender.observe("good", good.url, 1)
            await sender.done(1)
            for number in range(1000):
                port = listening[number % len(listening)].getsockname()[1]
                sender.observe(f"dead{number}", f"http://127.0.0.1:{port}/", 1)
            for number in range(2, 30):
                sender.reports.put("good", number)
                sender.callbacks.notify("good")
                assert await sender.done(1) == [("good", number)]
            assert 8 <= sender.callbacks.sending <= 16
            tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("callback-")]
            assert len(tasks) <= 16
    finally:
        for each in listening:
            each.close()


async def test_a_thousand_observers_whose_connection_is_refused_leave_a_new_one_its_turn() -> None:
    port = unused_port()
    async with receiver() as good, delivery(QUICK._replace(backoff=Backoff(first=0.2, most=0.4))) as sender:
        for number in range(1000):
            sender.observe(f"dead{number}", f"http://127.{number % 200}.1.1:{port}/", 1)
        sender.observe("good", good.url, 1, 2)
        assert await sender.done(2) == [("good", 1), ("good", 2)]
        assert "cannot be reached" in await sender.failed("dead999")


async def test_one_url_that_hangs_does_not_delay_others_at_its_host() -> None:
    async with receiver() as server, delivery(PATIENT) as sender:
        sender.observe("good", server.url, 1)
        await sender.done(1)
        server.then(hang, server.answering("200 OK"))
        sender.observe("slow", server.url, 1)
        await eventually(lambda: server.connections >= 2, "a connection")
        sender.reports.put("good", *range(2, 20))
        sender.callbacks.notify("good")
        assert await sender.done(18) == [("good", number) for number in range(2, 20)]


async def test_a_name_that_resolves_to_loopback_is_refused_at_the_connection() -> None:
    hosts = CallbackHosts([], security=True)
    async with receiver() as server, delivery(QUICK, hosts) as sender:
        # `add` does not check the host, as if the name had resolved to another address at the registration.
        sender.observe("o", f"http://localhost:{server.port}/", 1)
        assert "streams.callback_hosts" in await sender.failed("o", 3)
        assert server.connections == 0


@pytest.mark.parametrize("listed", ["localhost", "127.0.0.0/8", "127.0.0.1"])
async def test_a_listed_host_is_reached_with_security(listed: str) -> None:
    hosts = CallbackHosts([listed], security=True)
    async with receiver() as server, delivery(QUICK, hosts) as sender:
        sender.observe("o", f"http://localhost:{server.port}", 1)
        await sender.done(1)
        assert server.requests.get_nowait().line == "POST / HTTP/1.1"


async def test_an_unknown_name_is_tried_again() -> None:
    async with delivery() as sender:
        sender.observe("o", "http://no-such-host.invalid/", 1)
        assert "cannot be resolved" in await sender.failed("o", 2)


async def test_removal_and_stop_abort_requests() -> None:
    async with receiver(hang) as server, delivery(PATIENT) as sender:
        sender.observe("a", server.url, 1)
        sender.observe("b", server.url, 1)
        await eventually(lambda: server.connections >= 2, "a connection")
        sender.callbacks.remove("a")
        sender.callbacks.remove("a")
        assert sender.callbacks.status("a") is None
        sender.observe("b", server.url)  # registered again: the old request ends
        await eventually(lambda: server.connections >= 3, "a connection")
        await sender.callbacks.stop()
        sender.callbacks.notify("b")
        await sender.idle()
        assert sender.reports.done.empty()


async def test_a_failure_of_the_store_repeats_the_report(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edge")
    async with receiver() as server, delivery() as sender:
        sender.reports.faults = [StorageFailed("disk full"), OSError("a defect")]
        sender.observe("o", server.url, 1)
        assert await sender.done(1) == [("o", 1)]
        assert [record.getMessage() for record in caplog.records] == [
            "callback.not_stored",
            "callback.fault",
            "callback.up",
        ]


async def test_certificates_are_verified_for_the_name(tmp_path: Path) -> None:
    files = certificates.make(tmp_path, ["localhost"])
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(files.server, files.server_key)
    server = Receiver()
    server.then(server.answering("200 OK"))
    async with server.running(serving), delivery(tls=lambda: trusting(files.authority)) as sender:
        sender.observe("good", f"https://localhost:{server.port}/", 1)
        assert await sender.done(1) == [("good", 1)]
        async with delivery() as strict:
            strict.observe("untrusted", f"https://localhost:{server.port}/", 1)
            assert "certificate verify failed" in await strict.failed("untrusted")


@pytest.mark.parametrize("behaviour", [hang, reset], ids=["hangs", "resets"])
async def test_a_tls_handshake_has_a_deadline(behaviour: Behaviour) -> None:
    async with receiver(behaviour) as server, receiver() as good, delivery(IMPATIENT) as sender:
        sender.observe("o", server.url.replace("http", "https"), 1)
        sender.observe("good", good.url, 1, 2)
        await sender.failed("o", 5)
        assert await sender.done(2) == [("good", 1), ("good", 2)]


async def test_reports_that_were_not_acknowledged_are_sent_after_a_restart() -> None:
    server = Receiver()
    async with server.then(hang).running(), delivery(PATIENT) as sender:
        sender.observe("o", server.url, 1, 2)
        await eventually(lambda: server.connections, "a connection")
        await sender.callbacks.stop()
        server.then(server.answering("200 OK"))
        again = Callbacks(sender.reports, EVERYTHING, QUICK, ended=sender.ended.put_nowait)
        again.add(Destination("o", "q", server.url), last=0)
        assert await sender.done(2) == [("o", 1), ("o", 2)]
        await again.stop()
