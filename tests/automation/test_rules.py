"""Rules on a real engine: begin and end of situations, over restarts, against a simple model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_world import SECOND, RuleWorld, logging, observation, rule

from edge.engine.requests import UpdateRequest

HOT = """
label = "Too hot"
property = "urn:p"
above = 30
for = "PT{lasts}S"
end_for = "PT{end}S"
update = '{began}'
end_update = '{ended}'
"""


@pytest.fixture
def world(tmp_path):
    worlds: list[RuleWorld] = []

    def make(*texts: str, **settings: float) -> RuleWorld:
        rules = [rule(text, f"rule-{number}") for number, text in enumerate(texts)]
        worlds.append(RuleWorld(tmp_path / f"data-{len(worlds)}", *rules, **settings))
        return worlds[-1]

    yield make
    for each in worlds:
        each.stop()


def hot(lasts: int = 0, end: int = 0) -> str:
    return HOT.format(lasts=lasts, end=end, began=logging("began"), ended=logging("ended"))


def test_a_situation_begins_and_ends_at_once(world):
    box = world(hot())
    box.observe("a", 20)
    assert box.active() == []
    box.observe("a", 31)
    assert box.active() == ["urn:a"]
    box.observe("a", 35)
    assert box.log("began") == [0]
    box.advance(7)
    box.observe("a", 29)
    assert (box.active(), box.log("ended")) == ([], [7])


def test_a_situation_has_to_last(world):
    box = world(hot(lasts=600))
    box.observe("a", 31)
    box.advance(599)
    box.observe("a", 30)
    box.advance(600)
    assert box.log("began") == []
    box.observe("a", 31)
    box.advance(300)
    box.observe("a", 32)
    box.advance(300)
    assert box.log("began") == [1799]
    assert box.active() == ["urn:a"]


def test_delays_go_on_over_a_restart(world):
    box = world(hot(lasts=600, end=600))
    box.observe("a", 31)
    box.advance(400)
    box.restart()
    box.advance(199)
    assert box.log("began") == []
    box.advance(1)
    assert box.log("began") == [600]
    box.restart()
    box.observe("a", 20)
    box.advance(300)
    box.restart()
    box.advance(299)
    assert box.log("ended") == []
    box.advance(1)
    assert box.log("ended") == [1200]
    assert box.active() == []


def test_a_situation_that_came_back_does_not_end(world):
    box = world(hot(end=600))
    box.observe("a", 31)
    box.observe("a", 20)
    box.advance(599)
    box.observe("a", 31)
    box.advance(1000)
    assert (box.log("ended"), box.active()) == ([], ["urn:a"])


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("a"), st.integers(0, 1)),
            st.tuples(st.just("pass"), st.integers(1, 8)),
            st.tuples(st.just("restart"), st.integers(0, 3)),
        ),
        max_size=30,
    ),
    st.sampled_from([0, 15, 45]),
    st.sampled_from([0, 15, 45]),
)
def test_situations_equal_those_of_a_simple_model(tmp_path_factory, steps, lasts, end):
    box = RuleWorld(tmp_path_factory.mktemp("rules"), rule(hot(lasts, end)))
    model = Model(lasts, end)
    try:
        for step, number in steps:
            if step == "a":
                box.observe("a", 40 if number else 10)
                model.set(bool(number))
            elif step == "pass":
                for _ in range(number * 2):  # no step of the clock passes two ends of delays
                    box.advance(5)
                    model.advance(5)
            else:
                box.stop()
                # Delayed updates that are due run as soon as the engine is there, before the rules are.
                box.clock.at += number * 20 * SECOND
                box.begin()
                model.advance(number * 20)
            assert box.active() == (["urn:a"] if model.active else [])
            # The log has one triple for each time, however often the rule fired then.
            assert box.log("began") == sorted(set(model.began))
            assert box.log("ended") == sorted(set(model.ended))
    finally:
        box.stop()


class Model:
    """The meaning of a rule about one observation, in seconds."""

    def __init__(self, lasts: int, end: int) -> None:
        self.lasts, self.end = lasts, end
        self.now = 0
        self.holds = self.active = False
        self.since = 0
        self.began: list[float] = []
        self.ended: list[float] = []

    def set(self, holds: bool) -> None:
        if holds != self.holds:
            self.holds, self.since = holds, self.now
        self.advance(0)

    def advance(self, seconds: int) -> None:
        self.now += seconds
        if self.holds and not self.active and self.now >= self.since + self.lasts:
            self.active = True
            self.began.append(self.now)
        if self.active and not self.holds and self.now >= self.since + self.end:
            self.active = False
            self.ended.append(self.now)


def test_silence_begins_without_a_value_and_ends_with_the_next(world):
    box = world(
        f"property = \"urn:p\"\nsilent = \"PT1H\"\nupdate = '{logging('began')}'\nend_update = '{logging('ended')}'"
    )
    for _ in range(3):
        box.observe("a", 1)
        box.observe("b", 1)
        box.advance(3599)
    assert box.active() == []
    box.observe("b", 1)
    box.advance(1)
    assert box.active() == ["urn:a"]
    box.advance(100)
    box.restart()
    assert box.active() == ["urn:a"]
    box.advance(1)
    box.observe("a", 1)
    assert (box.active(), len(box.log("began")), len(box.log("ended"))) == ([], 1, 1)
    box.advance(3600)
    assert box.active() == ["urn:a", "urn:b"]


def test_a_query_finds_situations_by_their_key(world):
    text = """
query = "SELECT ?room ?value { ?room <urn:temperature> ?value FILTER(?value > 30) }"
key = ["room"]
update = "INSERT DATA { <urn:alarm> <urn:of> 1 } ; INSERT { ?room <urn:was> ?value } WHERE {}"
end_update = "DELETE { ?room <urn:was> ?any } INSERT { ?room <urn:ended> ?value } WHERE { ?room <urn:was> ?any }"
"""
    box = world(text)
    box.update("INSERT DATA { <urn:r1> <urn:temperature> 31 . <urn:r2> <urn:temperature> 20 }")
    assert box.ask("SELECT ?v { <urn:r1> <urn:was> ?v }") == ["31"]
    box.update("DELETE DATA { <urn:r1> <urn:temperature> 31 } ; INSERT DATA { <urn:r1> <urn:temperature> 40 }")
    assert box.ask("SELECT ?v { <urn:r1> <urn:was> ?v }") == ["31"]
    box.restart()
    box.update("DELETE WHERE { <urn:r1> <urn:temperature> ?v }")
    assert box.ask("SELECT ?v { ?r <urn:ended> ?v }") == ["31"]


def test_a_deleted_or_disabled_rule_leaves_nothing_behind(world):
    for keep in (
        'label = "other"\nproperty = "urn:q"\nabove = 1',
        hot(lasts=600).replace("label", "enabled = false\nlabel"),
    ):
        box = world(hot(), hot(lasts=600))
        box.observe("a", 31)
        assert len(box.engine.pending_ids("sepa://rule/").result()) == 1
        box.follow(rule(keep, "rule-9"))
        assert box.active() == []
        assert box.engine.pending_ids("sepa://rule/").result() == []


def test_a_rule_deleted_while_the_gateway_was_stopped_leaves_nothing_behind(world):
    box = world(hot(), hot(lasts=600))
    box.observe("a", 31)
    box.wanted, box.names = [], set()
    box.restart()
    assert (box.active(), box.engine.pending_ids("").result()) == ([], [])


def test_a_changed_rule_keeps_its_situations_as_far_as_they_still_hold(world):
    box = world(hot())
    box.observe("a", 31)
    box.observe("b", 50)
    box.follow(rule(hot().replace("above = 30", "above = 40"), "rule-0"))
    assert box.active() == ["urn:b"]
    assert box.log("began") == [0, 0]
    assert box.log("ended") == [0]


def test_a_cancelled_begin_does_not_take_place(world):
    box = world(hot(lasts=600))
    box.observe("a", 31)
    (name,) = box.engine.pending_ids("sepa://rule/rule-0/").result()
    box.engine.cancel(name).result()
    box.advance(1000)
    box.observe("a", 20)
    assert (box.log("began"), box.log("ended")) == ([], [])
    box.observe("a", 31)
    box.advance(600)
    assert box.log("began") == [1600]


def test_an_update_that_fails_is_reported_and_hurts_nobody(world):
    box = world('property = "urn:p"\nabove = 1\nupdate = "CREATE GRAPH <urn:there>"', hot())
    box.update("CREATE GRAPH <urn:there>")
    box.observe("a", 31)
    state = box.rules.states()["rule-0"]
    assert (state.active, state.tally.failed) == (0, 1)
    assert "urn:there" in state.tally.failure
    assert box.active() == ["urn:a"]  # of the other rule
    box.observe("a", 0)
    box.update("DROP GRAPH <urn:there>")
    box.observe("a", 31)
    assert box.rules.states()["rule-0"].active == 1
    assert box.rules.states()["rule-0"].tally.failure == ""


def test_an_end_that_fails_ends_the_situation(world):
    box = world('property = "urn:p"\nabove = 1\nend_update = "DROP GRAPH <urn:absent>"')
    box.observe("a", 31)
    box.observe("a", 0)
    assert (box.active(), box.rules.states()["rule-0"].tally.failed) == ([], 1)


def test_rules_that_start_each_other_are_slowed_down(world):
    flip = "DELETE {{ <urn:s> <urn:is> {old} }} INSERT {{ <urn:s> <urn:is> {new} }} WHERE {{}}"
    rules = [
        f"query = 'SELECT ?s {{ ?s <urn:is> {old} }}'\nupdate = '{flip.format(old=old, new=new)}'"
        for old, new in ((1, 2), (2, 1))
    ]
    box = world(*rules, max_rate=2)
    box.update("INSERT DATA { <urn:s> <urn:is> 1 }")
    begun = sum(state.tally.begun for state in box.rules.states().values())
    assert 10 <= begun <= 40
    assert any("max_rate" in state.tally.failure for state in box.rules.states().values())
    box.advance(10)
    assert sum(state.tally.begun for state in box.rules.states().values()) > begun


def test_a_rule_with_too_many_situations_stops(world):
    box = world('query = "SELECT ?s { ?s <urn:p> ?o }"', hot(), max_situations=3)
    box.update("INSERT DATA { <urn:1> <urn:p> 1 . <urn:2> <urn:p> 1 . <urn:3> <urn:p> 1 . <urn:4> <urn:p> 1 }")
    assert "max_situations" in box.rules.states()["rule-0"].stopped
    box.observe("a", 31)
    assert box.active() == ["urn:a"]


def test_a_query_that_cannot_be_followed_is_tried_again(world):
    box = world('query = "SELECT ?s { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }"')
    assert "SERVICE" in box.rules.states()["rule-0"].stopped
    assert box.rules.wait() is not None


def test_overdue_begins_take_place_once_for_many_situations(world):
    """They run while the rules start, before or after the rules look at the graph and at the delayed updates."""
    box = world(hot(lasts=60, end=60))
    names = [f"o{number}" for number in range(40)]
    for name in names:
        box.observe(name, 31)
    for expected in ("began", "ended"):
        box.stop()
        box.clock.at += 61 * SECOND
        box.begin()
        assert len(box.log(expected)) == 40
        assert len(box.active()) == (40 if expected == "began" else 0)
        if expected == "began":
            for name in names:
                box.observe(name, 3)
    assert all(len(box.ask(f"SELECT ?t {{ <urn:{name}> <urn:began> ?t }}")) == 1 for name in names)


def test_a_delayed_update_that_fails_is_reported(world):
    text = 'property = "urn:p"\nabove = 30\n'
    box = world(
        text + 'for = "PT10S"\nupdate = "DROP GRAPH <urn:absent>"',
        text + 'end_for = "PT10S"\nend_update = "DROP GRAPH <urn:absent>"',
    )
    box.observe("a", 31)
    box.advance(10)
    box.advance(2)
    states = box.rules.states()
    assert (states["rule-0"].active, states["rule-0"].waiting, states["rule-0"].tally.failed) == (0, 0, 1)
    assert "urn:absent" in states["rule-0"].tally.failure
    box.observe("a", 1)
    box.advance(10)
    box.advance(2)
    state = box.rules.states()["rule-1"]
    assert (state.active, state.tally.failed, state.tally.ended) == (0, 1, 1)
    assert box.active() == []


def test_values_after_a_silence_are_not_lost_at_the_rate_limit(world):
    box = world(f'property = "urn:p"\nsilent = "PT60S"\nend_update = \'{logging("ended")}\'', max_rate=1)
    names = [f"o{number}" for number in range(15)]
    for name in names:
        box.observe(name, 1)
    box.advance(60)
    for _ in range(12):
        box.advance(1)
    assert len(box.active()) == 15
    for name in names:
        box.observe(name, 2)
    for _ in range(20):
        box.advance(1)
    assert (box.active(), len(box.log("ended"))) == ([], 15)


def test_a_changed_rule_waits_again_with_its_new_update(world):
    box = world(hot(lasts=600))
    box.observe("a", 31)
    box.advance(300)
    box.follow(rule(hot(lasts=600).replace("<urn:began>", "<urn:new>"), "rule-0"))
    box.advance(599)
    assert box.log("new") == []
    box.advance(1)
    assert (box.log("began"), box.log("new")) == ([], [900])
    box.observe("b", 31)
    box.wanted = [rule(hot(), "rule-0")]
    box.restart()
    assert box.log("began") == [900]
    assert box.engine.pending_ids("sepa://rule/").result() == []


def test_the_last_rule_deleted_while_the_gateway_was_stopped_leaves_nothing_behind(world):
    box = world(hot(), hot(lasts=600))
    box.observe("a", 31)
    box.wanted, box.names = [], set()
    box.stop()
    box.clock.at += 599 * SECOND
    box.begin()
    box.advance(1)
    assert (box.active(), box.log("began")) == ([], [0])


def test_notifications_of_a_removed_rule_have_no_effect(world):
    box = world(hot())
    box.engine.update([UpdateRequest(text) for text in ("INSERT DATA { <urn:x> <urn:y> 1 }",)]).result()
    for number in range(5):
        box.engine.update([UpdateRequest(observation(f"o{number}", 31))])
    box.engine.on_writer(lambda: None).result()
    assert box.events
    box.follow(rule('property = "urn:q"\nabove = 1', "rule-9"))
    assert (box.log("began"), box.active()) == ([], [])


def test_a_client_that_ends_a_situation_ends_it_until_it_comes_back(world):
    box = world(hot(end=60))
    box.observe("a", 31)
    box.update("DROP GRAPH <urn:sepa-edge:automation>")
    assert (box.active(), box.rules.states()["rule-0"].active) == ([], 0)
    box.observe("a", 32)
    assert box.log("began") == [0]
    box.observe("a", 1)
    box.observe("a", 31)
    assert (box.active(), len(box.ask("SELECT ?t { ?o <urn:began> ?t }"))) == (["urn:a"], 1)


def test_a_cancelled_end_leaves_the_situation_until_it_comes_back(world):
    box = world(hot(end=60))
    box.observe("a", 31)
    box.observe("a", 1)
    (name,) = box.engine.pending_ids("sepa://rule/").result()
    box.engine.cancel(name).result()
    box.advance(100)
    assert (box.active(), box.log("ended")) == (["urn:a"], [])
    box.observe("a", 31)
    box.observe("a", 1)
    box.advance(60)
    assert (box.active(), box.log("ended")) == ([], [160])


def test_an_update_with_a_variable_without_value_is_not_carried_out(world):
    text = """
query = "SELECT ?s ?lamp { ?s <urn:is> 1 OPTIONAL { ?s <urn:of> ?lamp } }"
update = "DELETE { ?lamp <urn:on> ?any } INSERT { ?lamp <urn:on> true } WHERE { ?lamp <urn:on> ?any }"
"""
    box = world(text)
    box.update("INSERT DATA { <urn:l1> <urn:on> false . <urn:l2> <urn:on> false . <urn:s> <urn:is> 1 }")
    assert box.ask("SELECT ?v { ?l <urn:on> ?v }") == ["false", "false"]
    assert "?lamp, which has no value" in box.rules.states()["rule-0"].tally.failure
    box.update("INSERT DATA { <urn:t> <urn:is> 1 ; <urn:of> <urn:l2> }")
    assert box.ask("SELECT ?v { <urn:l2> <urn:on> ?v }") == ["true"]
