"""Gateways that may send segments: their file and its command."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_offload.cli import edge_history
from spark_offload.errors import GatewayRefused
from spark_offload.gateways import Gateways


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(edge_history, ["gateways", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_token_is_printed_once_and_is_in_no_file(tmp_path: Path) -> None:
    file = tmp_path / "gateways.json"
    token = run("add", "street-7", "--tokens", file).strip()
    assert len(token) >= 43
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Gateways(file).whose(token) == "street-7"
    assert [path.name for path in tmp_path.iterdir()] == ["gateways.json"]


def test_gateways_are_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "gateways.json"
    assert run("list", "--tokens", file) == ""
    tokens = {name: run("add", name, "--tokens", file).strip() for name in ("b", "a")}
    assert [line.split()[0] for line in run("list", "--tokens", file).splitlines()] == ["a", "b"]
    gateways = Gateways(file)
    assert gateways.whose(tokens["a"]) == "a"
    run("remove", "a", "--tokens", file)
    assert gateways.whose(tokens["a"]) is None, "changes are noticed"
    assert gateways.whose(tokens["b"]) == "b"
    assert len(set(tokens.values())) == 2


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "quarantine", "a b", "a\n", "x" * 65])
def test_names_that_no_gateway_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(GatewayRefused, match="is not a valid gateway name"):
        Gateways(tmp_path / "gateways.json").add(name)
    assert list(tmp_path.iterdir()) == []


def test_impossible_operations_are_reported(tmp_path: Path) -> None:
    gateways = Gateways(tmp_path / "gateways.json")
    gateways.add("a")
    with pytest.raises(GatewayRefused, match="gateways remove a"):
        gateways.add("a")
    with pytest.raises(GatewayRefused, match="has no gateway b"):
        gateways.remove("b")
    with pytest.raises(GatewayRefused, match="make the directory"):
        Gateways(tmp_path / "nowhere" / "gateways.json").add("a")


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema":1}', '{"schema":2,"gateways":{}}', '{"schema":1,"gateways":{"a":{"sha256":"é","since":""}}}'],
)
def test_a_damaged_file_admits_no_gateway(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gateways.json"
    file.write_text(text)
    with pytest.raises(GatewayRefused, match="is not a valid file of gateways"):
        Gateways(file).whose("token")
    with pytest.raises(GatewayRefused, match="is not a valid file of gateways"):
        Gateways(file).add("a")
    assert file.read_text() == text
