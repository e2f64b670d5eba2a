"""The compliance page: each named test and setting exists, its share is computed, and its own claims hold."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from edge.config.models import Settings
from edge.config.problem_messages import fields

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compliance.md"
KINDS = {"technical", "process", "operator", "none"}
STATES = {"technical": {"met", "partly", "not met"}, "process": {"met", "partly", "not met"}}
LAST = {"5.1": 5, "5.2": 3, "5.3": 16, "5.4": 4, "5.5": 8, "5.6": 9, "5.7": 2, "5.8": 3, "5.9": 3, "5.10": 1}
LAST |= {"5.11": 4, "5.12": 3, "5.13": 1, "6": 8}
"""Number of the last provision of each section of EN 303 645 V3.1.3, table B.1."""
LETTERS = {"5.1-2": ("", "A"), **dict.fromkeys(["5.3-4", "5.3-6", "5.3-15", "5.6-4", "5.13-1", "6-3"], ("A", "B"))}
"""Provisions whose numbers have letters."""
REVIEWED = {"cryptography", "jwt", "ssl", "hashlib", "hmac", "secrets", "aiocoap"}
HOME_MADE = {"random", "Crypto", "Cryptodome", "nacl", "rsa", "ecdsa", "OpenSSL"}


class Row(NamedTuple):
    provision: str
    subject: str
    kind: str
    state: str
    evidence: str

    def tests(self) -> list[str]:
        return re.findall(r"`(tests/[^`]+)`", self.evidence)


def rows() -> list[Row]:
    found = re.findall(r"^\| ((?:5\.|6-|II? \().*) \|$", PAGE.read_text(), re.MULTILINE)
    return [Row(*(cell.strip() for cell in line.split("|"))) for line in found]


@functools.cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_provision_is_there_once():
    numbers = [f"{section}-{number}" for section, last in LAST.items() for number in range(1, last + 1)]
    etsi = ["5.0-1", *(number + letter for number in numbers for letter in LETTERS.get(number, [""]))]
    act = ["I (1)", *(f"I (2)({letter})" for letter in "abcdefghijklm"), *(f"II ({number})" for number in range(1, 9))]
    assert [row.provision for row in rows()] == etsi + act


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.provision)
def test_evidence_exists(row):
    assert row.kind in KINDS
    assert row.state in STATES.get(row.kind, {""})
    for test in row.tests():
        file, _, name = test.partition("::")
        assert name in functions(file), test
    for key in re.findall(r"`([a-z_]+\.[a-z_]+)`", row.evidence):
        assert key in fields(), key
    if row.kind == "technical" and row.state != "not met":
        assert row.tests(), "a technical property needs a test"
    if row.state == "not met":
        assert row.tests() == []
    without_tests = re.sub(r"`tests/[^`]+`", "", row.evidence)
    if row.state in ("partly", "not met") or row.kind != "technical":
        assert re.search(r"\w{3}", without_tests), "the reason, or the duty, is missing"


def test_the_share_is_that_of_the_tables():
    technical = [row for row in rows() if row.kind == "technical"]
    tested = [row for row in technical if row.tests()]
    met = [row for row in tested if row.state == "met"]
    share = len(tested) / len(technical)
    sentence = (
        f"**{len(tested)} of {len(technical)} technical provisions ({share:.0%}) have tests that CI runs. "
        f"{len(met)} ({len(met) / len(technical):.0%}) are met in full, "
        f"{len(tested) - len(met)} partly, and {len(technical) - len(tested)} are not met.**"
    )
    assert sentence in PAGE.read_text().replace("\n", " ")
    assert share >= 0.9


def test_the_sources_contain_no_private_key():
    key = re.compile(r"PRIVATE KEY-----\s*(?:\\n)?[A-Za-z0-9+/]{40}")
    found = [
        str(path.relative_to(ROOT))
        for name in ("edge", "spark_offload", "images", "systemd", "examples", ".ci")
        for path in sorted((ROOT / name).rglob("*"))
        if path.is_file() and key.search(path.read_text(errors="replace"))
    ]
    assert found == []


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_cryptography_comes_from_reviewed_libraries():
    used = {name for file in (ROOT / "edge" / "security").rglob("*.py") for name in imported(file)}
    assert used & REVIEWED >= {"cryptography", "jwt", "secrets"}
    assert used & HOME_MADE == set()
    packages = [ROOT / "edge", ROOT / "spark_offload"]
    everywhere = {name for package in packages for file in package.rglob("*.py") for name in imported(file)}
    assert everywhere & HOME_MADE <= {"random"}, "other packages use it for waits, samples and RAND() of SPARQL"


def test_images_enable_only_the_documented_units():
    directory = ROOT / "images" / "system" / "etc" / "systemd" / "system-preset"
    lines = [line for file in sorted(directory.iterdir()) for line in file.read_text().splitlines()]
    documented = {
        *("edge.service", "edge-start.service", "edge-health.service", "edge-good.service", "edge-broker-tls.path"),
        *("edge-update.path", "mosquitto.service", "ssh.service", "systemd-networkd.service"),
        *("systemd-resolved.service", "systemd-timesyncd.service", "getty@tty1.service", "serial-getty@.service"),
        "boot-complete.target",
    }
    assert {line.removeprefix("enable ") for line in lines if line.startswith("enable ")} == documented
    assert lines[-1] == "disable *", "all other units are disabled"


def test_the_service_has_protected_memory():
    unit = (ROOT / "systemd" / "edge.service").read_text().splitlines()
    assert "MemoryDenyWriteExecute=yes" in unit


def test_default_settings_name_no_remote_address():
    """A new gateway sends nothing to another machine, unless the operator names it."""
    settings = Settings()
    address = re.compile(r"[a-z]+://(?!127\.0\.0\.1|localhost|\[::1\])")
    remote = {
        key for key, field in fields().items() if address.search(str(field.get_default(call_default_factory=True)))
    }
    assert remote == set()
    assert (settings.offload.to, settings.mqtt.broker, settings.issuer.url) == ("", "", "")
