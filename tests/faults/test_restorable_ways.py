"""A gateway gets odd terms in every way from outside and is killed: the next start has the same graph."""

from __future__ import annotations

import json

import httpx
import pytest

from edge.jsap import BindingError, Profile
from tests.faults.monitored_gateway import Watched
from tests.support.waiting import wait_for
from tests.web.house import publish_to

MAPPING = """
[[mapping]]
topic = "odd/{id}"
observation = "http://example.org/{id}"
label = "Label {id} {topic}"
comment = "{id|upper}"

[[mapping]]
topic = "text/{id}"
observation = "http://example.org/text/{id}"
datatype = "string"
"""
LEVELS = ("é", "\u200f", "a b", "%00", "<x>", '"q"', "{x}", "a\\b", "\U0010ffff", "..", "a:b", "'", "^|`", "\ufffe")
PAYLOADS = (
    *("1e400", "-1e400", "NaN", "Infinity", "9" * 50, "0." + "0" * 300 + "1", "-0.0", "1_000", "true", "null", ""),
    *('"a\\ud800b"', '"a\\u0000b"', '{"value": "\\udfff"}', '{"value": 1e999}', "1" * 5000, '"\\r\\n\\u0085\\u2028"'),
    *(b"\xff\xfe", b"\xed\xa0\x80", "\u0661\u0662", '"\u200fabc"'),
)
SENML = (
    '[{"n":"a\\u0000","u":"Cel","v":1}]',
    '[{"n":"x","u":"Cel","vs":"\\ud83d"}]',
    '[{"n":"y","v":1e999}]',
    '[{"n":"z","t":1e18,"v":1}]',
    '[{"n":"z","t":-1e30,"v":1}]',
)
TRIPLE = "<urn:x> <urn:b> <<( <urn:a> <urn:b> <urn:c> )>> ."
LANGUAGE = '{"@context": {"@direction": "rtl", "@language": "ar"}, "@id": "urn:x", "urn:b": "abc"}'
GOOD = {
    "text/turtle": r'<urn:x> <urn:b> "a\u0000b", "\uFFFF", "x"@EN-us, 99999999999999999999999, _:b.c .',
    "application/ld+json": '{"@id": "urn:x", "urn:b": [1e400, 123456789012345678901234567890, -0.0, true]}',
    "application/rdf+xml": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
    'rdf:about="urn:s"><p xmlns="urn:" rdf:parseType="Literal"><b>x&amp;</b></p></rdf:Description></rdf:RDF>',
}
BAD = (("text/turtle", TRIPLE), ("text/turtle", '<urn:x> <urn:b> "a"@en--ltr .'), ("application/ld+json", LANGUAGE))
DELAYED = {
    "triple": "BIND(TRIPLE(<urn:a>, <urn:b>, <urn:c>) AS ?t)",
    "direction": "BIND(STRLANGDIR('a', 'en', 'ltr') AS ?t)",
    "label": "BIND(BNODE('a:b') AS ?t)",
}
HUGE = "x" * 500_000
PATCHES = {
    r'INSERT DATA { <urn:x> <urn:b> "a\u0000b", "\uFFFF", "x"@EN-us, 1e400, _:b.c ; <urn:h> "HUGE" }': True,
    "INSERT { <urn:x> <urn:b> ?t } WHERE { BIND(BNODE('a b') AS ?t) }": True,
    r'INSERT DATA { <urn:x> <urn:b> "\uD800" }': False,
    'INSERT DATA { <urn:x> <urn:b> "a"@en--ltr }': False,
    **{f"INSERT {{ <urn:x> <urn:b> ?t }} WHERE {{ {DELAYED[name]} }}": False for name in ("triple", "direction")},
}
"""Updates, and whether the graph can hold their terms."""
PROFILE = Profile.parse(
    json.dumps(
        {
            "updates": {
                kind: {
                    "sparql": f"INSERT DATA {{ <urn:profile:{kind}> <urn:b> ?v }}",
                    "forcedBindings": {"v": {"type": kind}},
                }
                for kind in ("literal", "uri", "bnode")
            }
        }
    )
)
EVERYTHING = "SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


def send(http: httpx.Client, method: str, path: str, media: str, body: str, *, good: bool) -> None:
    answer = http.request(method, path, content=body.encode(), headers={"Content-Type": media})
    assert answer.is_success if good else 400 <= answer.status_code < 500, (path, body[:100], answer.text[:300])


def send_documents(http: httpx.Client) -> None:
    """Replace, change and notify with odd terms. The gateway must accept the good ones and refuse the others."""
    for method, path in (("PUT", "/graph-store?graph=urn:put"), ("POST", "/inbox?graph=urn:put")):
        for media, body in GOOD.items():
            send(http, method, path, media, body, good=True)
        for media, body in BAD:
            send(http, method, path, media, body, good=False)
    for update, good in PATCHES.items():
        text = update.replace("HUGE", HUGE)
        send(http, "PATCH", "/graph-store?graph=urn:patch", "application/sparql-update", text, good=good)


def send_profile(http: httpx.Client) -> int:
    """Send the updates of a profile with odd values. Return the number of values that the profile accepts."""
    accepted = 0
    for kind in ("literal", "uri", "bnode"):
        for value in (*LEVELS, *filter(lambda payload: isinstance(payload, str), PAYLOADS), "a\0b", "\ud800", HUGE):
            try:
                text = PROFILE.update(kind).text({"v": value})
            except BindingError:
                continue
            send(http, "POST", "/update", "application/sparql-update", text, good=True)
            accepted += 1
    return accepted


@pytest.fixture
def watched(gateway, tmp_path) -> Watched:
    (tmp_path / "data" / "mappings").mkdir(parents=True)
    (tmp_path / "data" / "mappings" / "odd.toml").write_text(MAPPING)
    return Watched(gateway(tmp_path / "data", EDGE__STREAMS__ENABLED="true"))


def state(watched: Watched) -> set[str]:
    _, answer = watched.ask("/query", query=EVERYTHING)
    return set(map(str, answer["results"]["bindings"]))


def restarted(watched: Watched) -> set[str]:
    watched.process.kill()
    watched.endpoints = watched.process.start()
    return state(watched)


def test_a_killed_gateway_has_the_same_graph_whatever_way_odd_terms_came(watched):
    messages = [(f"{kind}/{level}", "21.5") for kind in ("odd", "text") for level in LEVELS]
    messages += [(f"{kind}/p{n}", payload) for kind in ("odd", "text") for n, payload in enumerate(PAYLOADS)]
    publish_to(watched.endpoints["mqtt"], [*messages, *(("senml/odd", each) for each in SENML)])
    with httpx.Client(base_url=watched.endpoints["http"], timeout=20) as http:
        http.put("/streams/s")
        for path in ("/graph-store?graph=urn:g", "/streams/s"):
            for media, body in GOOD.items():
                assert http.post(path, content=body.encode(), headers={"Content-Type": media}).is_success
            for media, body in BAD:
                assert http.post(path, content=body, headers={"Content-Type": media}).status_code == 400
        send_documents(http)
        assert send_profile(http) > len(LEVELS)
    publish_to(watched.endpoints["mqtt"], [("odd/last", "1")])
    wait_for(lambda: watched.values("SELECT ?o { <http://example.org/last> <http://www.w3.org/ns/sosa/hasResult> ?o }"))
    before = state(watched)
    assert len(before) > 300
    for name, bind in DELAYED.items():
        update = f"INSERT {{ <urn:x> <urn:late> ?t }} WHERE {{ {bind} }}"
        assert watched.ask("/update", update=update, delay="PT1S", id=name)[0] == 202
    assert restarted(watched) == before
    wait_for(lambda: not watched.ask("/health")[1]["pending_timers"])
    _, timers = watched.ask("/timers")
    assert {each["id"]: each["state"] for each in timers["timers"]} == dict.fromkeys(DELAYED, "failed")
    assert restarted(watched) == before
    assert watched.ask("/health")[0] == 200
