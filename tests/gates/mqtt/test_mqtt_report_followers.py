"""Limits of one MQTT client that follows queries: unacknowledged messages, rate and size of requests."""

from __future__ import annotations

import asyncio
import json

import paho.mqtt.client as paho
import pytest

from edge.gates.guard import OPEN_GUARD
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.mqtt.client_output import MqttConnection
from edge.gates.mqtt.connection import BrokerConnection
from edge.gates.mqtt.correlation import Correlation
from edge.gates.mqtt.report_followers import ReportFollowers
from edge.gates.rate_limit import RateLimit
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.gates.settings import LimitSettings, MqttGateSettings, SessionLimits
from edge.metrics import Metrics
from tests.support.waiting import eventually

QUERIES = 50
WINDOW = 20
BURST = 5


class Link:
    """The thread of a connection whose broker acknowledges only what the test says."""

    alive = True

    def __init__(self):
        self.reasons = []

    def start(self): ...

    def stop(self, timeout): ...

    def drop(self, reason):
        self.reasons.append(reason)


class Owner:
    def up(self): ...

    def down(self): ...

    def received(self, message): ...


class Query:
    """A registered query with a report for each of its numbers."""

    error, of = None, "1f"

    def __init__(self, query, wake):
        self.query, self.number, self.wake, self.waiting = query, 0, wake, []

    def put(self, number):
        self.waiting.append(number)
        self.wake()

    def take(self):
        if not self.waiting:
            return None
        text = json.dumps({"query": self.query, "numbers": self.waiting})
        self.waiting = []
        return f'{{"report":{text}}}'

    def close(self): ...


class Source:
    def __init__(self):
        self.queries = []

    async def query(self, name, access): ...

    async def follow(self, name, access, charge, wake, largest=None, after=None):
        self.queries.append(Query(name, wake))
        return self.queries[-1]


class Slow:
    """A client whose broker acknowledges slowly."""

    def __init__(self, burst=1_000):
        loop = asyncio.get_running_loop()
        dispatcher = LoopDispatcher(loop)
        self.link = Link()
        self.wire = BrokerConnection(dispatcher, Owner(), ["a/+"], ("will", b""), lambda _: self.link)
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.wire._subscribed(self.paho, None, 1, [], None)
        self.sent = []
        self._publish = self.paho.publish
        self.paho.publish = self._published
        output = MqttConnection(
            self.wire, "t", Correlation(), 100_000, on_close=lambda: None, on_too_large=lambda _: None
        )
        limits = SessionLimits.of(MqttGateSettings(max_subscriptions=QUERIES))
        sessions = Sessions(
            None,
            dispatcher,
            Metrics(),
            guard=OPEN_GUARD,
            gate="mqtt",
            limits=limits,
            rate_limit=RateLimit(LimitSettings(rate=0.000_001, burst=burst)),
            section="mqtt_gate",
        )
        self.source = Source()
        self.session = Session(sessions, output, "mqtt:me")
        self.followers = ReportFollowers(sessions, self.session, output, lambda: self.source)

    async def __aenter__(self):
        await eventually(lambda: self.wire.connected, "the connection")
        return self

    async def __aexit__(self, *_):
        self.followers.close()
        self.session.close()

    def receive(self, text):
        if not self.followers.receive(text):
            self.session.receive(text)

    def _published(self, topic, payload, *arguments):
        self.sent.append(json.loads(payload))
        return self._publish(topic, payload, *arguments)

    @property
    def unanswered(self):
        return list(self.wire._unanswered)

    async def acknowledge(self, messages):
        """Acknowledge one after another, until this number of messages was sent."""
        while len(self.sent) < messages or self.unanswered:
            assert len(self.unanswered) <= WINDOW
            await eventually(lambda: self.unanswered, "a message")
            self.wire.answered(self.paho, self.unanswered[0], "")
            for _ in range(3):
                await asyncio.sleep(0)


async def test_reports_of_many_queries_wait_until_messages_are_acknowledged():
    async with Slow() as slow:
        for number in range(QUERIES):
            assert slow.followers.receive(json.dumps({"follow": {"query": f"urn:q{number}"}}))
        await slow.acknowledge(QUERIES)
        assert [list(each) for each in slow.sent] == [["following"]] * QUERIES
        slow.sent.clear()
        for number in (1, 2):
            for query in slow.source.queries:
                query.put(number)
            for _ in range(5):
                await asyncio.sleep(0)
        assert len(slow.unanswered) == WINDOW
        await slow.acknowledge(2 * WINDOW + (QUERIES - WINDOW))
        reports = [each["report"] for each in slow.sent]
        # Those that waited were merged meanwhile.
        assert sum(each["numbers"] == [1, 2] for each in reports) == QUERIES - WINDOW
        assert sorted((each["query"], number) for each in reports for number in each["numbers"]) == sorted(
            (f"urn:q{query}", number) for query in range(QUERIES) for number in (1, 2)
        )
        assert slow.link.reasons == []


@pytest.mark.parametrize(
    "text",
    ['{"follow": {"query": "urn:q"}}', '{"follow": {"query": 5}}', '{"follow"', '{"unfollow": {"query": "urn:r"}}'],
)
async def test_each_request_counts_once_and_those_beyond_the_rate_do_not_end_a_follower(text):
    async with Slow(BURST) as slow:
        slow.receive('{"follow": {"query": "urn:q"}}')
        await eventually(lambda: slow.sent, "the answer")
        for _ in range(BURST):
            slow.receive(text)
        await eventually(lambda: len(slow.sent) > BURST, "all answers")
        statuses = [each.get("status_code", 200) for each in slow.sent]
        assert statuses.count(429) == 1
        slow.sent.clear()
        slow.source.queries[-1].put(1)
        await eventually(lambda: slow.sent, "the report")
        assert "report" in slow.sent[0]


async def test_a_request_that_is_too_long_is_refused():
    async with Slow() as slow:
        slow.receive(json.dumps({"follow": {"query": "urn:q"}, "x": "x" * MqttGateSettings().max_message}))
        assert [(each["status_code"], "mqtt_gate.max_message" in each["error_description"]) for each in slow.sent] == [
            (413, True)
        ]
        assert slow.source.queries == []
