"""The chat and the monitoring of the SEPA paper (Appendix C) run unchanged on the engine."""

from collections.abc import Iterator

import pytest
from profiles import CHAT, MONITORING

from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.sparql.plan_cache import PlanCache
from edge.engine.start import open_engine
from edge.engine.store.graph import LiveGraph
from edge.engine.updates.update_compiler import UpdateCompiler
from edge.jsap import Profile, SemanticMapping


class Application:
    """A profile on an engine."""

    def __init__(self, engine, profile: Profile) -> None:
        self.engine = engine
        self.profile = profile

    def update(self, name: str, **bindings):
        request = UpdateRequest(self.profile.update(name).text(bindings))
        (outcome,) = self.engine.update([request]).result(10)
        return outcome

    def query(self, name: str, **bindings) -> list[dict[str, str]]:
        result = self.engine.query(QueryRequest(self.profile.query(name).text(bindings))).result(10)
        names = result.variables
        return [dict(zip(names, [term.value for term in row], strict=True)) for row in result.rows]

    def subscribe(self, name: str, **bindings) -> list:
        """Subscribe; return the list of notifications, which grows."""
        reported: list = []
        request = QueryRequest(self.profile.query(name).text(bindings))
        self.engine.subscribe(request, lambda event: reported.append(event.delta)).result(10)
        return reported


@pytest.fixture
def engine() -> Iterator:
    engine = open_engine(None)
    yield engine
    assert engine.close()


def test_chat_of_the_paper(engine):
    chat = Application(engine, Profile.load(CHAT))
    people = " ".join(f"schema:{name} a schema:Person ; schema:name '{name}' ." for name in ("URI1", "URI2"))
    engine.update([UpdateRequest(f"PREFIX schema: <http://schema.org/> INSERT DATA {{ {people} }}")]).result(10)
    sent, received = chat.subscribe("SENT", receiver="schema:URI2"), chat.subscribe("RECEIVED", sender="schema:URI1")
    other = chat.subscribe("SENT", receiver="schema:URI1")
    text = 'Ciao "URI2"\\\n } ; DROP ALL #'

    assert chat.update("SEND", text=text, sender="schema:URI1", receiver="schema:URI2").added == 5
    (row,) = chat.query("SENT", receiver="schema:URI2")
    assert (row["text"], row["sender"], row["name"]) == (text, "http://schema.org/URI1", "URI1")
    chat.update("SET_RECEIVED", message=row["message"])
    assert [found["message"] for found in chat.query("RECEIVED", sender="schema:URI1")] == [row["message"]]
    assert chat.update("REMOVE", message=row["message"]).removed == 6
    engine.query(QueryRequest("ASK {}")).result(10)
    assert [(len(delta.added), len(delta.removed)) for delta in sent[1:]] == [(1, 0), (0, 1)]
    assert [(len(delta.added), len(delta.removed)) for delta in received[1:]] == [(1, 0), (0, 1)]
    assert other[1:] == []


def test_monitoring_of_the_paper(engine):
    monitoring = Application(engine, Profile.load(MONITORING))
    (mapping,) = monitoring.profile.mappings
    assert mapping == SemanticMapping(
        topic="pepoli/6lowpan/network/NODO1/Temperature",
        observation="http://mml.arces.unibo.it/monitor#Pepoli-6lowpan-Nodo1-Temperature",
        unit="http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        location="http://mml.arces.unibo.it/monitor#Star",
        comment="Server room temperature---Viale Pepoli (6LowPan)",
        label="Server room temperature",
    )
    terms = {
        "observation": mapping.observation,
        "unit": mapping.unit,
        "location": mapping.location,
        "comment": mapping.comment,
        "label": mapping.label,
        "topic": mapping.topic,
    }
    assert monitoring.update("ADD_OBSERVATION", **terms).added == 8
    assert monitoring.query("TOPICS") == [{"observation": mapping.observation, "topic": mapping.topic}]
    values = monitoring.subscribe("OBSERVATIONS_VALUES")
    for value in (21.5, 22.5):
        monitoring.update("UPDATE_VALUE", observation=mapping.observation, value=value)
    (row,) = monitoring.query("OBSERVATIONS_VALUES")
    assert (float(row["value"]), row["label"], row["unit"]) == (22.5, mapping.label, mapping.unit)
    assert [(len(delta.added), len(delta.removed)) for delta in values[1:]] == [(1, 0), (1, 1)]

    assert monitoring.profile.update("STORE_OBSERVATION").sparql11.url == "http://localhost:8001/update"
    stored = monitoring.update("STORE_OBSERVATION", observation=mapping.observation, unit=mapping.unit, value=22.5)
    assert stored.added == 7


def test_adding_an_observation_again_replaces_its_description(engine):
    monitoring = Application(engine, Profile.load(MONITORING))
    terms = {"observation": "arces-monitor:o", "unit": "qudt-unit-1-1:Percent", "location": "arces-monitor:l"}
    for label in ("one", "two"):
        monitoring.update("ADD_OBSERVATION", **terms, comment="c", label=label, topic="t")
        monitoring.update("UPDATE_VALUE", observation="arces-monitor:o", value=1)
    assert [row["label"] for row in monitoring.query("OBSERVATIONS_VALUES")] == ["two"]


def test_one_plan_serves_all_values_of_an_entry():
    """The engine identifies a text by its fingerprint, so each entry is compiled once."""
    send = Profile.load(CHAT).update("SEND")
    compiled = []
    compile_ = UpdateCompiler(LiveGraph(), QueryRules()).compile

    def counted(*arguments):
        compiled.append(arguments[0])
        return compile_(*arguments)

    plans: PlanCache = PlanCache(counted, 100)
    for number in range(200):
        plans.get(send.text({"text": f"{number} ?x", "sender": f"schema:{number % 7}", "receiver": f"<urn:{number}>"}))
    assert len(compiled) <= 3
