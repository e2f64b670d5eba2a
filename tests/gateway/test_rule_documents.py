"""Rules over the HTTP interface: checked, tried on recent values, applied at once, and kept over a kill."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

RULE = """\
label = "Damp"
observation = "urn:sepa-edge:cellar"
above = 70
update = "INSERT { ?observation <urn:was> ?value } WHERE {}"
end_update = "INSERT { ?observation <urn:ended> ?value } WHERE {}"
"""
SITUATIONS = "SELECT ?label { GRAPH <urn:sepa-edge:automation> { ?s rdfs:label ?label } }"
MAPPING = """\
[[mapping]]
topic = "house/{name}"
observation = "edge:{name}"
property = "edge:property:humidity"
"""


class Ruled:
    """A gateway with one mapping."""

    def __init__(self, directory) -> None:
        (directory / "mappings").mkdir()
        (directory / "mappings" / "house.toml").write_text(MAPPING)
        ports = {f"EDGE__{name}__PORT": str(free_port()) for name in ("HTTP", "WS", "MQTT", "COAP")}
        self.process = GatewayProcess(directory, {**ports, "EDGE__HOST__ENABLED": "false"})
        self.directory = directory
        self.start()

    def start(self) -> None:
        self.http = httpx.Client(base_url=self.process.start()["http"], timeout=30)

    def close(self) -> None:
        self.http.close()
        self.process.stop()

    def write(self, name: str, text: str) -> httpx.Response:
        return self.http.put(f"/api/rules/{name}", content=text)

    def test(self, **members: object) -> httpx.Response:
        return self.http.post("/api/rule-test", json=members)

    def listed(self, name: str) -> dict:
        return next(each for each in self.http.get("/api/rules").raise_for_status().json() if each["name"] == name)

    def publish(self, name: str, value: object) -> None:
        """Send a value over the engine's own way for readings, and wait until the graph has it."""
        text = (
            "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
            f"DELETE {{ ?r qudt:numericValue ?old }} INSERT {{ <urn:sepa-edge:{name}> a sosa:Observation ; "
            f"sosa:observedProperty <urn:sepa-edge:property:humidity> ; sosa:hasResult <urn:{name}/r> . "
            f"<urn:{name}/r> qudt:numericValue {value} }} WHERE {{ OPTIONAL {{ <urn:{name}/r> qudt:numericValue ?old . "
            f"BIND(<urn:{name}/r> AS ?r) }} }}"
        )
        self.http.post("/update", data={"update": text}).raise_for_status()

    def ask(self, select: str) -> list[str]:
        text = f"PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> {select}"
        answer = self.http.get("/query", params={"query": text}).raise_for_status().json()
        (variable,) = answer["head"]["vars"]
        return sorted(each[variable]["value"] for each in answer["results"]["bindings"])


@pytest.fixture
def ruled(tmp_path):
    ruled = Ruled(tmp_path)
    yield ruled
    ruled.close()


def test_a_rule_is_written_applied_changed_and_deleted(ruled):
    assert ruled.http.get("/api/rules").json() == []
    ruled.publish("cellar", 80)
    assert ruled.write("damp", RULE).json() == {"written": {"name": "damp"}}
    assert ruled.http.get("/api/rules/damp").text == RULE
    wait_for(lambda: ruled.ask(SITUATIONS) == ["Damp"])
    assert ruled.ask("SELECT ?v { ?o <urn:was> ?v }") == ["80"]
    listed = ruled.listed("damp")
    assert (listed["label"], listed["enabled"], listed["fault"], listed["has_previous"]) == ("Damp", True, None, False)
    assert (listed["active"], listed["begun"]) == (1, 1)
    assert listed["keys"]["above"] == 70
    assert listed["last_begin"] is not None
    ruled.publish("cellar", 60)
    wait_for(lambda: ruled.ask("SELECT ?v { ?o <urn:ended> ?v }") == ["80"])
    assert ruled.ask(SITUATIONS) == []
    ruled.publish("cellar", 80)
    wait_for(lambda: ruled.ask(SITUATIONS) == ["Damp"])
    assert ruled.http.delete("/api/rules/damp").json() == {"deleted": {"name": "damp"}}
    assert ruled.ask(SITUATIONS) == []
    assert ruled.http.get("/api/rules/damp").status_code == 404
    assert ruled.http.get("/api/rules/damp", params={"previous": "true"}).text == RULE


def test_a_rule_with_a_mistake_is_refused_with_its_place(ruled):
    answer = ruled.write("damp", RULE.replace("above", "abov"))
    assert answer.status_code == 400
    assert "line 3: abov: Unknown key. Did you mean above?" in answer.json()["error_description"]
    answer = ruled.write("damp", RULE.replace("INSERT { ?obs", "INSERTT { ?obs"))
    assert answer.status_code == 400
    assert "line 4: update" in answer.json()["error_description"]
    assert ruled.write("damp", 'query = "SELECT ?s { SERVICE <urn:x> { ?s ?p ?o } }"').status_code == 400
    assert ruled.write("-", RULE).status_code == 400
    assert ruled.write("damp", "x" * 70_000).status_code in (400, 413)
    assert ruled.http.put("/api/rules/damp", content=RULE, headers={"Content-Type": "text/html"}).status_code == 415
    assert ruled.http.get("/api/rules").json() == []


def test_a_file_of_the_operator_applies_and_its_fault_is_reported(ruled):
    rules = ruled.directory / "rules"
    (rules / "damp.toml").write_text(RULE)
    ruled.publish("cellar", 80)
    wait_for(lambda: ruled.ask(SITUATIONS) == ["Damp"])
    (rules / "damp.toml").write_text(RULE + "[[")
    wait_for(lambda: ruled.listed("damp")["fault"])
    (fault,) = ruled.http.get("/health").json()["rule_faults"]
    assert fault["file"].endswith("damp.toml")
    assert ruled.ask(SITUATIONS) == ["Damp"]  # the last valid version applies
    assert "edge_rule_faults 1" in ruled.http.get("/metrics").text
    (rules / "damp.toml").unlink()
    wait_for(lambda: ruled.ask(SITUATIONS) == [])


def test_a_rule_is_tried_on_the_recent_values(ruled):
    for value in (60, 80, 75, 60, 90):
        ruled.publish("cellar", value)
        ruled.publish("attic", 99)
        time.sleep(0.02)  # values of the same 10 ms are one
    result = ruled.test(text=RULE, hours=1).raise_for_status().json()
    assert (result["faults"], result["values"], result["count"], result["failures"]) == ([], 5, 2, 0)
    first, second = result["occurrences"]
    assert first["solution"] == {"observation": "urn:sepa-edge:cellar", "value": "80"}
    assert first["began"] < first["ended"] < second["began"] < result["end"]
    assert second["ended"] is None
    everywhere = RULE.replace('observation = "urn:sepa-edge:cellar"', 'property = "edge:property:humidity"')
    assert ruled.test(text=everywhere, hours=1).json()["count"] == 3
    pattern = "?r <http://qudt.org/1.1/schema/qudt#numericValue> ?v . ?o sosa:hasResult ?r FILTER(?v > 85)"
    query = f'query = "SELECT ?o {{ {pattern} }}"'
    assert ruled.test(text=query).json()["count"] == 2
    assert ruled.ask("SELECT ?v { ?o <urn:was> ?v }") == []
    assert ruled.http.get("/api/rules").json() == []


def test_a_dry_run_reports_faults_with_their_lines(ruled):
    result = ruled.test(text=RULE.replace("above = 70", "above = 'much'")).json()
    assert result == {"faults": [{"line": 3, "text": "line 3: above: It must be a number."}]}
    result = ruled.test(text=RULE.replace("INSERT { ?obs", "INSERTT { ?obs")).json()
    assert result["faults"][0]["line"] == 4
    assert ruled.test(text=RULE, hours=1).json()["values"] == 0
    for wrong in (
        {"text": 1},
        {},
        {"text": RULE, "hours": 0},
        {"text": RULE, "hours": "x"},
        {"text": RULE, "hours": 1e9},
    ):
        assert ruled.test(**wrong).status_code == 400
    assert ruled.http.post("/api/rule-test", content="[" * 100_000).status_code == 400


def test_a_kill_neither_loses_nor_repeats_an_answer(ruled):
    counting = RULE.replace("<urn:was> ?value } WHERE {}", "<urn:was> ?t } WHERE { BIND(NOW() AS ?t) }")
    ruled.write("damp", counting)
    ruled.write("late", counting.replace("above = 70", 'above = 70\nfor = "PT2S"').replace("<urn:was>", "<urn:late>"))
    for begun in range(1, 5):
        ruled.publish("cellar", 80)
        if begun % 2:
            wait_for(lambda: ruled.ask(SITUATIONS))
        ruled.process.kill()
        ruled.http.close()
        ruled.start()
        wait_for(lambda: len(ruled.ask(SITUATIONS)) == 2)
        wait_for(lambda: ruled.listed("late")["active"] == 1)
        assert len(ruled.ask("SELECT ?t { ?o <urn:was> ?t }")) == begun
        assert len(ruled.ask("SELECT ?t { ?o <urn:late> ?t }")) == begun
        ruled.publish("cellar", 10)
        wait_for(lambda: ruled.ask(SITUATIONS) == [])


def test_odd_files_are_reported_and_do_not_stop_the_others(ruled):
    rules = ruled.directory / "rules"
    (rules / "nowhere.toml").symlink_to("/nonexistent")
    (rules / "loop.toml").symlink_to("loop.toml")
    (rules / "a b.toml").write_text(RULE)
    (rules / "directory.toml").mkdir()
    (rules / "bytes.toml").write_bytes(b"\xff")
    ruled.publish("cellar", 80)
    assert ruled.write("damp", RULE).status_code == 200
    wait_for(lambda: ruled.ask(SITUATIONS) == ["Damp"])
    faults = {fault["file"].rpartition("/")[2] for fault in ruled.http.get("/health").json()["rule_faults"]}
    assert faults == {"loop.toml", "a b.toml", "directory.toml", "bytes.toml"}
    assert ruled.write("long", f"# {'x' * 70_000}\n{RULE}").status_code == 413


def test_the_last_rule_deleted_while_the_gateway_is_stopped_ends(ruled):
    ruled.publish("cellar", 80)
    ruled.write("damp", RULE)
    wait_for(lambda: ruled.ask(SITUATIONS) == ["Damp"])
    ruled.process.stop()
    (ruled.directory / "rules" / "damp.toml").unlink()
    ruled.http.close()
    ruled.start()
    wait_for(lambda: ruled.ask(SITUATIONS) == [])


def test_a_slow_dry_run_holds_up_neither_the_list_nor_another_one(ruled):
    endless = (
        'query = "SELECT ?n { <urn:c> <urn:n> ?n }"\n'
        'update = "DELETE { <urn:c> <urn:n> ?n } INSERT { <urn:c> <urn:n> ?m } WHERE { BIND(?n + 1 AS ?m) }"'
    )
    ruled.http.post("/update", data={"update": "INSERT DATA { <urn:c> <urn:n> 1 }"}).raise_for_status()

    def slow() -> int:
        """Wait for a dry run that takes seconds; begin again while another one runs."""
        while True:
            url, body = f"{ruled.http.base_url}/api/rule-test", {"text": endless, "hours": 0.3}
            answer = httpx.post(url, json=body, timeout=60)
            if answer.status_code != 429:
                return answer.status_code

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(slow)
        wait_for(lambda: ruled.test(text=RULE, hours=1).status_code == 429)
        assert ruled.http.get("/api/rules").status_code == 200
        assert answer.result() == 200
    assert ruled.test(text=RULE, hours=1).status_code == 200
