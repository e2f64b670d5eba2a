"""The order of actuation messages, compared with a simple model in simulated time."""

from collections import Counter, defaultdict

import pyoxigraph as ox
from hypothesis import given
from hypothesis import strategies as st

from edge.adapters.actuation_outbox import WINDOW, ActuationQueue
from edge.adapters.desired_state import DesiredState
from edge.mapping.actuators import Command
from edge.mapping.pack import load_pack

RATE = 50.0


def command(topic: str, number: int) -> Command:
    return Command("f/a", topic, b"%d" % number, 1, False)


class Wire:
    """A broker that takes the messages that are due, and acknowledges them when the test says so."""

    def __init__(self) -> None:
        self.outbox = ActuationQueue(RATE, limit=1000)
        self.now = 0.0
        self.last_sent: dict[str, float] = {}
        self.last = -1.0
        self.open: dict[str, Command] = {}
        self.sent: dict[str, list[int]] = defaultdict(list)
        self.given_up: dict[str, int] = {}

    def send(self) -> None:
        while (each := self.outbox.due(self.now)) is not None:
            assert each.topic not in self.open
            assert self.now >= self.last + 1 / RATE
            assert self.now >= self.last_sent.get(each.topic, -1.0) + _interval(each.topic)
            self.last = self.last_sent[each.topic] = self.now
            self.open[each.topic] = each
            assert len(self.open) <= WINDOW
            self.sent[each.topic].append(int(each.payload))

    def answer(self) -> None:
        for topic, each in list(self.open.items()):
            assert self.outbox.done(topic) == each
        self.open.clear()

    def lose(self) -> None:
        given_up = {each.topic: each for each in self.outbox.lost()}
        assert not given_up or given_up == self.open
        self.given_up.update({topic: int(each.payload) for topic, each in given_up.items()})
        self.open.clear()

    def drain(self) -> None:
        while len(self.outbox):
            self.send()
            self.answer()
            self.now += self.outbox.wait(self.now) or 0.0


def _interval(topic: str) -> float:
    return {"a": 0.1, "b": 0.5}.get(topic, 0.01)


TOPICS = st.sampled_from(["a", "b", *(f"t{number}" for number in range(30))])
STEPS = st.lists(
    st.one_of(
        TOPICS,
        st.floats(0.0, 0.3),
        st.sampled_from(["send", "answer", "lose"]).map(lambda step: (step,)),
    ),
    max_size=80,
)


@given(STEPS)
def test_no_message_overtakes_another_and_the_newest_of_each_topic_arrives(steps):
    wire = Wire()
    newest: dict[str, int] = {}
    lost = False
    for number, step in enumerate(steps):
        if isinstance(step, str):
            assert wire.outbox.put(command(step, number), _interval(step))
            newest[step] = number
        elif isinstance(step, float):
            wire.now += step
        else:
            lost |= step == ("lose",)
            getattr(wire, step[0])()
    wire.drain()
    # The adapter also sent a message that it gave up, up to the maximal number of attempts.
    assert {topic: numbers[-1] for topic, numbers in wire.sent.items()} == newest
    for numbers in wire.sent.values():
        assert numbers == sorted(numbers)
        assert lost or len(set(numbers)) == len(numbers)
    assert wire.outbox.conflated + sum(len(set(each)) for each in wire.sent.values()) >= len(newest)


def test_a_full_outbox_refuses_new_topics_only():
    outbox = ActuationQueue(RATE, limit=2)
    assert outbox.put(command("a", 1), 0.1)
    assert outbox.put(command("b", 1), 0.1)
    assert not outbox.put(command("c", 1), 0.1)
    assert outbox.put(command("a", 2), 0.1)
    assert (len(outbox), outbox.conflated) == (2, 1)
    assert outbox.due(0.0) == command("a", 2)
    assert outbox.put(command("c", 1), 0.1)


def test_pending_messages_are_withdrawn_with_their_actuator():
    outbox = ActuationQueue(RATE, limit=10)
    outbox.put(command("a", 1), 0.1)
    outbox.put(Command("f/other", "b", b"", 1, False), 0.1)
    outbox.withdraw("f/a")
    assert outbox.due(0.0).topic == "b"
    assert (outbox.due(9.0), len(outbox)) == (None, 1)


(ACTUATOR,) = load_pack(
    """
[[actuator]]
query = "SELECT ?id ?v { ?lamp <urn:id> ?id ; <urn:v> ?v }"
topic = "lamps/{id}"
payload = "{v}"
removed = { payload = "none" }
""",
    "f",
).actuators
VARIABLES = ("id", "v")
BAD = "a/b"

ROWS = st.tuples(st.sampled_from(["a", "b", BAD]), st.integers(0, 3)).map(
    lambda pair: (ox.Literal(pair[0]), ox.Literal(pair[1]))
)
DELTAS = st.lists(st.tuples(st.lists(ROWS, max_size=4), st.lists(st.integers(0, 50), max_size=4)), max_size=12)


@given(DELTAS, st.booleans())
def test_every_topic_gets_the_message_of_one_of_its_rows_or_an_empty_one(deltas, restarted):
    refused: list[str] = []
    wanted = DesiredState(ACTUATOR, lambda _, reason: refused.append(reason))
    rows: list[tuple[ox.Literal, ox.Literal]] = []
    received: dict[str, str] = {}
    bad = 0
    for added, picks in deltas:
        removed = [rows.pop(pick % len(rows)) for pick in picks if rows]
        rows += added
        net_added, net_removed = Counter(added) - Counter(removed), Counter(removed) - Counter(added)
        if restarted:
            commands = wanted.replace(VARIABLES, rows)
        else:
            commands = wanted.apply(VARIABLES, net_added.elements(), net_removed.elements())
        assert len({each.topic for each in commands}) == len(commands)
        bad += sum(name.value == BAD for name, _ in (rows if restarted else net_added.elements()))
        received.update({each.topic: each.payload.decode() for each in commands})
        for lamp in ("a", "b"):
            values = {v.value for name, v in rows if name.value == lamp}
            here = received.get(f"lamps/{lamp}")
            assert here in values if values else here in (None, "none")
            fresh = [v.value for (name, v) in net_added if name.value == lamp]
            assert restarted or not fresh or here in fresh
    now = {each.topic: each.payload.decode() for each in wanted.commands()}
    assert now == {topic: payload for topic, payload in received.items() if payload != "none"}
    assert len(refused) == bad
