"""The profile of an application over the HTTP interface: its entries, and their texts with values."""

from __future__ import annotations

import json

import httpx
import pytest

from edge.config import Settings
from edge.gateway import Gateway
from edge.jsap import Profile

CHAT = """\
namespaces: {schema: http://schema.org/}
updates:
  SEND:
    sparql: INSERT DATA { ?message schema:text ?text ; schema:age ?age }
    forcedBindings:
      message: {type: uri}
      text: {type: literal, language: en, value: Hello}
      age: {type: literal, datatype: xsd:integer}
queries:
  SENT:
    sparql: SELECT ?text { ?message schema:text ?text }
    forcedBindings: {message: {type: uri}}
"""


@pytest.fixture
async def http(tmp_path):
    port, off = {"port": 0}, {"enabled": False}
    settings = {"data_dir": tmp_path / "data", "http": port, "ws": port, "mqtt": off, "host": off}
    async with (
        Gateway(Settings.model_validate(settings)) as gateway,
        httpx.AsyncClient(base_url=gateway.endpoints["http"], timeout=20) as http,
    ):
        yield http


async def ask(http, **members):
    body = json.dumps({"text": CHAT, "name": "chat.yaml", **members})
    answer = await http.post("/api/profile", content=body, headers={"Content-Type": "application/json"})
    return answer.status_code, answer.json()


async def test_entries_are_listed_with_their_variables(http):
    status, found = await ask(http)
    assert status == 200
    assert [(entry["kind"], entry["name"]) for entry in found["entries"]] == [("query", "SENT"), ("update", "SEND")]
    _, send = found["entries"]
    assert [variable["name"] for variable in send["variables"]] == ["message", "text", "age"]
    assert send["variables"][1] == {
        "name": "text",
        "type": "literal",
        "datatype": None,
        "language": "en",
        "default": "Hello",
    }
    assert send["variables"][2]["datatype"] == "http://www.w3.org/2001/XMLSchema#integer"


async def test_the_text_with_values_is_that_of_the_library(http):
    bindings = {"message": "schema:m1", "age": 7}
    status, found = await ask(http, kind="update", entry="SEND", bindings=bindings)
    assert status == 200
    assert found["sparql"] == Profile.parse(CHAT, "chat.yaml").update("SEND").text(bindings)
    answer = await http.post("/update", data={"update": found["sparql"]})
    assert answer.json()["added"] == 2


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"kind": "update", "entry": "SEND", "bindings": {"message": "schema:m1"}}, "needs a value for ?age"),
        ({"kind": "update", "entry": "SEND", "bindings": {"message": "schema:m1", "age": []}}, "?age"),
        ({"kind": "query", "entry": "SEND"}, 'no query "SEND"; there are: SENT'),
        ({"kind": "query", "entry": "SENT", "bindings": {"message": "m1", "more": 1}}, "?more"),
        ({"kind": "query", "entry": "SENT", "bindings": {"message": {"type": "uri"}}}, "?message"),
        ({"kind": "remove", "entry": "SENT"}, '"kind"'),
        ({"text": "updates: {A: {sparql: INSERT}}"}, "chat.yaml:1:"),
        ({"text": "{", "name": "chat.json"}, "chat.json:1:"),
        ({"text": 7}, "Send an object"),
        ({"text": "\ud800"}, "surrogate"),
        ({"bindings": []}, "Send an object"),
        ({"text": "include: /etc/passwd"}, "no files can be included"),
        ({"text": '{"include": ["other.jsap"]}', "name": "a.jsap"}, "no files can be included"),
        ({"name": "/etc/../a.yaml", "text": "include: b"}, "a.yaml:1:"),
    ],
)
async def test_problems_are_reported(http, members, reason):
    status, found = await ask(http, **members)
    assert (status, found["error"]) == (400, "invalid_request")
    assert reason in found["error_description"]


async def test_other_bodies_are_refused(http):
    assert (await http.post("/api/profile", content=json.dumps({"text": CHAT}))).status_code == 415
    assert (await http.post("/api/profile", json={"text": " " * 300_000})).status_code == 413
    assert (await http.post("/api/profile", json=[])).status_code == 400
