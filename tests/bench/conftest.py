"""Gateways of experiments."""

from __future__ import annotations

from typing import IO

import pytest

from edge.bench.gateway import BenchGateway
from tests.support.gateway_forks import GatewayFork


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the gateways of an experiment, as other tests do. A new interpreter takes longer than a small experiment."""

    def start(self: BenchGateway, log: IO[bytes]) -> GatewayFork:
        return GatewayFork(["run", "--data-dir", str(self._directory)], self._environment, log, None)

    monkeypatch.setattr(BenchGateway, "_start", start)
