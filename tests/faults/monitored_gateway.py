"""A gateway in a separate process, observed from outside: its reports, and its resource usage."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import psutil

from tests.support.processes import GatewayProcess


@dataclass(frozen=True)
class Usage:
    """The resource usage of a process."""

    memory: int
    """Resident bytes."""
    descriptors: int
    threads: int


class Watched:
    """A running gateway."""

    def __init__(self, process: GatewayProcess) -> None:
        self.process = process
        self.endpoints = process.start()

    def port(self, service: str) -> int:
        return int(re.search(r":(\d+)", self.endpoints[service].partition("//")[2])[1])

    def ask(self, path: str, **form: str) -> tuple[int, dict[str, Any]]:
        """Send a GET, or a POST of a form; return status and body."""
        body = urlencode(form).encode() if form else None
        try:
            with urllib.request.urlopen(self.endpoints["http"] + path, body, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def update(self, sparql: str) -> dict[str, Any]:
        status, answer = self.ask("/update", update=sparql)
        assert status == 200, answer
        return answer

    def values(self, query: str) -> list[str]:
        """Return the sorted values of the first variable."""
        status, answer = self.ask("/query", query=query)
        assert status == 200, answer
        name = answer["head"]["vars"][0]
        return sorted(row[name]["value"] for row in answer["results"]["bindings"])

    def metric(self, name: str, gate: str = "") -> float:
        """Return the value of a metric, or 0 without one."""
        return value_of(self.metrics(), name, gate)

    def metrics(self) -> str:
        """Return all metrics, in the format of Prometheus."""
        with urllib.request.urlopen(self.endpoints["http"] + "/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def usage(self) -> Usage:
        process = psutil.Process(self.process.pid)
        with process.oneshot():
            return Usage(process.memory_info().rss, process.num_fds(), process.num_threads())

    def processor(self) -> float:
        """Return the processor time so far, in seconds."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


def value_of(metrics: str, name: str, gate: str = "") -> float:
    """Return the value of one of the metrics, or 0 without it."""
    label = re.escape(f'{{gate="{gate}"}}') if gate else ""
    found = re.search(rf"^{name}{label} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0
