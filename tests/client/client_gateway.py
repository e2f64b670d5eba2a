"""The gateway for the tests of the clients, and helpers that use it."""

import asyncio
import os
import signal

import httpx

from edge.client import Backoff, Endpoints, Options
from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import PATIENCE

QUICK = Options(backoff=Backoff(0.05, 0.2))


class Gateway(GatewayProcess):
    """`edge run` with fixed ports."""

    def __init__(self, data_dir, **settings):
        self.http_port, self.ws_port = free_port(), free_port()
        super().__init__(
            data_dir,
            {
                "EDGE__HTTP__PORT": str(self.http_port),
                "EDGE__WS__PORT": str(self.ws_port),
                "EDGE__MQTT__ENABLED": "false",
                "EDGE__HOST__ENABLED": "false",
                **settings,
            },
        )

    @property
    def endpoints(self):
        return Endpoints.at("127.0.0.1", http_port=self.http_port, ws_port=self.ws_port)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http_port}"

    def update(self, sparql):
        """Execute an update over a connection that is independent of the tested client."""
        url = f"http://127.0.0.1:{self.http_port}/update"
        assert httpx.post(url, data={"update": sparql}, trust_env=False).status_code == 200

    def put(self, *numbers):
        """Add numbers to the set that `NUMBERS` queries."""
        self.update("INSERT DATA { " + " . ".join(f"<urn:set> <urn:has> {number}" for number in numbers) + " }")

    def take(self, *numbers):
        self.update("DELETE DATA { " + " . ".join(f"<urn:set> <urn:has> {number}" for number in numbers) + " }")

    def clear(self):
        self.update("CLEAR ALL")

    def freeze(self):
        """Stop the process: TCP stays connected, and no request is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.pid, signal.SIGCONT)

    def end(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)


NUMBERS = "SELECT ?n { <urn:set> <urn:has> ?n }"


def numbers(rows):
    """Return the sorted values of `?n`."""
    return sorted(row.plain()["n"] for row in rows)


async def following(subscription):
    """Return the next notification, within the time limit."""
    async with asyncio.timeout(PATIENCE):
        return await anext(subscription)
