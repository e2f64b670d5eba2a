"""`edge-history receive` from outside: segments over HTTP."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.outbox.over_http import HttpLanding
from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, stem
from edge.outbox.segmenter import Segment
from edge.security import certificates
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.uploads import Name, State, Uploads
from tests.history.receiving import COMMAND, EPOCH, Receiver, path, reported, segment, send, ship
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver for many tests; each test has its own epoch."""
    made = Receiver(tmp_path_factory.mktemp("receiver"), "--max-segment-bytes=100000")
    made.start()
    yield made
    made.end()


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    """Start receivers with their own landing zones, and end those that a test leaves running."""
    made: list[Receiver] = []

    def make(*options: str, **more: Any) -> Receiver:
        made.append(Receiver(tmp_path, *options, **more))
        return made[-1]

    yield make
    for one in made:
        if one.process is not None:
            one.end(signal.SIGKILL)


@pytest.fixture
def epoch(request: pytest.FixtureRequest) -> str:
    return hashlib.sha256(request.node.name.encode()).hexdigest()[:16]


@pytest.fixture
def client(receiver: Receiver) -> Iterator[httpx.Client]:
    with receiver.client() as made:
        yield made


def problem(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    return str(body["detail"])


def there(receiver: Receiver, manifest: SegmentManifest, end: str = ROWS) -> Path:
    return receiver.landing / manifest.folder / (manifest.stem + end)


def test_a_segment_arrives_whole_and_is_reported_as_stored(
    receiver: Receiver, client: httpx.Client, epoch: str
) -> None:
    for first, last in ((1, 10), (11, 12)):
        manifest, rows = segment(first, last, epoch=epoch)
        assert client.head(path(manifest)).status_code == 404
        assert client.patch(path(manifest), content=rows, headers=reported(0, whole=rows)).status_code == 201
        here = client.head(path(manifest))
        assert (here.headers["Upload-Offset"], here.headers["Upload-Complete"]) == (str(len(rows)), "?1")
        held = client.get("/v1/outboxes/g1").json()["held"].get(epoch, [])
        assert [first, last] not in held, "without manifest: not there"
        assert send(client, path(manifest, MANIFEST), manifest.to_json()).status_code == 201
        assert there(receiver, manifest).read_bytes() == rows
        assert SegmentManifest.from_json(there(receiver, manifest, MANIFEST).read_bytes()) == manifest
    foreign = receiver.landing / "g1" / epoch
    (foreign / "000000099001-000000099050.json").write_text("no manifest, and no rows beside it")
    (foreign / "000000088001-000000088050.json").mkdir()
    assert client.get("/v1/outboxes/g1").json()["held"][epoch] == [[1, 10], [11, 12]]


def test_acknowledgements_are_reported(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    ship(client, *segment(1, 2, epoch=epoch))
    LandingZone(receiver.landing).acknowledge({OutboxEpoch("g1", epoch): 2}, 7)
    assert client.get("/v1/outboxes/g1").json()["acknowledged"][epoch] == {"last": 2, "table_version": 7}
    (receiver.landing / "g1" / "ack.json").write_text("{")
    assert client.get("/v1/outboxes/g1").json()["acknowledged"] == {}
    with receiver.client("g2") as other:
        assert other.get("/v1/outboxes/g2").json() == {"acknowledged": {}, "held": {}}


def test_upload_in_parts_continues_at_the_stored_offset(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    manifest, rows = segment(1, 500, epoch=epoch)
    half = len(rows) // 2
    answer = client.patch(path(manifest), content=rows[:half], headers=reported(0))
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, str(half))
    for wrong in (0, half - 1, half + 1):
        answer = client.patch(path(manifest), content=rows[wrong:], headers=reported(wrong, whole=rows))
        assert str(half) in problem(answer, 409)
        assert answer.headers["Upload-Offset"] == str(half)
        assert answer.headers["Upload-Complete"] == "?0"
    assert not there(receiver, manifest).exists()
    assert client.patch(path(manifest), content=rows[half:], headers=reported(half)).status_code == 204
    assert client.patch(path(manifest), content=b"", headers=reported(len(rows), whole=rows)).status_code == 201
    assert there(receiver, manifest).read_bytes() == rows


def test_existing_segments_are_never_overwritten(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    manifest, rows = segment(1, 10, epoch=epoch)
    ship(client, manifest, rows)
    assert client.patch(path(manifest), content=rows, headers=reported(0, whole=rows)).status_code == 204
    assert client.patch(path(manifest), content=rows[:5], headers=reported(0)).status_code == 204
    _, others = segment(1, 10, epoch=epoch, values=1)
    assert "never change" in problem(
        client.patch(path(manifest), content=others, headers=reported(0, whole=others)), 409
    )
    assert there(receiver, manifest).read_bytes() == rows
    later = SegmentManifest(**{**_told(manifest), "replayed": True})
    answer = client.patch(path(manifest, MANIFEST), content=later.to_json(), headers=reported(0, whole=later.to_json()))
    assert problem(answer, 409)
    assert there(receiver, manifest, MANIFEST).read_bytes() == manifest.to_json()


def test_data_damaged_in_transit_is_discarded(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    manifest, rows = segment(1, 10, epoch=epoch)
    damaged = bytes([rows[0] ^ 1]) + rows[1:]
    assert "send it again" in problem(
        client.patch(path(manifest), content=damaged, headers=reported(0, whole=rows)), 400
    )
    assert client.head(path(manifest)).status_code == 404
    ship(client, manifest, rows)
    assert there(receiver, manifest).read_bytes() == rows


def test_a_manifest_comes_after_its_rows_and_fits_them(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    manifest, rows = segment(1, 10, epoch=epoch)
    _, others = segment(1, 10, epoch=epoch, values=1)
    text = manifest.to_json()
    url = path(manifest, MANIFEST)
    assert "send it first" in problem(client.patch(url, content=text, headers=reported(0, whole=text)), 409)
    assert send(client, path(manifest), others).status_code == 201
    assert "send it again" in problem(client.patch(url, content=text, headers=reported(0, whole=text)), 409)
    assert client.head(path(manifest)).status_code == 404, "so that the right one can come"
    ship(client, manifest, rows)
    assert client.get("/v1/outboxes/g1").json()["held"][epoch] == [[1, 10]]


def test_a_manifest_of_another_segment_is_refused(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    manifest, rows = segment(1, 10, epoch=epoch)
    send(client, path(manifest), rows)
    for change in ({"epoch": "f" * 16}, {"gateway": "g2"}, {"last": 11}):
        text = SegmentManifest(**{**_told(manifest), **change}).to_json()
        answer = client.patch(path(manifest, MANIFEST), content=text, headers=reported(0, whole=text))
        assert "this is the manifest of" in problem(answer, 400)
    for text in (b"", b"{}", b"[]", b"\xff", b'{"schema":1}'):
        problem(client.patch(path(manifest, MANIFEST), content=text, headers=reported(0, whole=text)), 400)
    newer = manifest.to_json().replace(b'"schema":1', b'"schema":2')
    answer = client.patch(path(manifest, MANIFEST), content=newer, headers=reported(0, whole=newer))
    assert "update it" in problem(answer, 501)
    assert not client.get("/v1/outboxes/g1").json()["held"].get(epoch)


def test_a_tombstone_has_no_rows(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    tombstone = SegmentManifest("g1", epoch, 1, 5, 1000, 5000, reason="the disk was full")
    assert send(client, path(tombstone, MANIFEST), tombstone.to_json()).status_code == 201
    assert client.get("/v1/outboxes/g1").json()["held"][epoch] == [[1, 5]]


def test_only_registered_gateways_may_send(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    manifest, rows = segment(1, 2, epoch=epoch)
    header = reported(0, whole=rows)
    for authorization in ("", "Bearer", "Bearer wrong", "Basic " + receiver.tokens["g1"], receiver.tokens["g1"]):
        answer = httpx.patch(
            receiver.url + path(manifest), content=rows, headers={**header, "Authorization": authorization}
        )
        assert "gateways add" in problem(answer, 401)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    with receiver.client("g2") as other:
        for answer in (
            other.patch(path(manifest), content=rows, headers=header),
            other.get("/v1/outboxes/g1"),
            other.get("/v1/outboxes/nobody"),
        ):
            assert "g2" in problem(answer, 403)
        assert other.head(path(manifest)).status_code == 403
    assert client.head(path(manifest)).status_code == 404
    assert httpx.get(receiver.url + "/health").json() == {"status": "ok"}


def test_gateways_come_and_go_without_a_restart(new: Callable[..., Receiver]) -> None:
    receiver = new()
    receiver.start()
    with receiver.client() as client:
        assert client.get("/v1/outboxes/g1").status_code == 200
        subprocess.run([*COMMAND, "gateways", "remove", "g1", "--tokens", receiver.file], check=True)
        assert client.get("/v1/outboxes/g1").status_code == 401
        added = [*COMMAND, "gateways", "add", "g1", "--tokens", receiver.file]
        token = subprocess.run(added, check=True, capture_output=True, text=True).stdout.strip()
        again = client.get("/v1/outboxes/g1", headers={"Authorization": f"Bearer {token}"})
        assert again.status_code == 200
    assert receiver.end() == 0
    assert "Traceback" not in receiver.log()


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ({"Upload-Offset": ""}, "Upload-Offset"),
        ({"Upload-Offset": "-1"}, "Upload-Offset"),
        ({"Upload-Offset": "1e3"}, "Upload-Offset"),
        ({"Upload-Offset": "9" * 16}, "Upload-Offset"),
        ({"Upload-Complete": "yes"}, "Upload-Complete"),
        ({"Repr-Digest": ""}, "Repr-Digest"),
        ({"Repr-Digest": "md5=:AAAA:"}, "Repr-Digest"),
        ({"Repr-Digest": "sha-256=:AAAA:"}, "32 bytes"),
        ({"Repr-Digest": "sha-256=:A:"}, "32 bytes"),
    ],
)
def test_invalid_upload_headers_are_refused(client: httpx.Client, header: dict[str, str], word: str) -> None:
    manifest, rows = segment(1, 2, epoch="a" * 16)
    answer = client.patch(path(manifest), content=rows, headers={**reported(0, whole=rows), **header})
    assert word in problem(answer, 400)
    assert client.head(path(manifest)).status_code == 404


def test_a_file_that_is_too_large_is_refused(client: httpx.Client, epoch: str) -> None:
    manifest, _ = segment(1, 2, epoch=epoch)
    rows = random.Random(1).randbytes(100_001)
    assert "--max-segment-bytes" in problem(
        client.patch(path(manifest), content=rows, headers=reported(0, whole=rows)), 413
    )
    assert client.patch(path(manifest), content=rows[:10], headers=reported(0)).status_code in (204, 409)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_other_methods_are_refused(client: httpx.Client, method: str) -> None:
    manifest, _ = segment(1, 2)
    answer = client.request(method, path(manifest))
    assert problem(answer, 405)
    assert set(answer.headers["Allow"].split(", ")) == {"HEAD", "PATCH"}


_ODD = st.sampled_from(
    ("..", ".", "", "%2e%2e", "..%2f..", "%00", "quarantine", ".uploads", "g1", "g2", EPOCH, "ack.json", "a" * 300, "é")
) | st.text(st.characters(codec="utf-8", exclude_characters="?#"), max_size=40)
_FILES = st.builds(
    "{}-{}{}".format,
    st.sampled_from(("000000000001", "1", "000000000000", "٠٠٠٠٠٠٠٠٠٠٠١", "0000000000001", "999999999999999999")),
    st.sampled_from(("000000000001", "000000000002", "2", "-1", "../1")),
    st.sampled_from((ROWS, MANIFEST, "", ".tsv", ".reason", ROWS + MANIFEST, MANIFEST + "\n")),
)


@settings(max_examples=150)
@given(st.sampled_from(("g1", "g1", "..", "quarantine", ".uploads")), st.just(EPOCH) | _ODD, _FILES | _ODD)
def test_no_request_path_leaves_the_landing_zone(receiver: Receiver, gateway: str, epoch: str, name: str) -> None:
    """For any path in a request, files are written only at their places, and the process continues."""
    body = b"anything"
    raw = f"/v1/segments/{gateway}/{epoch}/{name}".encode()
    target = b"".join(bytes([byte]) if 0x21 <= byte < 0x7F else b"%%%02X" % byte for byte in raw)
    header = "".join(f"{key}: {value}\r\n" for key, value in reported(0, whole=body).items())
    header += f"Connection: close\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer {receiver.tokens['g1']}\r\n"
    request = b"PATCH %b HTTP/1.1\r\nHost: here\r\n%b\r\n%b" % (target, header.encode(), body)
    status = exchange(receiver.url, request)
    assert 200 <= status < 500, status
    for file in receiver.landing.rglob("*"):
        assert file.is_dir() or _placed(file.relative_to(receiver.landing)), file
    assert not list(receiver.landing.parent.glob("0000*"))


def _placed(file: Path) -> bool:
    if file.parts[0] == ".uploads":
        return len(file.parts) == 2
    outbox, name = file.parts[:-1], file.name
    return name == "ack.json" or (len(outbox) == 2 and outbox[0] == "g1" and name.endswith((ROWS, MANIFEST)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_invalid_http_affects_no_other(receiver: Receiver, client: httpx.Client, noise: bytes, begun: bool) -> None:
    exchange(receiver.url, (b"PATCH /v1/segments/g1 HTTP/1.1\r\n" if begun else b"") + noise + b"\r\n\r\n", wait=False)
    assert client.get("/health").status_code == 200


def exchange(url: str, request: bytes, *, wait: bool = True) -> int:
    """Send bytes; return the status of the answer, or 0."""
    host, port = httpx.URL(url).host, httpx.URL(url).port
    assert port is not None
    with socket.create_connection((host, port), 20) as connection:
        connection.sendall(request)
        if not wait:
            return 0
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def test_an_interrupted_part_is_continued(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    manifest, rows = segment(1, 1000, epoch=epoch)
    header = "".join(f"{key}: {value}\r\n" for key, value in reported(0, whole=rows).items())
    request = f"PATCH {path(manifest)} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(rows)}\r\n{header}"
    request += f"Authorization: Bearer {receiver.tokens['g1']}\r\n\r\n"
    exchange(receiver.url, request.encode() + rows[: len(rows) // 2], wait=False)
    answer = send(client, path(manifest), rows)
    while answer.status_code == 409:  # the rest of the other request still arrives
        answer = send(client, path(manifest), rows)
    assert answer.status_code in (200, 201)
    assert there(receiver, manifest).read_bytes() == rows


def test_a_segment_that_was_cut_again_replaces_the_received_bytes(receiver: Receiver, epoch: str) -> None:
    """The receiver was killed before the last part of a manifest, and the restarted gateway calls the segment late."""
    manifest, rows = segment(1, 50, epoch=epoch)
    late = replace(manifest, replayed=True)
    assert len(late.to_json()) < len(manifest.to_json())
    name = path(manifest, MANIFEST)
    with receiver.client() as client:
        send(client, path(manifest, ROWS), rows)
        content = manifest.to_json()
        headers = {"Upload-Offset": "0", "Upload-Complete": "?0"}
        assert client.patch(name, content=content, headers=headers).status_code == 204
    token = receiver.tokens["g1"]
    HttpLanding(receiver.url, timeout=20, token=lambda: token, ca_file=None).put(Segment(late, rows))
    assert there(receiver, manifest, MANIFEST).read_bytes() == late.to_json()


def test_the_same_file_sent_by_many_at_once_is_there_once(receiver: Receiver, epoch: str) -> None:
    manifest, rows = segment(1, 3000, epoch=epoch)
    answers: list[int] = []

    def run() -> None:
        with receiver.client() as client:
            while not answers or answers[-1] not in (200, 201, 204):
                answers.append(send(client, path(manifest), rows, 4096).status_code)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(answers) <= {200, 201, 204, 409}
    assert answers.count(201) == 1
    assert there(receiver, manifest).read_bytes() == rows


def test_slow_clients_delay_no_other(receiver: Receiver, client: httpx.Client, epoch: str) -> None:
    """Forty clients send part of a body and stop; another segment is accepted meanwhile."""
    slow = []
    try:
        for number in range(40):
            manifest, rows = segment(1, 100, epoch=f"{number:016x}")
            header = "".join(f"{key}: {value}\r\n" for key, value in reported(0, whole=rows).items())
            request = f"PATCH {path(manifest)} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(rows)}\r\n{header}"
            request += f"Authorization: Bearer {receiver.tokens['g1']}\r\n\r\n"
            connection = socket.create_connection((httpx.URL(receiver.url).host, httpx.URL(receiver.url).port or 0))
            connection.sendall(request.encode() + rows[:10])
            slow.append(connection)
        ship(client, *segment(1, 100, epoch=epoch))
    finally:
        for connection in slow:
            connection.close()


def test_killed_at_any_time_it_loses_nothing(new: Callable[..., Receiver]) -> None:
    """Repeated `kill -9` during uploads, on the same port: all segments arrive complete and once."""
    chance = random.Random(6)
    receiver = new()
    receiver.start()
    address = receiver.url.removeprefix("http://")
    segments = [segment(first, first + 1999) for first in range(1, 20_001, 2000)]
    done, killed = threading.Event(), threading.Event()
    kills = 0

    def gateway() -> None:
        for manifest, rows in segments:
            if manifest is segments[-1][0]:
                assert killed.wait(60)  # on a busy machine, all could be sent before the first kill
            for url, content in ((path(manifest), rows), (path(manifest, MANIFEST), manifest.to_json())):
                while True:
                    try:
                        with receiver.client() as client:
                            if send(client, url, content, 700).status_code in (200, 201, 204):
                                break
                    except httpx.TransportError:
                        done.wait(0.05)
        done.set()

    thread = threading.Thread(target=gateway, daemon=True)
    thread.start()
    while not done.wait(chance.uniform(0.02, 0.4)) and kills < 8:
        receiver.end(signal.SIGKILL)
        receiver.start(address)
        kills += 1
        killed.set()
    thread.join(90)
    assert done.is_set()
    assert receiver.end() == 0
    for manifest, rows in segments:
        assert there(receiver, manifest).read_bytes() == rows
        assert there(receiver, manifest, MANIFEST).read_bytes() == manifest.to_json()
    assert not list((receiver.landing / ".uploads").iterdir())


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit here; install the package util-linux")
def test_a_full_disk_is_reported_and_received_data_is_kept(new: Callable[..., Receiver]) -> None:
    """A file size limit simulates the full disk: a write accepts part of the bytes, then none."""
    receiver = new(prefix=["prlimit", "--fsize=6000"])
    receiver.start()
    manifest, rows = segment(1, 5000)
    assert len(rows) > 6000
    with receiver.client() as client:
        assert "free some" in problem(client.patch(path(manifest), content=rows, headers=reported(0, whole=rows)), 507)
        assert client.head(path(manifest)).headers["Upload-Offset"] == "6000"
        ship(client, *segment(1, 10))
    assert receiver.end() == 0
    receiver.file.unlink()
    receiver = new()  # the same landing zone, with free space
    receiver.start()
    with receiver.client() as client:
        ship(client, manifest, rows)
    assert receiver.end() == 0
    assert there(receiver, manifest).read_bytes() == rows


def test_a_full_landing_zone_is_reported(new: Callable[..., Receiver]) -> None:
    receiver = new("--max-landing-bytes=20000")
    receiver.start()
    manifest, _ = segment(1, 5)
    noise = random.Random(2).randbytes(15_000)
    with receiver.client() as client:
        assert client.patch(path(manifest), content=noise, headers=reported(0)).status_code == 204
        answer = client.patch(path(manifest), content=noise, headers=reported(15_000))
        assert "--max-landing-bytes" in problem(answer, 507)
        assert client.head(path(manifest)).headers["Upload-Offset"] == "15000"
    assert receiver.end() == 0


def test_two_receivers_do_not_share_a_landing_zone(receiver: Receiver) -> None:
    options = [f"--landing={receiver.landing}", f"--tokens={receiver.file}", "--listen=127.0.0.1:0"]
    second = subprocess.run([*COMMAND, "receive", *options], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "another edge-history receive" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (["--listen=0.0.0.0:0"], 2, "--certificate"),
        (["--listen=[::]:0"], 2, "--certificate"),
        (["--listen=here"], 2, "is not an address"),
        (["--listen=127.0.0.1:99999"], 2, "is not an address"),
        (["--certificate=gateways.json"], 2, "go together"),
        (["--certificate=gateways.json", "--key=gateways.json"], 1, "PEM"),
    ],
)
def test_unusable_listen_options_are_refused(tmp_path: Path, options: list[str], code: int, word: str) -> None:
    (tmp_path / "gateways.json").write_text('{"schema":1,"gateways":{}}')
    command = [*COMMAND, "receive", "--landing=landing", "--tokens=gateways.json", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == code, ended.stderr
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_and_a_missing_landing_zone_are_reported(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "gateways.json").write_text('{"schema":1,"gateways":{}}')
    address = receiver.url.removeprefix("http://")
    command = [*COMMAND, "receive", "--landing=landing", "--tokens=gateways.json", f"--listen={address}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ended.returncode, "create or mount it" in ended.stderr) == (1, True)
    (tmp_path / "landing").mkdir()
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 1
    assert f"{address} cannot be listened on" in ended.stderr


def test_no_spark_is_imported() -> None:
    code = "import sys, spark_offload.cli.receive; assert not [name for name in sys.modules if 'pyspark' in name]"
    subprocess.run([sys.executable, "-c", code], check=True)


def _told(manifest: SegmentManifest) -> dict[str, object]:
    return {name: getattr(manifest, name) for name in SegmentManifest.__dataclass_fields__}


def test_receiver_with_a_certificate_serves_other_machines(tmp_path: Path, new: Callable[..., Receiver]) -> None:
    files = certificates.make(tmp_path / "tls")
    receiver = new(f"--certificate={files.server}", f"--key={files.server_key}")
    receiver.start("0.0.0.0:0")
    url = receiver.url.replace("0.0.0.0", "localhost")
    assert url.startswith("https://")
    manifest, rows = segment(1, 10)
    header = {"Authorization": f"Bearer {receiver.tokens['g1']}"}
    trusted = ssl.create_default_context(cafile=files.authority)
    with httpx.Client(base_url=url, verify=trusted, headers=header) as client:
        ship(client, manifest, rows)
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(f"{url}/health")
    assert receiver.end() == 0
    assert there(receiver, manifest).read_bytes() == rows


def test_connections_beyond_the_limit_get_an_error(new: Callable[..., Receiver]) -> None:
    receiver = new("--max-connections=2")
    receiver.start()
    url = httpx.URL(receiver.url)
    with ExitStack() as stack:
        for gateway, token in receiver.tokens.items():
            connection = stack.enter_context(socket.create_connection((url.host, url.port or 0)))
            connection.sendall(
                f"GET /v1/outboxes/{gateway} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        third = stack.enter_context(socket.create_connection((url.host, url.port or 0)))
        told_why = third.makefile("rb").read()
        assert told_why.startswith(b"HTTP/1.1 503")
        assert b"--max-connections" in told_why
    wait_for(lambda: httpx.get(f"{receiver.url}/health").status_code == 200, what="room")
    assert receiver.end() == 0


def test_a_header_without_end_is_cut_off(receiver: Receiver, client: httpx.Client) -> None:
    url = httpx.URL(receiver.url)
    connection = socket.create_connection((url.host, url.port or 0), 20)
    with connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
        _flood(connection)
    assert client.get("/health").status_code == 200


def _flood(connection: socket.socket) -> None:
    connection.sendall(b"GET /health HTTP/1.1\r\n")
    for number in range(10_000):
        connection.sendall(b"X-%d: %b\r\n" % (number, b"x" * 1000))


def test_unfinished_files_are_kept_for_a_day(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, largest=1000, most=10_000)
    names = [Name("g1", EPOCH, f"{stem(number, number)}{ROWS}") for number in (1, 2)]
    for name in names:
        uploads.append(name, 0, b"part")
    old = tmp_path / ".uploads" / f"g1.{EPOCH}.{names[0].file}"
    os.utime(old, (old.stat().st_atime, time.time() - 25 * 3600))
    uploads.clean()
    assert [uploads.state(name) for name in names] == [None, State(4, complete=False)]
    uploads.close()
    Uploads(tmp_path, largest=1000, most=10_000).close()
