"""Mapping files over the HTTP interface: they are checked, apply at once, and keep their previous version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from edge.adapters.registry import UnmappedTopics
from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for
from tests.web.house import publish_to

GOOD = '[[mapping]]\ntopic = "garage/box"\nobservation = "edge:box"\nunit = "unit:DegreeCelsius"\nlabel = "Box"\n'
FAULTY = '[[mapping]]\ntopic = "garage/box"\nobservation = "edge:box"\nunits = "unit:DegreeCelsius"\n'


class Documents:
    """A gateway and its mapping files."""

    def __init__(self, directory: Path) -> None:
        ports = {f"EDGE__{name}__PORT": str(free_port()) for name in ("HTTP", "WS", "MQTT")}
        settings = {"EDGE__MAPPINGS__RELOAD_INTERVAL": "0", "EDGE__HOST__ENABLED": "false"}
        self.process = GatewayProcess(directory, {**ports, **settings})
        self.endpoints = self.process.start()
        self.http = httpx.Client(base_url=self.endpoints["http"], timeout=20)
        self.directory = directory / "mappings"

    def write(self, name: str, text: str) -> httpx.Response:
        return self.http.put(f"/api/mappings/{name}", content=text, headers={"Content-Type": "text/plain"})

    def test(self, **members: object) -> httpx.Response:
        return self.http.post("/api/mapping-test", json=members)

    def readings(self, topic: str, payload: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.test(topic=topic, payload=payload).json()["readings"]
        return found


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    documents = Documents(tmp_path_factory.mktemp("gateway"))
    yield documents
    documents.http.close()
    documents.process.stop()


@pytest.fixture(autouse=True)
def no_files(documents):
    yield
    for each in documents.http.get("/api/mappings").json():
        documents.http.delete(f"/api/mappings/{each['name']}")


def test_a_written_file_applies_at_once(documents):
    assert documents.http.get("/api/mappings").json() == []
    assert documents.readings("garage/box", "21.5") == []
    assert documents.write("box", GOOD).json() == {"written": {"name": "box"}}
    (reading,) = documents.readings("garage/box", "21.5")
    assert (reading["observation"], reading["value"], reading["label"]) == ("urn:sepa-edge:box", "21.5", "Box")
    assert documents.http.get("/api/mappings/box").text == GOOD
    listed = {"file": "box.toml", "name": "box", "has_previous": False, "fault": None, "faults": []}
    assert documents.http.get("/api/mappings").json() == [listed]


def test_a_faulty_file_is_refused_with_its_line_and_changes_nothing(documents):
    documents.write("box", GOOD)
    refused = documents.write("box", FAULTY)
    assert refused.status_code == 400
    assert "box.toml:4" in refused.json()["error_description"] or ":4:" in refused.json()["error_description"]
    assert "units" in refused.json()["error_description"]
    assert documents.http.get("/api/mappings/box").text == GOOD
    assert len(documents.readings("garage/box", "1")) == 1


def test_the_previous_version_is_kept_also_of_a_deleted_file(documents):
    documents.write("box", GOOD)
    newer = GOOD.replace("Box", "Crate")
    documents.write("box", newer)
    assert documents.http.get("/api/mappings/box", params={"previous": "true"}).text == GOOD
    assert documents.http.get("/api/mappings").json()[0]["has_previous"] is True
    assert documents.http.delete("/api/mappings/box").json() == {"deleted": {"name": "box"}}
    assert documents.readings("garage/box", "1") == []
    assert documents.http.get("/api/mappings/box").status_code == 404
    assert documents.http.delete("/api/mappings/box").status_code == 404
    assert documents.http.get("/api/mappings/box", params={"previous": "true"}).text == newer


def test_a_text_is_tested_without_being_written(documents):
    found = documents.test(topic="garage/box", payload="3", name="box", text=GOOD).json()
    assert (found["faults"], found["matched"], len(found["readings"])) == ([], True, 1)
    found = documents.test(topic="garage/box", payload="3", name="box", text=FAULTY).json()
    assert [(fault["line"], fault["code"]) for fault in found["faults"]] == [(4, "wrong_value")]
    assert "readings" not in found
    found = documents.test(topic="garage/box", hex="32 31", name="box", text=GOOD).json()
    assert found["readings"][0]["value"] == "21"
    assert "[[mapping]]" in documents.test(topic="garage/other", payload='{"a": 1}').json()["suggestion"]
    assert documents.http.get("/api/mappings").json() == []


@pytest.mark.parametrize(
    "name", ["..", ".hidden", "a.b", "a b", "%2e%2e%2fedge", "a%00b", "x" * 65, "-x", "%C3%A4", "a%0a"]
)  # fmt: skip
def test_a_name_leads_to_no_other_file(documents, name):
    before = sorted(path.name for path in documents.directory.parent.rglob("*"))
    assert documents.write(name, GOOD).status_code in (400, 404, 405)
    assert documents.http.get(f"/api/mappings/{name}").status_code in (400, 404)
    assert documents.http.delete(f"/api/mappings/{name}").status_code in (400, 404, 405)
    assert sorted(path.name for path in documents.directory.parent.rglob("*")) == before


def test_probable_mistakes_are_warnings(documents):
    text = GOOD + '[[mapping]]\ntopic = "w"\npath = "*.t"\nobservation = "urn:w"\n'
    answer = documents.test(topic="w", payload='{"a": {"t": 1}}', text=text).json()
    assert answer["faults"] == []
    (warning,) = answer["warnings"]
    assert warning["line"] == text.splitlines().index('observation = "urn:w"') + 1
    assert 'All values of "*.t"' in warning["text"]
    assert documents.write("box", text).status_code == 200


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[", "JSON"),
        (b"[]", "JSON object"),
        (b'{"topic": "t"}', '"payload"'),
        (b'{"topic": "t", "payload": "1", "hex": "01"}', '"hex"'),
        (b'{"topic": "t", "hex": "0"}', "hexadecimal"),
        (b'{"topic": "\\ud800", "payload": "1"}', "surrogate"),
        (b'{"topic": "t", "payload": "\\ud800"}', "surrogate"),
        (b'{"topic": "t", "payload": "1", "text": 5}', "texts"),
    ],
)
def test_a_wrong_test_is_refused_with_the_reason(documents, body, reason):
    refused = documents.http.post("/api/mapping-test", content=body)
    assert refused.status_code == 400
    assert reason in refused.json()["error_description"]


def test_a_large_file_and_another_media_type_are_refused(documents):
    assert documents.write("box", "#" * 300_000).status_code == 413
    refused = documents.http.put("/api/mappings/box", content=GOOD, headers={"Content-Type": "application/json"})
    assert refused.status_code == 415
    assert documents.http.get("/api/mappings", params={}).json() == []
    assert documents.http.get("/api/mappings/box", params={"previous": "yes"}).status_code == 400


def test_files_of_other_forms_are_listed_and_faulty_ones_marked(documents):
    documents.write("box", GOOD)
    (documents.directory / "Ärger.toml").write_text(FAULTY)
    (documents.directory / "profile.jsap").write_text("{}")
    documents.write("other", GOOD.replace("box", "other"))  # has the gateway look
    listed = {each["file"]: each for each in documents.http.get("/api/mappings").json()}
    assert listed["Ärger.toml"]["name"] is None
    assert "units" in listed["Ärger.toml"]["fault"]
    assert listed["profile.jsap"]["name"] is None
    assert listed["box.toml"]["fault"] is None
    for name in ("Ärger.toml", "profile.jsap"):
        (documents.directory / name).unlink()
    documents.http.delete("/api/mappings/other")


def test_a_disk_that_cannot_be_written_is_reported(documents):
    documents.write("box", GOOD)
    moved = documents.directory.rename(documents.directory.with_name("away"))
    documents.directory.write_text("no directory")
    try:
        failed = documents.write("box", GOOD)
        assert (failed.status_code, failed.json()["error"]) == (507, "storage_failed")
        assert "Free space" in failed.json()["error_description"]
        assert len(documents.readings("garage/box", "1")) == 1
    finally:
        documents.directory.unlink()
        moved.rename(documents.directory)


def test_the_last_message_of_an_unmapped_topic_is_a_sample(documents):
    long = "x" * 5000
    messages = [("s/text", '{"a": 1}'), ("s/bytes", b"\xff\x00"), ("s/long", long)]
    publish_to(documents.endpoints["mqtt"], messages)
    wait_for(lambda: len(documents.http.get("/api/unmapped").json()) == 3, what="the messages")

    def sample(topic: str) -> dict[str, object]:
        found: dict[str, object] = documents.http.get("/api/unmapped", params={"topic": topic}).json()
        return found

    assert (sample("s/text")["payload"], sample("s/text")["count"]) == ('{"a": 1}', 1)
    assert (sample("s/bytes")["payload"], sample("s/bytes")["hex"]) == (None, "ff00")
    assert (sample("s/long")["payload"], sample("s/long")["hex"]) == (None, None)
    assert len(str(sample("s/long")["last_payload"])) < 300
    assert documents.http.get("/api/unmapped", params={"topic": "s/none"}).status_code == 404


def test_an_empty_message_is_a_sample_too():
    topics = UnmappedTopics(5)
    topics.add("s/empty", b"", datetime.now(UTC))
    found = topics.sample("s/empty")
    assert found is not None
    assert (found["payload"], found["hex"]) == ("", "")


NEWER = GOOD.replace("Box", "Crate")


@pytest.mark.parametrize("path", ["/api/mappings/box", "/api/rules/box", "/api/queries/box"])
def test_a_document_is_changed_only_if_it_has_the_entity_tag_of_the_request(documents, path):
    texts = {
        "mappings": (GOOD, NEWER),
        "rules": ('property = "urn:a"\nabove = 1\n', 'property = "urn:a"\nabove = 2\n'),
        "queries": ("SELECT * { ?s ?p 1 }", "SELECT * { ?s ?p 2 }"),
    }
    first, second = texts[path.split("/")[2]]
    http, media = documents.http, "application/sparql-query" if "queries" in path else "text/plain"

    def put(text: str, **conditions: str) -> httpx.Response:
        names = {name.replace("_", "-"): value for name, value in conditions.items()}
        return http.put(path, content=text, headers={"Content-Type": media, **names})

    assert put(first, If_Match='"0"').status_code == 412
    assert http.get(path).status_code == 404
    created = put(first, If_None_Match="*")
    assert created.status_code == 200
    tag = created.headers["etag"]
    assert http.get(path).headers["etag"] == tag
    assert http.get(path, headers={"If-None-Match": tag}).status_code == 304
    refused = put(second, If_None_Match="*")
    assert (refused.status_code, refused.json()["error"]) == (412, "precondition_failed")
    newer = put(second, If_Match=f'"0", {tag}').headers["etag"]
    assert newer != tag
    refused = put(first, If_Match=tag)
    assert refused.status_code == 412
    assert refused.json()["error_description"].startswith("The document has another entity tag than If-Match")
    assert http.delete(path, headers={"If-Match": tag}).status_code == 412
    assert http.get(path).text == second
    assert put(first, If_Match="tag").status_code == 400
    assert http.delete(path, headers={"If-Match": newer}).status_code == 200
    assert put(first, If_Match="*").status_code == 412


def test_the_entity_tag_of_a_written_document_is_that_of_the_text_that_is_read(documents):
    """A file with other line ends is read with those of this system."""
    written = documents.write("box", GOOD.replace("\n", "\r\n")).headers["etag"]
    assert documents.http.get("/api/mappings/box").headers["etag"] == written


def test_of_clients_that_save_at_the_same_time_one_is_first(documents):
    tag = documents.write("box", GOOD).headers["etag"]
    headers = {"Content-Type": "text/plain", "If-Match": tag}

    def save(number: int) -> int:
        return documents.http.put(
            "/api/mappings/box", content=GOOD.replace("Box", f"Box {number}"), headers=headers
        ).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(save, range(8))) == [200] + [412] * 7


@pytest.mark.parametrize("query", ["", "topic=%2Ba", "topic=" + "x" * 1001])
def test_a_topic_filter_is_checked(documents, query):
    assert documents.http.get(f"/api/newest-message?{query}").status_code == 400


def test_the_newest_message_of_a_mapped_topic_is_shown_while_it_is_watched(documents):
    documents.write("box", GOOD)
    assert documents.http.get("/api/newest-message?topic=garage/%2B").status_code == 204
    publish_to(documents.endpoints["mqtt"], [("garage/box", "1"), ("garage/box", bytes([0, 200])), ("shed/box", "2")])
    wait_for(lambda: documents.http.get("/api/newest-message?topic=garage/%2B").text.endswith('"00c8"}'))
    found = documents.http.get("/api/newest-message?topic=garage/%2B").json()
    assert found == {"topic": "garage/box", "payload": None, "hex": "00c8"}
