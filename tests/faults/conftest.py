"""Real faults: broken links, full disks, killed brokers and gateways."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.network_link import Cable
from tests.faults.small_disk import SIZE, Disk
from tests.support.processes import GatewayProcess, Mosquitto


@pytest.fixture
def cable() -> Iterator[Cable]:
    """A network link. The test and its processes are at one end."""
    with Cable().laid() as cable:
        yield cable


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Callable[..., Mosquitto]]:
    """`mosquitto("a line of its configuration")` starts a broker."""
    brokers: list[Mosquitto] = []

    def start(extra: str = "") -> Mosquitto:
        broker = Mosquitto(tmp_path / f"mosquitto{len(brokers)}", extra)
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.stop(kill=True)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Callable[..., GatewayProcess]]:
    """`gateway(EDGE__WS__PING_TIMEOUT="1")` returns a gateway process to be started."""
    processes: list[GatewayProcess] = []

    def make(data_dir: Path | None = None, **settings: str) -> GatewayProcess:
        process = GatewayProcess(data_dir or tmp_path / "data", {"EDGE__HOST__ENABLED": "false", **settings})
        processes.append(process)
        return process

    yield make
    for process in processes:
        process.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield Disk(place)
    subprocess.run(["umount", "--lazy", place], check=True)
