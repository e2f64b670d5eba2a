"""The examples of the page about the event stream."""

from __future__ import annotations

import subprocess

import httpx
import pyoxigraph as ox
from page import DOCS, blocks

from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

PAGE = "ldes.md"
VALUE = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
INSERT DATA { <http://example.org/attic> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 21.5 }"""


def predicates(content, **options):
    return {quad.predicate.value for quad in ox.parse(content, ox.RdfFormat.TURTLE, **options)}


def test_the_commands_work_and_members_have_the_form_of_the_page(tmp_path):
    shell, example = (next(block.text for block in blocks(PAGE) if block.language == each) for each in ("sh", "turtle"))
    settings = {"MQTT__ENABLED": "false", "HOST__ENABLED": "false", "RECENT__FLUSH_INTERVAL": "1"}
    gateway = GatewayProcess(tmp_path / "data", {f"EDGE__{name}": value for name, value in settings.items()})
    try:
        url = gateway.start()["http"]
        httpx.post(f"{url}/update", data={"update": VALUE}, trust_env=False).raise_for_status()
        commands = shell.replace("http://localhost:8000", url).replace("curl ", "curl -sSf ")
        section = wait_for(lambda: links(run(commands)), what="the value is stored")[0]
        page = links(httpx.get(section, trust_env=False, headers={"Accept": "application/n-triples"}).text)[0]
        content = httpx.get(page, trust_env=False).text
    finally:
        gateway.stop()
    declared = "\n".join(line for line in content.splitlines() if line.startswith("@prefix"))
    expected = predicates(f"{declared}\n{example}")
    assert {each for each in predicates(content) if "w3id.org" not in each} == expected
    assert "ldes.md" in (DOCS / "README.md").read_text()


def run(commands):
    return subprocess.run(["bash", "-ec", commands], capture_output=True, text=True, timeout=60, check=True).stdout


def links(triples):
    lines = (line.split() for line in triples.splitlines() if "tree#node>" in line)
    return [line[2].strip("<>") for line in lines]
