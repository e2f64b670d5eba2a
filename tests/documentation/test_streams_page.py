"""The examples, the syntax and the time lines of the page about streams."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pyoxigraph as ox
import pytest
from page import DOCS, blocks

from edge.streams import language
from edge.streams.model import Element
from edge.streams.windows import make_window
from tests.support.processes import GatewayProcess, free_port

PAGE = "streams.md"
TEXT = (DOCS / PAGE).read_text("utf-8")
SECOND = 1_000_000
LINES = re.findall(r"^(\[.*?\](?: ON \w+| NON EMPTY| EVERY 8s)?) +(\d+: .*)$", TEXT, re.MULTILINE)
TIMES = {"a": 1, "b": 4, "c": 8, "d": 12}


@pytest.mark.parametrize("number", [0, 1])
def test_the_queries_of_the_page_are_valid(number):
    text = [block.text for block in blocks(PAGE) if block.language == "sparql"][number]
    assert language.parse(text).language == ("C-SPARQL", "RSP-QL")[number]


def test_the_syntax_of_the_page_is_that_of_the_parsers():
    rules = [line.strip() for line in (language.__doc__ or "").splitlines() if line.startswith("    ")]
    assert len(rules) > 15
    page = [line.strip() for line in TEXT.splitlines()]
    assert [rule for rule in rules if rule and rule not in page] == []


@pytest.mark.parametrize(("window", "reports"), LINES)
def test_the_time_lines_of_windows_are_right(window, reports):
    text = window.replace("..:00Z", "1970-01-01T00:00:00Z")
    query = language.parse(
        f"REGISTER RSTREAM <urn:q> AS ASK FROM NAMED WINDOW <urn:w> ON <urn:s> {text} {{ WINDOW <urn:w> {{}} }}"
    )
    running = make_window(query.windows[0].definition, 0)
    triples = tuple(ox.Triple(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), ox.Literal(each)) for each in (1, 2))
    waiting = [Element(time * SECOND, number, triples) for number, time in enumerate(TIMES.values(), 1)]
    found = []
    last = max(int(time) for time in re.findall(r"(\d+):", reports))
    for now in range(last + 1):
        while waiting and waiting[0].time <= now * SECOND:
            running.take(waiting.pop(0))
        for slide in running.slides(now * SECOND):
            if slide.report:
                names = " ".join(list(TIMES)[each.number - 1] for each in sorted(running.content))
                found.append(f"{slide.time // SECOND}: {names or 'nothing'}")
    assert found == re.split(r"\s{2,}", reports.strip())


def test_there_are_time_lines_of_all_windows_and_policies():
    assert len(LINES) == 10


def test_the_quick_start_works(tmp_path):
    first, second, third = (block.text for block in blocks(PAGE) if block.language == "sh")
    gateway = GatewayProcess(tmp_path / "data", {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"})
    url, port = gateway.start()["http"], str(free_port())

    def adapted(text: str) -> str:
        return (
            text.replace("http://localhost:8000", url)
            .replace("curl ", "curl -sSf --retry-connrefused ")
            .replace("8099", port)
        )

    try:
        done = subprocess.run(["bash", "-ec", adapted(first)], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.count('"') == 6
        observer = subprocess.Popen(
            ["bash", "-ec", f"export PYTHONUNBUFFERED=1\n{adapted(second)}\nwait"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            assert observer.stdout is not None
            # An empty window reports, too: then the observer waits for an element.
            for line in observer.stdout:
                if '"bindings":[{' in line:
                    break
                if "observers" in line:
                    subprocess.run(["bash", "-ec", adapted(first.splitlines()[-1])], capture_output=True, check=True)
            assert "21.5" in line
            done = subprocess.run(["bash", "-ec", adapted(third)], capture_output=True, text=True, check=True)
            assert "/queries/warm/observers/" in done.stdout
        finally:
            os.killpg(observer.pid, signal.SIGKILL)
            observer.wait()
            observer.stdout.close()
    finally:
        gateway.stop()
