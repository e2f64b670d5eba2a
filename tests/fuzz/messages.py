"""Random client messages: valid requests, nearly valid ones, and noise."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

TEXTS = [
    "ASK {}",
    "SELECT * { ?s ?p ?o }",
    "SELECT (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s HAVING (?n > 1)",
    "SELECT DISTINCT ?s { { ?s <urn:p> ?o } UNION { ?s <urn:q>/<urn:p>* ?o } OPTIONAL { ?o ?p ?s } FILTER(?s != 1) }",
    "CONSTRUCT { ?s <urn:p> ?o } WHERE { ?s ?p ?o } LIMIT 5",
    "DESCRIBE <urn:s>",
    "PREFIX : <urn:> SELECT ?s { GRAPH ?g { ?s :p [] ; :q 'a'@en, 1.5e3, true } MINUS { ?s :p (1 2) } }",
    "SELECT ?x { BIND(STRLEN('\\u00e9') / 0 AS ?x) VALUES ?y { UNDEF <urn:a> } }",
    "INSERT DATA { <urn:s> <urn:p> 'o' . GRAPH <urn:g> { <urn:s> <urn:p> 1 } }",
    "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:p> 2 } WHERE { ?s <urn:p> ?o }",
    "WITH <urn:g> DELETE WHERE { ?s ?p ?o }",
    "CLEAR SILENT GRAPH <urn:g>",
    "LOAD <http://127.0.0.1:1/x>",
    "SELECT * { SERVICE <http://127.0.0.1:1/x> { ?s ?p ?o } }",
]
"""No text, nor a part of one, clears or drops all graphs: the data of other clients must stay
(`test_fuzz_messages.py`).
"""
WORDS = sorted({word for text in TEXTS for word in text.split()})


def _repeated(part: tuple[str, int]) -> str:
    return part[0] * part[1]


def sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@st.composite
def _cut_up(draw: st.DrawFn) -> str:
    """Return SPARQL with some words exchanged, doubled or left out."""
    words = draw(st.sampled_from(TEXTS)).split()
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(words) - 1)) if words else 0
        words[place : place + draw(st.integers(0, 2))] = draw(st.lists(st.sampled_from(WORDS), max_size=2))
    return " ".join(words)


_ODD = st.text(max_size=40) | st.sampled_from([("{", 3000), ("(", 300), ("\ud800", 1), ("\0", 1), ("", 1)]).map(
    _repeated
)
SPARQL = st.integers(0, 9).flatmap(lambda n: _ODD if n == 9 else _cut_up() if n > 5 else st.sampled_from(TEXTS))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", 10**40, "a" * 500])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
GRAPHS = st.lists(st.sampled_from(["urn:g", "urn:h", "", "no iri", "\0"]), max_size=3) | st.just("urn:g")
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "sparql": SPARQL,
    "alias": st.text(max_size=10),
    "default-graph-uri": GRAPHS,
    "named-graph-uri": GRAPHS,
    "using-graph-uri": GRAPHS,
    "using-named-graph-uri": GRAPHS,
    "authorization": st.text(max_size=20) | st.just("Bearer a.b.c"),
    "timeout": st.integers(-1, 60_000),
    "resume": st.booleans(),
    "spuid": st.just("sepa://subscription/1") | st.text(max_size=10),
    "sequence": st.integers(-1, 5),
    "delay": st.sampled_from(["PT0S", "PT0.01S", "P1D", "P200000D", "PT", "-PT1S", ""]),
    "at": st.sampled_from(["2030-01-31T12:00:00Z", "1763740830000000", "9" * 30, "today"]) | st.integers(),
    "id": st.text(max_size=10),
    "state": st.sampled_from(["pending", "done", "else"]),
    "limit": st.integers(-1, 2000),
}
KINDS: dict[str, tuple[str, ...]] = {
    "subscribe": ("sparql", "alias", "default-graph-uri", "named-graph-uri", "timeout", "resume", "spuid", "sequence"),
    "unsubscribe": ("spuid", "alias"),
    "update": ("sparql", "alias", "using-graph-uri", "using-named-graph-uri", "delay", "at", "id"),
    "query": ("sparql", "alias", "default-graph-uri", "named-graph-uri"),
    "timers": ("state", "limit", "alias"),
    "timer": ("id", "alias"),
    "cancel": ("id", "alias"),
}
NEEDED = {
    "subscribe": "sparql",
    "unsubscribe": "spuid",
    "update": "sparql",
    "query": "sparql",
    "timers": "",
    "timer": "id",
    "cancel": "id",
}


@st.composite
def _request(draw: st.DrawFn) -> dict[str, Any]:
    """Return a request whose members mostly have the right kind; one member may be anything."""
    kind = draw(st.sampled_from([*KINDS]))
    body: dict[str, Any] = {}
    for name in KINDS[kind]:
        if name == NEEDED[kind] or draw(st.integers(0, 5)) == 5:
            body[name] = draw(MEMBERS[name])
    if draw(st.integers(0, 5)) == 5:
        body[draw(st.sampled_from([*MEMBERS]) | st.text(max_size=5))] = draw(JSON)
    if draw(st.integers(0, 9)) == 9:
        body.pop(NEEDED[kind], None)
    return {kind: body}


@st.composite
def _text(draw: st.DrawFn) -> str:
    """Return a request as JSON text, sometimes with an error in it."""
    text = json.dumps(draw(JSON if draw(st.integers(0, 9)) == 9 else _request()))
    if draw(st.integers(0, 9)) == 9:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.text(max_size=3)) + text[place + draw(st.integers(0, 5)) :]
    return sendable(text)


NOISE: st.SearchStrategy[str | bytes] = (
    st.text(max_size=50).map(sendable)
    | st.binary(max_size=100)
    | st.sampled_from([("[", 100_000), ('{"query":', 5000), ("\ufeff{}", 1), ("NaN", 1), ("", 1)]).map(_repeated)
)
MESSAGES: st.SearchStrategy[str | bytes] = st.integers(0, 9).flatmap(lambda n: NOISE if n == 9 else _text())
"""Text, or bytes that may not be valid text."""


def is_error(message: dict[str, Any]) -> bool:
    """Return whether a message is a protocol error that does not report a fault of the gateway."""
    return (
        message.keys() >= {"error", "error_description", "status_code"}
        and message.keys() <= {"error", "error_description", "status_code", "alias", "spuid"}
        and isinstance(message["error"], str)
        and isinstance(message["error_description"], str)
        and isinstance(message["status_code"], int)
        and message["error"] != "internal_error"
    )


ANSWERS = {"notification", "unsubscribed", "updated", "scheduled", "result", "timers", "timer", "cancelled"}


def is_answer(message: Any) -> bool:
    """Return whether a message is known to the protocol."""
    return isinstance(message, dict) and (len(message.keys() & ANSWERS) == 1 or is_error(message))


def answers_a_request(message: dict[str, Any]) -> bool:
    """Return whether a message is the answer to a request, not a later notification."""
    if "notification" in message:
        return bool(message["notification"]["sequence"] == 0)
    return message.get("error") != "subscription_failed"
