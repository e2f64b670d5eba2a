"""The criteria of the W3C for receivers of Linked Data Notifications, one test for each, in the order of its report.

Criterion 13, a restricted list, is a matter of permissions: its test is in tests/security/test_notification_rights.
"""

from __future__ import annotations

import json

import httpx
import pyoxigraph as ox
import pytest
from graph_store_client import parsed, store_running

INBOX = "/inbox?graph=urn%3Acriteria"
JSON_LD, LDP = "application/ld+json", "http://www.w3.org/ns/ldp#"
AS = "https://www.w3.org/ns/activitystreams#"
NOTE = json.dumps(
    {
        "@context": {"as": AS, "object": {"@id": "as:object", "@type": "@id"}},
        "@id": "",
        "@type": "as:Announce",
        "object": "urn:thing",
    }
)


@pytest.fixture(scope="module")
def http():
    with store_running() as store:
        yield store.http


def send(http: httpx.Client, kind: str = JSON_LD, body: str = NOTE) -> httpx.Response:
    return http.post(INBOX, content=body, headers={"Content-Type": kind})


def contained(answer: httpx.Response) -> set[str]:
    return {each.object.value for each in parsed(answer) if each.predicate.value == f"{LDP}contains"}


def test_01_accepts_post_requests(http):
    assert send(http).is_success


def test_02_answers_json_ld_with_created(http):
    assert send(http).status_code == 201


def test_03_returns_the_location_of_the_notification(http):
    location = send(http).headers["location"]
    assert httpx.URL(location).is_absolute_url
    assert http.get(location).status_code == 200


@pytest.mark.parametrize("profile", [AS.rstrip("#"), "http://www.w3.org/ns/json-ld#compacted"], ids=["as", "compacted"])
def test_04_accepts_a_profile_parameter(http, profile):
    assert send(http, f'{JSON_LD}; profile="{profile}"').status_code == 201


@pytest.mark.parametrize("accept", [JSON_LD, f'{JSON_LD}; profile="http://www.w3.org/ns/json-ld#expanded"', "*/*", ""])
def test_05_returns_the_inbox_as_json_ld(http, accept):
    answer = http.get(INBOX, headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON_LD)
    assert parsed(answer)


def test_06_lists_notifications_with_contains(http):
    location = send(http).headers["location"]
    answer = http.get(INBOX, headers={"Accept": JSON_LD})
    assert location in contained(answer)
    assert {each.subject.value for each in parsed(answer) if each.predicate.value == f"{LDP}contains"} == {
        str(answer.url)
    }


def test_07_returns_notifications_as_json_ld(http):
    send(http)
    for url in contained(http.get(INBOX)):
        answer = http.get(url, headers={"Accept": JSON_LD})
        assert (answer.status_code, answer.headers["content-type"]) == (200, JSON_LD)
        assert ox.Triple(ox.NamedNode(url), ox.NamedNode(f"{AS}object"), ox.NamedNode("urn:thing")) in parsed(answer)


@pytest.mark.parametrize("accept", [None, "*/*"], ids=["none", "any"])
def test_08_returns_notifications_as_rdf_to_clients_without_a_preference(http, accept):
    request = http.build_request("GET", send(http).headers["location"])
    del request.headers["accept"]
    if accept is not None:
        request.headers["Accept"] = accept
    answer = http.send(request)
    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON_LD)
    assert len(parsed(answer)) == 2


def test_09_accepts_options_requests(http):
    answer = http.options(INBOX)
    assert answer.is_success
    assert {"GET", "HEAD", "OPTIONS", "POST"} <= set(answer.headers["allow"].split(", "))


def test_10_advertises_content_types_with_accept_post(http):
    accepted = http.options(INBOX).headers["accept-post"].split(", ")
    assert len(accepted) > 1
    assert all(send(http, each, "").status_code == 400 for each in accepted)


def test_11_accept_post_includes_json_ld(http):
    assert JSON_LD in http.options(INBOX).headers["accept-post"].split(", ")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{}", 400),
        ('{"@context": "https://www.w3.org/ns/activitystreams", "@id": "", "@type": "Announce"}', 400),
        ('{"@id": "urn:graph", "@graph": [{"@id": "urn:s", "urn:p": 1}]}', 400),
        ('{"@id": "", "urn:p": "' + "x" * 10 * 1024 * 1024 + '"}', 413),
    ],
    ids=["without triples", "remote context", "named graph", "large"],
)
def test_12_refuses_notifications_against_its_constraints(http, body, status):
    before = contained(http.get(INBOX))
    assert send(http, JSON_LD, body).status_code == status
    assert contained(http.get(INBOX)) == before


def test_14_the_inbox_is_a_container(http):
    answer = http.get(INBOX)
    a, container = (
        ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type"),
        ox.NamedNode(f"{LDP}Container"),
    )
    assert ox.Triple(ox.NamedNode(str(answer.url)), a, container) in parsed(answer)


def test_15_advertises_its_constraints(http):
    relation = f"{LDP}constrainedBy"
    link = http.get(INBOX).links[relation]["url"]
    assert http.options(INBOX).links[relation]["url"] == send(http, "text/html").links[relation]["url"] == link
    document, _, pointer = link.partition("#")
    constraints = http.get(document).json()
    for each in pointer.strip("/").split("/"):
        constraints = constraints[each.replace("~1", "/")]
    assert "http.max_message" in constraints["description"]
