"""The examples of the page about notifications, and a notification that a killed gateway had confirmed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from page import blocks

from tests.support.processes import GatewayProcess
from tests.support.stream_client import StreamGateway
from tests.support.waiting import wait_for

PAGE = "notifications.md"
QUERY = "REGISTER QUERY q AS SELECT ?o FROM STREAM <urn:edge:stream:s> [RANGE 1h STEP 1h] { ?s <urn:p> ?o }"
RISEN = """REGISTER ISTREAM <urn:risen> AS CONSTRUCT { ?s <urn:q> ?o }
FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [RANGE 100ms STEP 100ms] WHERE { WINDOW <urn:w> { ?s <urn:p> ?o } }"""
SETTINGS = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    process = GatewayProcess(tmp_path_factory.mktemp("notifications") / "data", SETTINGS)
    yield process
    process.stop()


def test_the_examples_work_and_a_confirmed_notification_survives_a_crash(gateway):
    shell = next(block.text for block in blocks(PAGE) if block.language == "sh")
    url = gateway.start()["http"]
    commands = shell.replace("http://localhost:8000", url).replace("curl ", "curl -sSf ")
    done = subprocess.run(["bash", "-ec", commands], capture_output=True, text=True, timeout=60, check=True)
    httpx.put(f"{url}/streams/s", trust_env=False).raise_for_status()
    httpx.put(f"{url}/queries/q", content=QUERY, trust_env=False).raise_for_status()
    found = httpx.get(f"{url}/queries/q", trust_env=False).links["http://www.w3.org/ns/ldp#inbox"]["url"]
    assert httpx.get(url + found, trust_env=False).json()["contains"] == []
    gateway.kill()
    link = re.search(r"^link: <(.*?)>; rel=\"http://www.w3.org/ns/ldp#inbox\"", done.stdout, re.MULTILINE)
    location = re.search(r"^location: (\S+)", done.stdout, re.MULTILINE)
    assert link is not None
    assert location is not None
    assert location[1] == f"{url}{link[1]}&notification={location[1][-36:]}"
    assert done.stdout.endswith(f'"contains": ["{location[1]}"]}}')
    path = location[1].removeprefix(url)
    again = gateway.start()["http"]
    with httpx.Client(base_url=again, trust_env=False) as http:
        assert http.get(link[1]).json()["contains"] == [again + path]
        answer = http.get(path)
        assert (answer.status_code, "The lamp was moved" in answer.text) == (200, True)
        # Relative IRIs became the URL of the first request.
        assert answer.json()[0]["@id"] == location[1]
        sparql = next(block.text for block in blocks(PAGE) if block.language == "sparql")
        found = http.get("/query", params={"query": sparql}).json()["results"]["bindings"]
        assert {each["s"]["value"] for each in found} == {location[1]}


def test_the_operator_admits_a_sender_and_a_consumer(tmp_path):
    commands = [block.text for block in blocks(PAGE) if block.language == "sh"][1].replace("\\\n", " ").splitlines()
    edge = str(Path(sys.executable).with_name("edge"))
    for command in (*commands, "edge clients list"):
        arguments = [edge, *shlex.split(command)[1:], "--data-dir", str(tmp_path)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    inbox = "urn:edge:inbox:graph:urn%3Afloor-plan"
    listed = " ".join(done.stdout.split())
    assert f"may query, update; sees {inbox}, urn:floor-plan; changes {inbox};" in listed
    assert f"may update; sees none; changes {inbox};" in listed


def test_an_observer_sends_to_the_inbox_of_a_target_and_to_an_inbox(tmp_path):
    gateway = StreamGateway(tmp_path / "data")
    try:
        url = gateway.endpoints["http"]
        gateway.ok("PUT", "/streams/s")
        gateway.ok("PUT", "/queries/urn%3Arisen", RISEN)
        gateway.send("PUT", "/graph-store?graph=urn:floor-plan", "<urn:lamp> <urn:room> <urn:hall> .", "text/turtle")
        command = [block.text for block in blocks(PAGE) if block.language == "sh"][2]
        command = command.replace("http://localhost:8000", url).replace("curl ", "curl -sSf ")
        subprocess.run(["bash", "-ec", command], capture_output=True, timeout=60, check=True)
        gateway.observe("urn:risen", f"{url}/inbox?query=urn%3Arisen")
        gateway.add("s", "<urn:a> <urn:p> 1")
        for inbox, count in (("/inbox?graph=urn%3Afloor-plan", 2), ("/inbox?query=urn%3Arisen", 1)):
            sent = wait_for(lambda inbox=inbox: gateway.ok("GET", inbox)["contains"], "the report")
            subjects = {each["@id"] for each in gateway.ok("GET", sent[0])}
            assert len(subjects) == count
            assert "urn:a" in subjects
    finally:
        gateway.close()
