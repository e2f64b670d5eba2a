"""A landing zone over HTTP: the real receiver, broken connections, and servers that are wrong or fail."""

import contextlib
import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from lossy_relay import Relay
from memory_outbox import EPOCH, MemoryOutbox, Zone

from edge.outbox.landing import KnownOutbox, LandingFailed
from edge.outbox.observation import Cells
from edge.outbox.over_http import PART, HttpLanding
from edge.outbox.segment import body
from edge.outbox.segmenter import cut
from edge.security import certificates
from tests.history.receiving import Receiver
from tests.support.processes import free_port


class Attic(MemoryOutbox):
    """The outbox of a gateway that the receiver knows."""

    gateway = "g1"


class Noisy(Attic):
    """An outbox whose values do not compress."""

    def store(self, count, start=0):
        chance = random.Random(7)
        for seq in range(self.last + 1, self.last + count + 1):
            self.stored[seq] = (1, body(Cells(start + seq, chance.randbytes(100).hex())))
        self.last += count


@pytest.fixture(scope="module")
def receiver(tmp_path_factory):
    made = Receiver(tmp_path_factory.mktemp("receiver"))
    made.start()
    yield made
    made.end()


@pytest.fixture
def zone(receiver, request):
    """A landing zone with its own epoch for each test."""
    return Zone(receiver.landing, "g1", f"{abs(hash(request.node.name)):016x}"[:16])


@pytest.fixture
def outbox(zone):
    made = Attic(25)
    made.epoch = zone.epoch
    return made


@pytest.fixture
def noisy(zone):
    made = Noisy(12_000)
    made.epoch = zone.epoch
    return made


@pytest.fixture
def relay(receiver):
    made = Relay(("127.0.0.1", int(receiver.url.rpartition(":")[2])))
    yield made
    made.close()


def landing_at(url, token="", timeout=20.0, ca_file=None):
    return HttpLanding(url, timeout=timeout, token=lambda: token, ca_file=ca_file)


def test_segments_arrive_and_their_state_is_reported(receiver, zone, outbox):
    landing = landing_at(f"{receiver.url}/", receiver.tokens["g1"])
    assert landing.look("g1", zone.epoch) == KnownOutbox()
    outbox.drop(11, 20)
    for first, last in ((1, 10), (11, 20), (21, 25)):
        landing.put(cut(outbox, first, last))
    assert zone.ranges() == [(1, 10), (11, 20), (21, 25)]
    assert [manifest.tombstone for manifest in zone.manifests()] == [False, True, False]
    zone.acknowledge(10)
    assert landing.look("g1", zone.epoch) == KnownOutbox(10, ((1, 10), (11, 20), (21, 25)))
    landing.put(cut(outbox, 1, 10))  # existing data stays unchanged
    assert zone.ranges() == [(1, 10), (11, 20), (21, 25)]


def test_a_segment_arrives_in_parts_over_an_unstable_line(receiver, zone, noisy, relay):
    landing = landing_at(f"http://127.0.0.1:{relay.port}", receiver.tokens["g1"])
    segment = cut(noisy, 1, noisy.last)
    assert len(segment.rows) > 5 * PART
    for _ in range(30):
        relay.left = 2 * PART
        assert zone.ranges() == []
        with contextlib.suppress(LandingFailed):
            landing.put(segment)
            break
    assert zone.ranges() == [(1, noisy.last)]


def test_a_receiver_that_is_killed_amid_a_segment_has_it_in_the_end(tmp_path):
    receiver = Receiver(tmp_path)
    listen = f"127.0.0.1:{free_port()}"
    receiver.start(listen)
    relay = Relay(("127.0.0.1", int(listen.rpartition(":")[2])))
    noisy = Noisy(12_000)
    landing = landing_at(f"http://127.0.0.1:{relay.port}", receiver.tokens["g1"])
    relay.left = 2 * PART
    with pytest.raises(LandingFailed):
        landing.put(cut(noisy, 1, noisy.last))
    receiver.end(9)
    with pytest.raises(LandingFailed):
        landing.look("g1", EPOCH)
    receiver.start(listen)
    relay.left = None
    landing.put(cut(noisy, 1, noisy.last))
    relay.close()
    receiver.end()
    assert Zone(receiver.landing, "g1").ranges() == [(1, noisy.last)]


def test_incomplete_file_of_another_version_is_replaced(receiver, zone, noisy, relay):
    """Half of a file may exist, of a gateway with another version of zlib."""
    landing = landing_at(f"http://127.0.0.1:{relay.port}", receiver.tokens["g1"])
    segment = cut(noisy, 1, noisy.last)
    relay.left = 2 * PART
    with pytest.raises(LandingFailed):
        landing.put(segment._replace(rows=b"other" + segment.rows))
    relay.left = None
    for _ in range(3):
        with contextlib.suppress(LandingFailed):
            landing.put(segment)
    assert zone.ranges() == [(1, noisy.last)]


@pytest.mark.parametrize(("name", "status"), [("g2", 403), ("nobody", 401)])
def test_token_of_another_gateway_is_refused(receiver, outbox, name, status):
    landing = landing_at(receiver.url, receiver.tokens.get(name, "what"))
    for attempt in (lambda: landing.look("g1", EPOCH), lambda: landing.put(cut(outbox, 1, 5))):
        with pytest.raises(LandingFailed, match=f"answered {status}"):
            attempt()


def test_tls_checks_the_issuer_of_the_certificate(tmp_path):
    files = certificates.make(tmp_path / "tls", ())
    options = (f"--certificate={files.server}", f"--key={files.server_key}")
    receiver = Receiver(tmp_path, *options)
    receiver.start()
    url = receiver.url.replace("127.0.0.1", "localhost")
    assert url.startswith("https://")
    landing = landing_at(url, receiver.tokens["g1"], ca_file=files.authority)
    landing.put(cut(Attic(5), 1, 5))
    assert landing.look("g1", EPOCH).held == ((1, 5),)
    with pytest.raises(LandingFailed, match="not trusted"):
        landing_at(url, receiver.tokens["g1"]).look("g1", EPOCH)
    with pytest.raises(LandingFailed, match=r"offload.ca_file: .*none.pem cannot be used: No such file"):
        landing_at(url, ca_file=tmp_path / "none.pem").look("g1", EPOCH)
    receiver.end()


# Failing servers


class Scripted:
    """A server that answers requests by a script of (status, header, body), the last one forever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                scripted.requests.append((self.command, self.path, dict(self.headers), content))
                received = scripted.answers.pop(0) if len(scripted.answers) > 1 else scripted.answers[0]
                if received is None:
                    self.close_connection = True
                    scripted.over.wait(20)
                    return
                status, header, text = received
                self.send_response(status)
                for name, value in header.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_HEAD = do_PATCH = answer  # noqa: N815 - as http.server has it

            def log_message(self, *_):
                pass

        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(20)


@pytest.fixture
def scripted():
    made = []

    def scripted(*answers):
        made.append(Scripted(*answers))
        return made[-1]

    yield scripted
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {}, b"<html>"), "not a landing zone"),
        ((200, {}, b'{"acknowledged": {}}'), "not a landing zone"),
        ((200, {}, b"[]"), "not a landing zone"),
        ((404, {}, b""), "not that of a landing zone"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "answered 302"),
        ((503, {}, b'{"title": "Busy", "detail": "in  use\\nnow"}'), "answered 503: in use now"),
        ((507, {}, json.dumps({"title": "Full"}).encode()), "answered 507: Full"),
        ((500, {}, b"\xff\xfe"), "answered 500"),
    ],
)
def test_an_invalid_response_of_a_landing_zone_is_reported(scripted, answer, words):
    server = scripted(answer)
    with pytest.raises(LandingFailed, match=words):
        landing_at(server.url, "secret-1").look("attic", EPOCH)
    assert len(server.requests) == 1


def test_invalid_acknowledgements_and_ranges_are_ignored(scripted):
    held = {EPOCH: [[1, 10], [5, 3], [0, 4], ["1", "2"], [1, 2, 3], 7, [True, 9], None]}
    text = json.dumps({"acknowledged": {EPOCH: {"last": -4}}, "held": held}).encode()
    assert landing_at(scripted((200, {}, text)).url).look("attic", EPOCH) == KnownOutbox(0, ((1, 10),))
    text = json.dumps({"acknowledged": [EPOCH], "held": {EPOCH: 5}}).encode()
    assert landing_at(scripted((200, {}, text)).url).look("attic", EPOCH) == KnownOutbox()


def test_a_landing_zone_that_always_reports_another_offset_is_abandoned(scripted):
    server = scripted((404, {}, b""), *[(409, {"Upload-Offset": str(number)}, b"{}") for number in (5, 9, 5, 9, 5, 9)])
    with pytest.raises(LandingFailed, match="answered 409"):
        landing_at(server.url).put(cut(MemoryOutbox(9), 1, 9))
    assert len(server.requests) < 8


def test_the_offset_of_the_landing_zone_is_followed(scripted):
    segment = cut(MemoryOutbox(9), 1, 9)
    server = scripted(
        (404, {}, b""), (409, {"Upload-Offset": "10"}, b"{}"), (201, {}, b""), (200, {}, b""), (201, {}, b"")
    )
    landing_at(server.url).put(segment)
    offsets = [(header["Upload-Offset"], content) for command, _, header, content in server.requests if content]
    assert offsets[:2] == [("0", segment.rows), ("10", segment.rows[10:])]


def test_an_unresponsive_landing_zone_times_out(scripted):
    server = scripted(None)
    with pytest.raises(LandingFailed, match=r"did not answer within 0\.2 s"):
        landing_at(server.url, timeout=0.2).look("attic", EPOCH)


def test_the_token_is_in_each_request_and_in_no_message(scripted):
    server = scripted((401, {}, b""))
    with pytest.raises(LandingFailed) as failed:
        landing_at(server.url, "secret-1").look("attic", EPOCH)
    assert server.requests[0][2]["Authorization"] == "Bearer secret-1"
    assert "secret-1" not in str(failed.value)
