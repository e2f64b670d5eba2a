"""A fault in one subscription ends that subscription only: updates and other subscriptions continue."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from engine_client import Client, plain, update
from engine_world import NOW, new_engine, run
from fault_injection import ERRORS, POINTS, Injector, Point, injector, panic
from support.logs import records_of

from edge.engine.engine import Engine
from edge.engine.faults import contained
from edge.engine.operators.stages import DistinctStage, row_bytes
from edge.engine.requests import SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.subscriptions.delta_evaluation import DeltaEvaluation
from edge.engine.subscriptions.plan_group import PlanGroup
from edge.protocol.errors import NotFound

__all__ = ["injector"]

LARGEST = "1.7976931348623157e308"


def failed(client: Client) -> str:
    """Return the reason why a subscription ended."""
    item = client.items[-1]
    assert isinstance(item, SubscribeFailed)
    with pytest.raises(NotFound):
        client.engine.unsubscribe(client.spuid)
    return item.description


@pytest.mark.parametrize(("sign", "infinity"), [("", "INF"), ("-", "-INF")])
@pytest.mark.parametrize("name", ["SUM", "AVG"])
def test_a_sum_beyond_the_largest_double_is_infinite(name, sign, infinity):
    engine = new_engine()
    client = Client(engine, f"SELECT ({name}(?o) AS ?r) {{ ?s ex:p ?o }}")
    update(engine, f"INSERT DATA {{ ex:a ex:p {sign}{LARGEST} . ex:b ex:p {sign}{LARGEST} }}")
    # Equal literals of two subjects count as two numbers.
    assert plain(client.last.delta.added[0]) == (infinity,)
    update(engine, "DELETE WHERE { ex:a ex:p ?o }")
    assert [float(cell.value) for cell in client.last.delta.added[0]] == [float(sign + LARGEST)]
    update(engine, "DELETE WHERE { ex:b ex:p ?o } ; INSERT DATA { ex:a ex:p 1.5e0 . ex:b ex:p 2.5e0 }")
    assert plain(client.last.delta.added[0]) == ("4" if name == "SUM" else "2",)


@contextmanager
def armed(engine: Engine, injector: Injector) -> Iterator[None]:
    """Arm the injector during the update and notification of subscriptions, not while an update finds its changes."""
    spus = engine.spus

    def arm(original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            injector.armed = True
            try:
                return original(*arguments)
            finally:
                injector.armed = False

        return call

    methods = [(spus, "activate"), (spus, "undo"), (spus, "notify"), (spus.reevaluated, "settle")]
    for owner, name in methods:
        setattr(owner, name, arm(getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name in methods:
            delattr(owner, name)


QUERIES = (
    "SELECT ?s ?o { ?s ex:p ?o }",
    "SELECT ?o { ex:a ex:p ?o }",
    "SELECT ?o { ex:b ex:p ?o }",
    "SELECT ?o ?x { ex:a ex:p ?o . ?o2 ex:q ?x }",
    "SELECT ?o ?x { ex:b ex:p ?o . ?o2 ex:q ?x }",
    "SELECT ?s ?x { ?s ex:q ?x . ?s ex:p 1 }",
    "SELECT ?s ?x { ?s ex:q ?x . ?s ex:p 2 }",
    "SELECT ?s ?o { ?s ex:p ?o { ?s ex:q ?z OPTIONAL { ?s ex:r ?o } } }",
    "SELECT DISTINCT ?o { ?s ex:p ?o }",
    "SELECT ?s ?x { ?s ex:p ?o OPTIONAL { ?s ex:q ?x FILTER(?x > 0) } }",
    "SELECT ?s { ?s ex:p ?o MINUS { ?s ex:q ?x } }",
    "SELECT ?s ?y { { ?s ex:p ?o } UNION { ?s ex:q ?o } BIND(?o + 1 AS ?y) }",
    "SELECT ?s { ?s ex:p ?o FILTER NOT EXISTS { ?s ex:q ?o } }",
    "SELECT ?s ?o { ?s ex:p ?o { SELECT DISTINCT ?s { ?s ex:q ?x } } }",
    "SELECT ?s ?n { ?s ex:p ?o { SELECT ?s (COUNT(*) AS ?n) { ?s ex:q ?x } GROUP BY ?s } }",
    "SELECT ?s ?o { VALUES ?s { ex:a ex:b } ?s ex:p ?o }",
    "SELECT ?g ?o { GRAPH ?g { ?s ex:p ?o OPTIONAL { ?s ex:q ?x } } }",
    "SELECT ?g { GRAPH ?g { { } UNION { ?s ex:p ?o } } }",
    "SELECT ?s ?o { ?s ex:p ?o FILTER(?s = ex:a) }",
    "SELECT ?s ?x { ?s ex:p ?o OPTIONAL { { ?s ex:q ?x } UNION { ?s ex:r ?y } } OPTIONAL { ?s ex:r ?x } }",
    "SELECT ?s (COUNT(?o) AS ?n) (COUNT(?o + 1) AS ?m) (SUM(?o) AS ?t) (AVG(?o) AS ?a) (MIN(?o) AS ?l)"
    " (MAX(?o) AS ?u) (SAMPLE(?s) AS ?v) (COUNT(DISTINCT ?o) AS ?d) { ?s ex:p ?o } GROUP BY ?s HAVING(COUNT(*) < 4)",
    "SELECT (GROUP_CONCAT(STR(?o)) AS ?c) { ?s ex:p ?o }",
    "ASK { ?s ex:q ?o }",
    "CONSTRUCT { ?s ex:made [ ex:of ?o ] } WHERE { ?s ex:p ?o }",
    "SELECT ?s ?o { ?s ex:p ?o } ORDER BY ?s LIMIT 100",
    "CONSTRUCT { ?s ex:made ?o } WHERE { ?s ex:p/ex:q? ?o }",
    "DESCRIBE ?s { ?s ex:q ?o }",
    "ASK { ?s ex:p+ ?o }",
)
UPDATES = (
    "INSERT DATA { ex:a ex:p 1 ; ex:q 1 . ex:b ex:p 2 . GRAPH ex:g { ex:a ex:p 7 } }",
    "DELETE { ?s ex:p ?o } INSERT { ?s ex:p ?n } WHERE { ?s ex:p ?o BIND(?o + 1 AS ?n) }",
    "INSERT DATA { ex:a ex:p 5, 6 ; ex:r 3 . ex:c ex:p 2 ; ex:q -1 . ex:d ex:q 4 }",
    "DELETE DATA { ex:a ex:q 1 . ex:d ex:q 4 } ; INSERT DATA { ex:b ex:q 9 . ex:a ex:p 8 }",
    "DELETE WHERE { ex:a ex:p ?o } ; DROP GRAPH ex:g",
    "INSERT DATA { ex:a ex:p 1, 2, 3 ; ex:q 2 . GRAPH ex:h { ex:b ex:p 4 ; ex:q 1 } }",
)


class Follower(Client):
    """A subscriber that applies its notifications."""

    def __init__(self, engine: Engine, text: str) -> None:
        super().__init__(engine, text)
        self.text = text
        self.bag: Counter[tuple] = Counter()
        self.over = False

    def catch_up(self) -> None:
        for item in self.items:
            assert not self.over, "nothing comes after the end"
            if isinstance(item, SubscribeFailed):
                self.over = True
            else:
                removed = Counter(item.delta.removed)
                assert not removed - self.bag
                self.bag = self.bag - removed + Counter(item.delta.added)
        self.items.clear()


def check(followers: Sequence[Follower]) -> None:
    """Check that every remaining subscription equals a new one."""
    for follower in followers:
        follower.catch_up()
        if not follower.over:
            fresh = Client(follower.engine, follower.text)
            follower.engine.unsubscribe(fresh.spuid)
            expected = Counter(fresh.last.delta.added)
            follower.catch_up()
            if "[" in follower.text:  # blank nodes that each evaluation names
                assert follower.bag.total() == expected.total(), follower.text
            else:
                assert follower.bag == expected, follower.text


def remembered(engine: Engine) -> int:
    """Return the bytes of evaluations and solutions that plan groups cache."""
    triggers = [trigger for group in engine.spus.registry.groups.values() for trigger in group.triggers]
    rows = [
        term_ids
        for trigger in triggers
        for (_, values), found in trigger._memo.items()
        for term_ids in (values, *(row for _, row in found))
    ]
    return sum(row_bytes(engine.graph.dictionary, term_ids) for term_ids in rows)


def check_empty(engine: Engine) -> None:
    """Check that nothing is left without subscriptions and with an empty graph."""
    run(engine, "DROP ALL")
    assert (engine.spus.subscriptions, engine.spus.spus) == (0, 0)
    assert engine.spus.registry.memory.held == 0
    assert not engine.spus.registry.triggers
    assert not engine.spus.registry.watchers
    assert len(engine.graph.dictionary) == 1


def play(injector: Injector, seed: int, point: Point) -> int:
    """Run updates under one fault. Return the number of ended subscriptions."""
    draw_ = random.Random(seed)
    injector.raised = 0
    injector.point = None
    engine = new_engine()
    followers = [Follower(engine, text) for text in QUERIES if draw_.random() < 0.9]
    plain_engine = new_engine()
    with armed(engine, injector):
        for number, text in enumerate(UPDATES):
            run(plain_engine, "PREFIX ex: <http://example.org/> " + text)
            lasting = draw_.random() < 0.3
            error = draw_.choice(ERRORS)
            injector.aim(point, draw_.choice((0, 0, 1, 2, 5, 11)), error, after=draw_.random() < 0.5, lasting=lasting)
            request = UpdateRequest("PREFIX ex: <http://example.org/> " + text)
            executed = engine.execute([engine.prepare(request)], NOW)
            if draw_.random() < 0.4:  # the disk refuses the commit
                engine.undo(executed)
                injector.point = None
                check(followers)
                executed = engine.execute([engine.prepare(request)], NOW)
            if draw_.random() < 0.3:  # one commit for two updates
                executed += engine.execute([engine.prepare(UpdateRequest("CREATE SILENT GRAPH <urn:x>"))], NOW)
            engine.show(executed)
            engine.publish(executed)
            injector.point = None
            assert set(engine.graph.quads()) == set(plain_engine.graph.quads()), number
            check(followers)
            assert engine.spus.registry.memory.held == remembered(engine)
    ended = sum(follower.over for follower in followers)
    assert engine.spus.delivery.faults == ended
    for follower in followers:
        if not follower.over:
            engine.unsubscribe(follower.spuid)
    check_empty(engine)
    return ended


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_fault_at_any_point_ends_its_subscription_only(injector, point, caplog):
    struck = 0
    for seed in range(4):
        caplog.clear()
        ended = play(injector, seed, point)
        struck += injector.raised
        assert ended < len(QUERIES) or not injector.raised
        assert not ended or "subscription.fault" in caplog.text
        assert not ended or "Traceback" in caplog.text
    assert struck, "the fault did not occur"


def test_only_the_failing_member_of_a_plan_group_ends(monkeypatch, caplog):
    """The members share one evaluation, which fails as a whole."""
    engine = new_engine()
    clients = [Client(engine, f"SELECT ?s ?x {{ ?s ex:q ?x . ?s ex:room {room} }}") for room in range(5)]
    assert len(engine.spus.registry.groups) == 1
    update(engine, "INSERT DATA { ex:a ex:room 0 . ex:b ex:room 1 . ex:c ex:room 2 . ex:c ex:room 3 }")
    guilty = engine.spus.registry.by_spuid[clients[2].spuid]
    row = PlanGroup.row

    def failing(self, member, solution):
        if member is guilty:
            raise ZeroDivisionError
        return row(self, member, solution)

    monkeypatch.setattr(PlanGroup, "row", failing)
    for client in clients:
        client.items.clear()
    update(engine, "INSERT DATA { ex:a ex:q 1 . ex:b ex:q 2 . ex:c ex:q 3 }")
    assert [clients[room].news() for room in (0, 1, 3, 4)] == [
        ([("a", "1")], []),
        ([("b", "2")], []),
        ([("c", "3")], []),
        None,
    ]
    assert "ZeroDivisionError" in failed(clients[2])
    assert caplog.text.count("Traceback") == 1
    assert engine.spus.delivery.faults == 1
    caplog.clear()
    update(engine, "DELETE WHERE { ?s ex:q ?x }")
    assert [clients[room].news() for room in (0, 1, 3)] == [([], [("a", "1")]), ([], [("b", "2")]), ([], [("c", "3")])]
    assert not records_of("edge", caplog)


def test_an_error_that_no_single_member_has_ends_no_subscription(monkeypatch, caplog):
    engine = new_engine()
    clients = [Client(engine, f"SELECT ?s ?x {{ ?s ex:q ?x . ?s ex:room {room} }}") for room in range(3)]
    update(engine, "INSERT DATA { ex:a ex:room 0 . ex:b ex:room 1 }")
    monkeypatch.setattr(PlanGroup, "whose", lambda *_: 1 // 0)
    for number in range(2):
        for client in clients:
            client.items.clear()
        update(engine, f"INSERT DATA {{ ex:a ex:q {number} . ex:b ex:q {number} }}")
        assert [client.news() for client in clients] == [([("a", str(number))], []), ([("b", str(number))], []), None]
    assert engine.spus.delivery.faults == 0
    assert caplog.text.count("Traceback") == 1, "it is logged once, not with each update"


def test_a_fault_of_an_undone_update_is_forgotten_unless_the_state_is_lost(monkeypatch):
    engine = new_engine()
    whole, lost = (Client(engine, f"SELECT {how} ?o {{ ?s ex:p ?o }}") for how in ("", "DISTINCT"))
    prepared = engine.prepare(UpdateRequest("INSERT DATA { <urn:a> <http://example.org/p> 1 }"))
    for client in (whole, lost):
        client.items.clear()
    with monkeypatch.context() as patch:
        patch.setattr(DeltaEvaluation, "run", lambda *_: 1 // 0)
        engine.undo(engine.execute([prepared], NOW))
    assert whole.items == lost.items == []
    with monkeypatch.context() as patch:
        patch.setattr(DistinctStage, "change", lambda *_: 1 // 0)
        engine.undo(engine.execute([prepared], NOW))
    assert whole.items == []
    failed(lost)
    executed = engine.execute([prepared], NOW)
    engine.show(executed)
    engine.publish(executed)
    assert whole.news() == ([("1",)], [])
    assert engine.spus.subscriptions == 1


def test_an_end_follows_earlier_notifications(monkeypatch):
    """Two updates share a commit, and the second one fails."""
    engine = new_engine()
    client = Client(engine, "SELECT DISTINCT ?o { ?s ex:p ?o }")
    one, two = (engine.prepare(UpdateRequest(f"INSERT DATA {{ <urn:a> <http://example.org/p> {n} }}")) for n in (1, 2))
    first = engine.execute([one], NOW)
    monkeypatch.setattr(DistinctStage, "change", lambda *_: 1 // 0)
    second = engine.execute([two], NOW)
    engine.undo(second)  # its client exceeded a limit
    assert len(client.items) == 1, "the first update is not committed yet"
    engine.show(first)
    engine.publish(first)
    assert [type(item) for item in client.items] == [SubscriberNotification, SubscriberNotification, SubscribeFailed]
    assert client.items[1].sequence == 1


def test_keyboard_interrupt_and_system_exit_are_raised():
    assert isinstance(contained(panic("index out of bounds")), RuntimeError)
    error = MemoryError()
    assert contained(error) is error
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(kind):
            contained(kind())


def test_a_subscribe_that_fails_leaves_nothing(injector):
    engine = new_engine()
    for number, point in enumerate(POINTS):
        for text in UPDATES[:3]:
            update(engine, text)
        kept = [Follower(engine, text) for text in QUERIES[::6]]
        for text in QUERIES:
            injector.aim(point, number % 3, MemoryError, after=bool(number % 2), lasting=False)
            injector.armed = True
            with suppress(MemoryError):
                kept.append(Follower(engine, text))
            injector.armed, injector.point = False, None
        check(kept)
        for follower in kept:
            engine.unsubscribe(follower.spuid)
        check_empty(engine)
    assert injector.raised > len(POINTS)
