"""A real gateway and its landing zone: killed, disconnected, full; no observation is lost or shipped twice."""

import contextlib
import random
import threading
from collections import Counter
from http.client import HTTPException

import pytest

from tests.history.receiving import Receiver

ROUNDS = 4


def observations(zone):
    """Return how often each observation is in the landing zone, where ranges do not overlap."""
    found = Counter()
    end = 0
    for manifest in zone.manifests():
        assert manifest.first == end + 1
        end = manifest.last
        if not manifest.tombstone:
            found.update(cells.observation for _, _, cells in zone.read(manifest))
    return found


@pytest.mark.timeout(180)
def test_a_gateway_that_is_killed_again_and_again_ships_each_observation_once(site):
    gateway = site()
    chance, done = random.Random(6), []
    for number in range(ROUNDS):
        gateway.start()
        over = threading.Event()

        def load(number=number, over=over):
            with contextlib.suppress(OSError, HTTPException):  # the kill interrupts one of them
                for step in range(10_000):
                    if over.is_set():
                        break
                    names = [f"{number}-{step}-{part}" for part in range(3)]
                    gateway.store(*names)
                    done.extend(names)

        loading = threading.Thread(target=load)
        loading.start()
        over.wait(chance.uniform(0.1, 0.8))
        gateway.process.kill()
        over.set()
        loading.join(20)
        assert not loading.is_alive()
    gateway.start()
    gateway.until_shipped()
    found = observations(gateway.zone)
    assert set(found.values()) == {1}
    assert {name.removeprefix("urn:o/") for name in found} >= set(done)
    assert len(found) == gateway.status()["last"]
    assert len(done) > 100


def test_an_outage_is_logged_once_and_later_observations_are_replayed(site, tmp_path):
    gateway = site(EDGE__OFFLOAD__RETRY_MAX="0.2")
    gateway.start()
    gateway.store("before")
    gateway.until_shipped()
    (tmp_path / "landing").rename(tmp_path / "away")
    gateway.store("meanwhile")
    status = gateway.until(state="fails")
    assert "mount it" in status["reason"]
    health = gateway.watched.ask("/health")
    assert (health[0], health[1]["outbox"]["state"]) == (200, "fails")
    assert gateway.watched.metric("edge_offload_up") == 0
    while gateway.status()["failures"] < 4:
        assert gateway.ship()["failure"] == gateway.status()["reason"]
    (tmp_path / "away").rename(tmp_path / "landing")
    status = gateway.until_shipped()
    assert (status["reason"], gateway.watched.metric("edge_offload_up")) == ("", 1)
    gateway.store("after")
    gateway.until(shipped=3)
    assert [manifest.replayed for manifest in gateway.zone.manifests()] == [False, True, False]
    assert len(gateway.log("offload.down")) == len(gateway.log("offload.up")) == 1


def test_acknowledged_observations_are_deleted_and_quarantined_ones_sent_again(site):
    gateway = site()
    gateway.start()
    gateway.store(*map(str, range(50)))
    gateway.until(shipped=50)
    zone = gateway.zone
    zone.rows_of(zone.manifests()[1]).write_bytes(b"damaged")
    zone.quarantine(21)
    zone.acknowledge(20)
    gateway.until(acknowledged=20, observations=30)
    gateway.until(oldest=1772366400000000)
    gateway.ship()
    assert gateway.status()["acknowledged_at"] is not None
    assert zone.ranges() == [(1, 20), (21, 40), (41, 50)]
    gateway.process.kill()
    gateway.start()
    status = gateway.status()
    assert (status["acknowledged"], status["observations"]) == (20, 30)
    zone.acknowledge(50)
    status = gateway.until(acknowledged=50)
    assert (status["observations"], status["bytes"], status["last"]) == (0, 0, 50)
    gateway.until(oldest=None)


def test_dropped_observations_are_tombstones(site, tmp_path):
    gateway = site(EDGE__OUTBOX__MAX_BYTES="65536", EDGE__OFFLOAD__RETRY_MAX="0.2")
    gateway.start()
    gateway.store(*map(str, range(10)))
    gateway.until(shipped=10)
    (tmp_path / "landing").rename(tmp_path / "away")
    for number in range(12):
        gateway.store(f"large-{number}", size=10_000)
    status = gateway.until(state="fails", last=22)
    assert gateway.until(dropped=22 - status["observations"])["dropped"] > 10
    (tmp_path / "away").rename(tmp_path / "landing")
    gateway.until_shipped()
    first, lost, *rest = gateway.zone.manifests()
    assert (first.first, first.last, first.tombstone) == (1, 10, False)  # dropped here, although it had arrived there
    assert [manifest.tombstone for manifest in rest] == [False] * len(rest)
    assert (lost.first, lost.tombstone, lost.last) == (11, True, rest[0].first - 1)
    assert rest[-1].last == 22
    gateway.zone.acknowledge(10)  # between dropped ones
    gateway.until(acknowledged=10)
    gateway.process.kill()
    gateway.start()
    gateway.zone.acknowledge(22)
    status = gateway.until(acknowledged=22, dropped=0)
    assert status["observations"] == 0


def test_corrected_token_is_used_without_a_restart(site, tmp_path):
    receiver = Receiver(tmp_path)
    token = tmp_path / "token"
    receiver.start()
    settings = {"EDGE__OFFLOAD__TO": receiver.url, "EDGE__OFFLOAD__TOKEN_FILE": str(token)}
    gateway = site(**settings, EDGE__OUTBOX__GATEWAY="g1", EDGE__OFFLOAD__RETRY_MAX="0.2")
    gateway.start()
    gateway.store(*map(str, range(30)))
    assert "offload.token_file" in gateway.until(state="fails")["reason"]
    for wrong, words in (("two words", "offload.token holds"), (receiver.tokens["g2"], "answered 403")):
        token.write_text(wrong)
        assert words in gateway.ship()["failure"]
    token.write_text(receiver.tokens["g1"] + "\n")
    gateway.until_shipped()
    assert gateway.zone.ranges() == [(1, 20), (21, 30)]
    receiver.end(9)
    gateway.store("meanwhile")
    gateway.until(state="fails")
    gateway.process.kill()
    receiver.start(receiver.url.removeprefix("http://"))
    gateway.start()
    gateway.until_shipped()
    assert gateway.zone.ranges() == [(1, 20), (21, 30), (31, 31)]
    receiver.end()
    assert not any(secret in gateway.process.log() for secret in ("two words", *receiver.tokens.values()))


def test_nothing_is_shipped_by_default(site):
    gateway = site(EDGE__OFFLOAD__TO="")
    gateway.start()
    gateway.store("a")
    status, answer = gateway.watched.ask("/api/outbox", now="")
    assert (status, answer["error"]) == (400, "invalid_request")
    assert "offload.to" in answer["error_description"]
    assert (gateway.status()["state"], gateway.status()["observations"]) == ("off", 1)
