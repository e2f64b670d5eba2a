"""Discovery of the inboxes of targets, and delivery to them, over real sockets."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from receiver import Behaviour, MemoryReports, Receiver, dribble, flood, hang, reset

from edge.backoff import Backoff
from edge.protocol.errors import Forbidden, InvalidRequest
from edge.streams import target_inbox
from edge.streams.callback_hosts import CallbackHosts
from edge.streams.callback_request import LONGEST_DOCUMENT, Deadlines
from edge.streams.callbacks import CallbackLimits, Callbacks, Destination
from edge.streams.store import StreamStore
from edge.streams.stored_rows import StoredObserver
from edge.streams.target_inbox import NoInbox, check_target
from tests.support.waiting import eventually

QUICK = CallbackLimits(Deadlines(connect=5.0, answer=5.0), Backoff(first=0.001, most=0.002))
IMPATIENT = QUICK._replace(deadlines=Deadlines(connect=0.1, answer=0.1))
PATIENT = QUICK._replace(deadlines=Deadlines(connect=100.0, answer=100.0), per_host=1)
LDP = "http://www.w3.org/ns/ldp#"


class Sender:
    """Delivery of reports to the inbox of one target."""

    def __init__(self, hosts: CallbackHosts, limits: CallbackLimits) -> None:
        self.reports = MemoryReports()
        self.ended: list[str] = []
        self.callbacks = Callbacks(self.reports, hosts, limits, ended=self.ended.append)

    def observe(self, url: str, *numbers: int) -> None:
        self.reports.put("o", *numbers, body=b'{"head":{},"boolean":true}')
        self.callbacks.add(Destination("o", "q", url, is_target=True, query_identifier="f1"))

    async def done(self, count: int = 1) -> list[int]:
        return [(await self.reports.done.get())[1] for _ in range(count)]

    async def failed(self, failures: int = 2) -> str:
        """Wait until so many attempts in a row have failed. Return the reason."""

        def has_failed() -> str | None:
            status = self.callbacks.status("o")
            return status.problem if status is not None and status.failures >= failures else None

        return str(await eventually(has_failed, "failed attempts"))


@asynccontextmanager
async def sender(*hosts: str, limits: CallbackLimits = QUICK) -> AsyncIterator[Sender]:
    made = Sender(CallbackHosts(hosts or ["*"], security=True), limits)
    try:
        yield made
    finally:
        await made.callbacks.stop()


@asynccontextmanager
async def servers(*behaviours: Behaviour) -> AsyncIterator[tuple[Receiver, Receiver]]:
    """Run the server of a target, and another one with an inbox, which answers 201."""
    target, inbox = Receiver(*behaviours), Receiver()
    inbox.then(inbox.answering("201 Created"))
    async with target.running(), inbox.running():
        yield target, inbox


def answer(content: str | bytes = b"", kind: str = "", *links: str, status: str = "200 OK", more: str = "") -> bytes:
    body = content.encode() if isinstance(content, str) else content
    fields = [f"Content-Type: {kind}"] * bool(kind) + [f"Link: {link}" for link in links] + [more] * bool(more)
    head = "\r\n".join([f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "", ""])
    return head.encode() + body


def link(inbox: Receiver) -> str:
    return f'<{inbox.url}>; rel="{LDP}inbox"'


TRIPLE = "<TARGET> <http://www.w3.org/ns/ldp#inbox> <INBOX> ."
CONTEXT = '"@context": {"ldp": "http://www.w3.org/ns/ldp#", "inbox": {"@id": "ldp:inbox", "@type": "@id"}}'
FOUND = {
    "link": ("", "", 'Link: <INBOX>; rel="http://www.w3.org/ns/ldp#inbox"'),
    "several relations": ("", "text/html", 'Link: <x>; rel=up, <INBOX>; rel="up http://www.w3.org/ns/ldp#inbox"'),
    "second header": ("", "", 'Link: </x>; rel=type\r\nLink: <INBOX>; rel="http://www.w3.org/ns/ldp#inbox"'),
    "link of a broken body": ("{", "application/ld+json", 'link: <INBOX>;rel="http://www.w3.org/ns/ldp#inbox"'),
    "turtle": (TRIPLE, "text/turtle", ""),
    "relative turtle": (f"@prefix l: <{LDP}> . <> l:inbox <INBOX> .", "Text/Turtle; charset=utf-8", ""),
    "n-triples": (TRIPLE, "application/n-triples", 'Link: <x>; rel="http://www.w3.org/ns/ldp#constrainedBy"'),
    "compacted": (f'{{{CONTEXT}, "@id": "", "inbox": "INBOX"}}', "application/ld+json", ""),
    "expanded": (f'[{{"@id": "TARGET", "{LDP}inbox": [{{"@id": "INBOX"}}]}}]', 'application/ld+json; profile="x"', ""),
    "rdfxml": (
        '<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:l="http://www.w3.org/ns/ldp#">'
        '<r:Description r:about=""><l:inbox r:resource="INBOX"/></r:Description></r:RDF>',
        "application/rdf+xml",
        "",
    ),
}


@pytest.mark.parametrize("name", list(FOUND))
async def test_the_inbox_is_discovered(name: str) -> None:
    content, kind, header = FOUND[name]
    async with servers() as (target, inbox), sender() as made:
        content, header = (each.replace("TARGET", target.url).replace("INBOX", inbox.url) for each in (content, header))
        target.then(target.answering(answer(content, kind, more=header)))
        made.observe(target.url, 1, 2)
        assert await made.done(2) == [1, 2]
        assert made.callbacks.inbox("o") == inbox.url
        asked = target.requests.get_nowait()
        assert asked.line == "GET /hook?key=1 HTTP/1.1"
        assert asked.headers["Accept"].startswith("application/ld+json, text/turtle")
        assert target.connections == 1  # the second report needs no discovery
        sent = [inbox.requests.get_nowait() for _ in range(2)]
        assert {each.line for each in sent} == {"POST /hook?key=1 HTTP/1.1"}
        assert {each.headers["Content-Type"] for each in sent} == {"application/ld+json"}
        assert [each.headers["Idempotency-Key"] for each in sent] == ['"q:o:f1:1"', '"q:o:f1:2"']
        assert [json.loads(each.body)["number"] for each in sent] == [1, 2]
        assert json.loads(sent[0].body)["target"] == target.url


async def test_the_inbox_may_be_relative_and_no_body_is_read_after_its_header() -> None:
    relative = f'HTTP/1.1 200 OK\r\nLink: <in/box?a=b>; rel="{LDP}inbox"\r\n\r\n'.encode()
    target = Receiver()
    async with target.then(dribble(relative), target.answering("202 Accepted")).running(), sender() as made:
        made.observe(f"http://127.0.0.1:{target.port}/a/b", 1)
        assert await made.done() == [1]
        assert target.requests.get_nowait().line == "POST /a/in/box?a=b HTTP/1.1"


async def test_a_fragment_has_an_inbox_of_its_own() -> None:
    async with servers() as (target, inbox), sender() as made:
        body = f"<#me> <{LDP}inbox> <{inbox.url}> . <> <{LDP}inbox> <http://127.0.0.1:9/> ."
        other = f'<http://127.0.0.1:9/>; rel="{LDP}inbox"'
        target.then(target.answering(answer(body, "text/turtle", other)))
        made.observe(f"{target.url}#me", 1)
        assert await made.done() == [1]
        assert target.requests.get_nowait().line == "GET /hook?key=1 HTTP/1.1"
    async with servers() as (target, inbox), sender() as made:
        target.then(target.answering(answer("", "", f'{link(inbox)}; anchor="#me"')))
        made.observe(f"{target.url}#me", 1)
        assert await made.done() == [1]


REFUSED = {
    "no inbox": (answer("<urn:x> <http://www.w3.org/ns/ldp#inbox> <urn:y> .", "text/turtle"), "has no inbox"),
    "literal": (answer(f"<> <{LDP}inbox> 'x' .", "text/turtle"), "has no inbox"),
    "other relation": (answer("", "text/html", f'<http://x.org/>; rel="{LDP}inboxes"'), "not RDF"),
    "no type": (answer(TRIPLE), "not RDF"),
    "html": (answer("<html>", "text/html"), "not RDF"),
    "gzip": (answer("x", "text/turtle", more="Content-Encoding: gzip"), "content coding"),
    "broken": (answer("hidden{", "text/turtle"), "not valid Turtle"),
    "remote context": (answer('{"@context": "http://127.0.0.1:9/"}', "application/ld+json"), "remote context"),
    "deep": (answer("[" * 100_000, "application/ld+json"), "levels"),
    "xml bomb": (
        answer('<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;">]><x>&c;</x>', "application/rdf+xml"),
        "entities",
    ),
    "latin-1": (answer(b'{"a": "\xff"}', "application/ld+json"), "not valid"),
    "long": (answer("#" * (LONGEST_DOCUMENT + 1), "text/turtle"), "more than"),
    "short": (b"HTTP/1.1 200 OK\r\nContent-Type: text/turtle\r\nContent-Length: 9\r\n\r\n<", "connection ended"),
    "scheme": (answer("", "", f'<mailto:a@b>; rel="{LDP}inbox"'), "URL of the inbox is not an http"),
    "credentials": (answer("", "", f'<http://a:b@x.org/>; rel="{LDP}inbox"'), "URL of the inbox has credentials"),
    "not found": (answer(status="404 Not Found"), "the target answered 404"),
    "redirect": (answer(status="302 Found", more="Location: /x"), "the target answered 302"),
    "error": (answer(status="503 Busy"), "the target answered 503"),
    "private host": (answer("", "", f'<http://127.0.0.2:9/>; rel="{LDP}inbox"'), "streams.callback_hosts"),
    "dead": (answer("", "", f'<http://127.0.0.1:9/>; rel="{LDP}inbox"'), "cannot be reached"),
}


@pytest.mark.parametrize("name", list(REFUSED))
async def test_without_a_usable_inbox_the_report_waits(name: str) -> None:
    content, reason = REFUSED[name]
    async with servers() as (target, inbox), sender("127.0.0.1") as made:
        target.then(target.answering(content))
        made.observe(target.url, 1)
        problem = await made.failed()
        assert reason in problem
        assert "hidden" not in problem
        # As soon as the target has an inbox, the report is delivered.
        target.then(target.answering(answer("", "", link(inbox))))
        assert await made.done() == [1]


@pytest.mark.parametrize(
    "behaviour",
    [
        hang,
        reset,
        dribble(b"HTTP/1.1 200 OK\r\nContent-Type: text/turtle\r\n\r\n"),
        flood(b"HTTP/1.1 200 OK\r\nContent-Type: text/turtle\r\n\r\n"),
        flood(b"HTTP/1.1 200 OK\r\nLink: "),
    ],
    ids=["hangs", "resets", "slow body", "endless body", "endless header"],
)
async def test_a_broken_target_is_bounded(behaviour: Behaviour) -> None:
    async with servers(behaviour) as (target, inbox), sender(limits=IMPATIENT) as made:
        made.observe(target.url, 1)
        await made.failed()
        target.then(target.answering(answer("", "", link(inbox))))
        assert await made.done() == [1]


async def test_slow_documents_delay_neither_callbacks_nor_known_inboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    calls = 0

    def slow(*_: object) -> str:
        nonlocal calls
        calls += 1
        if calls <= 4:
            raise NoInbox("none yet")
        assert end.wait(600)  # longer than the wait for the others
        return inbox.url

    monkeypatch.setattr(target_inbox, "inbox_in", slow)
    limits = QUICK._replace(slots=4)
    async with servers() as (target, inbox), servers() as (good, _), sender(limits=limits) as made:
        target.then(target.answering(answer("{}", "application/ld+json")))
        good.then(good.answering(answer("", "", link(inbox))))
        made.observe(good.url, 1)
        made.reports.put("callback", 1)
        made.callbacks.add(Destination("callback", "q", inbox.url))
        assert await made.done(2) == [1, 1]
        try:
            for number in range(4):
                made.reports.put(f"o{number}", 1, body=b'{"head":{},"boolean":true}')
                made.callbacks.add(Destination(f"o{number}", "q", target.url, is_target=True))
            await eventually(lambda: calls > 4, "a slow document")
            await eventually(lambda: made.callbacks.sending == 2, "half of the slots for discoveries")
            made.reports.put("callback", 2)
            made.reports.put("o", 2, body=b'{"head":{},"boolean":true}')
            for observer in ("callback", "o"):
                made.callbacks.notify(observer)
            await eventually(lambda: made.reports.done.qsize() == 2, "the reports of the others")
        finally:
            end.set()
        assert await made.done(6) == [2] * 2 + [1] * 4


async def test_requests_to_an_inbox_count_for_its_own_host() -> None:
    end = asyncio.Event()
    async with servers() as (first, inbox), servers() as (second, _), sender(limits=PATIENT) as made:

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await end.wait()
            await inbox.answering("201 Created")(reader, writer)

        inbox.then(wait)
        for target in (first, second):
            target.then(target.answering(answer("", "", link(inbox))))
            made.reports.put(target.url, 1, body=b'{"head":{},"boolean":true}')
            made.callbacks.add(Destination(target.url, "q", target.url, is_target=True))
        for target in (first, second):
            await target.requests.get()
        await eventually(lambda: made.callbacks.sending == inbox.connections == 1, "one request to the inbox")
        assert made.callbacks.inbox(first.url) == made.callbacks.inbox(second.url) == inbox.url
        end.set()
        assert await made.done(2) == [1, 1]


async def test_a_report_is_encoded_once_although_it_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []
    original = target_inbox.notification
    monkeypatch.setattr(target_inbox, "notification", lambda *given: encoded.append(given[-1]) or original(*given))
    async with servers() as (target, inbox), sender() as made:
        accepting = inbox.answering("201 Created")
        inbox.then(reset, reset, accepting)
        target.then(target.answering(answer("", "", link(inbox))))
        made.observe(target.url, 1, 2)
        assert await made.done(2) == [1, 2]
        assert (target.connections, inbox.connections) == (3, 4)
        assert len(encoded) == 2


async def test_a_report_that_was_merged_between_attempts_is_encoded_again() -> None:
    async with servers() as (target, inbox), sender() as made:

        async def replace(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made.reports.replace("o", b'{"head":{},"boolean":false}')
            await inbox.answering("503 Busy")(reader, writer)

        inbox.then(replace, inbox.answering("201 Created"))
        target.then(target.answering(answer("", "", link(inbox))))
        made.observe(target.url, 1)
        assert await made.done() == [1]
        sent = [json.loads(inbox.requests.get_nowait().body)["object"]["boolean"] for _ in range(2)]
        assert sent == [True, False]


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone", "301 Moved"])
async def test_an_inbox_that_is_gone_is_discovered_again(status: str) -> None:
    async with servers() as (target, inbox), sender() as made:
        old = Receiver()
        old.then(old.answering("201 Created"), old.answering(status))
        async with old.running():
            target.then(target.answering(answer("", "", link(old))), target.answering(answer("", "", link(inbox))))
            made.observe(target.url, 1, 2, 3)
            assert await made.done(3) == [1, 2, 3]
            assert (target.connections, old.connections, inbox.connections) == (2, 2, 2)
            keys = [inbox.requests.get_nowait().headers["Idempotency-Key"] for _ in range(2)]
            assert keys == ['"q:o:f1:2"', '"q:o:f1:3"']
            sent = [old.requests.get_nowait() for _ in range(2)]
            assert json.loads(sent[0].body)["@id"] != json.loads(sent[1].body)["@id"]


async def test_a_busy_inbox_is_tried_again_without_discovery() -> None:
    async with servers() as (target, inbox), sender() as made:
        target.then(target.answering(answer("", "", link(inbox))))
        inbox.then(*(inbox.answering(each) for each in ("503 Busy", "429 Slow", "201 Created")))
        made.observe(target.url, 1)
        assert await made.done() == [1]
        bodies = {inbox.requests.get_nowait().body for _ in range(3)}
        assert (len(bodies), target.connections) == (1, 1)


async def test_an_inbox_that_stays_gone_loses_reports_and_a_target_that_is_gone_ends_the_observer() -> None:
    async with servers() as (target, inbox), sender() as made:
        target.then(target.answering(answer("", "", link(inbox))))
        inbox.then(inbox.answering("410 Gone"))
        made.observe(target.url, 1, 2)
        assert await made.done(2) == [1, 2]
        status = made.callbacks.status("o")
        assert status is not None
        assert (status.delivered, status.lost, status.problem) == (0, 2, "the inbox answered 404")
        assert made.ended == []
        target.then(target.answering(answer(status="410 Gone")))
        made.reports.put("o", 3, body=b'{"head":{},"boolean":true}')
        made.callbacks.notify("o")
        assert await eventually(lambda: made.ended, "the end") == ["o"]


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1/", Forbidden),
        ("ftp://example.org/", InvalidRequest),
        ("http://example.org/a[b", InvalidRequest),
        ("http://example.org/%zz", InvalidRequest),
        ("/streams/rooms", InvalidRequest),
        ("", InvalidRequest),
    ],
)
def test_urls_of_targets_are_checked(url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        check_target(url, CallbackHosts([], security=True))
    assert error is Forbidden or "the URL of the target" in str(raised.value)


def test_the_store_keeps_targets(tmp_path: Path) -> None:
    observers = [StoredObserver("a", "q", "http://x/", "", 3), StoredObserver("b", "q", "http://x/", "", 4, True)]
    store = StreamStore(tmp_path)
    with store.transaction():
        for each in observers:
            store.put_observer(each)
    store.close()
    again = StreamStore(tmp_path)
    assert again.observers() == observers
    again.close()


def test_observers_of_an_earlier_version_are_callbacks(tmp_path: Path) -> None:
    StreamStore(tmp_path).close()
    (file,) = tmp_path.glob("*.sqlite3")
    with sqlite3.connect(file) as old:
        old.executescript(
            "ALTER TABLE observers DROP COLUMN is_target; DROP TABLE report_numbers; DROP TABLE followed_queries; "
            "DROP TABLE late_elements; ALTER TABLE streams DROP COLUMN too_late; "
            "ALTER TABLE queries DROP COLUMN identifier; "
            "ALTER TABLE queries ADD COLUMN number INTEGER NOT NULL DEFAULT 0; PRAGMA user_version = 1; "
            "INSERT INTO observers VALUES ('a', 'q', 'http://x/', '', 3);"
        )
    old.close()
    store = StreamStore(tmp_path)
    assert store.observers() == [StoredObserver("a", "q", "http://x/", "", 3)]
    store.close()
