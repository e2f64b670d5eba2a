"""The wheel of the client library alone: without the gateway, with its declared dependencies, at a real gateway."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from edge import __version__
from images import client_package

PROGRAM = """
import asyncio
import importlib.util
import sys

from sepa_edge_client.client import Client, SyncClient
from sepa_edge_client.jsap import Profile

assert importlib.util.find_spec("edge") is None, "the gateway is installed, too"


async def main() -> None:
    async with Client(sys.argv[1]) as client:
        subscription = await client.subscribe("SELECT ?n { <urn:a> <urn:b> ?n }")
        first = await anext(subscription)
        print("first", len(first.added))
        await client.update("INSERT DATA { <urn:a> <urn:b> 7 }")
        change = await anext(subscription)
        print("added", [row.plain() for row in change.added])
        await client.publish(21.5, sensor="urn:s", property="urn:p", place="urn:cellar", unit="urn:u")
        print("observed", [found.value for found in await client.observations()])


asyncio.run(main())
with SyncClient(sys.argv[1]) as client:
    print("rows", len(client.query("SELECT * { <urn:a> ?p ?o }")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return client_package.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """Make an environment with the wheel and its declared dependencies, which are links to those of this one."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory)
    packages = next(directory.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for name in client_package.requirements():
        for file in metadata.files(name) or []:
            top = file.parts[0]
            target = packages / top
            if top not in ("..", "__pycache__") and not target.exists():
                target.symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    return directory / "bin" / "python"


def test_the_client_works_without_the_gateway(python, shared_gateway, tmp_path):
    shared_gateway.clear()
    command = [python, "-I", "-c", PROGRAM, shared_gateway.url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["first 0", "added [{'n': 7}]", "observed [21.5]", "rows 1"]


def test_the_wheel_is_light_and_can_be_installed_next_to_the_gateway(wheel):
    assert wheel.name == f"sepa_edge_client-{__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 250_000
    with zipfile.ZipFile(wheel) as archive:
        directories = {name.partition("/")[0] for name in archive.namelist()}
        text = archive.read(f"sepa_edge_client-{__version__}.dist-info/METADATA").decode()
    assert directories == {"sepa_edge_client", f"sepa_edge_client-{__version__}.dist-info"}
    names = re.findall(r"^Requires-Dist: ([a-z]+)", text, re.MULTILINE)
    assert sorted(names) == ["httpx", "pyoxigraph", "pyyaml", "websockets"]


def test_the_wheel_has_all_public_names(python):
    for package in ("client", "jsap"):
        code = f"import edge.{package} as p; print(sorted(p.__all__))"
        here = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        code = code.replace("edge.", "sepa_edge_client.")
        there = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
        assert there.stdout == here.stdout


def test_two_runs_make_the_same_file(wheel, tmp_path):
    assert client_package.build(tmp_path).read_bytes() == wheel.read_bytes()
