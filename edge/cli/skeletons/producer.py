"""A producer: it publishes a measurement as an observation every two seconds. The SPARQL is in the .jsap file.

It finds the gateway by EDGE_URL, or on this machine; else the addresses of the .jsap file count.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from edge.client import Application

app = Application(Path(__file__).with_suffix(".jsap"), find_gateway=True)
temperature = app.producer("SET_TEMPERATURE")


def measure() -> float:
    """Ask your sensor here."""
    return round(random.gauss(22, 3), 1)


async def main() -> None:
    """Send a value for the variables that the profile forces; everything else is in its update.

    Twice does no harm, so it is sent until the gateway answers.
    """
    while True:
        value = measure()
        await temperature.produce(sensor="http://example.org/cellar", value=value, repeat=True)
        print(f"sent {value}", flush=True)
        await asyncio.sleep(2)


if __name__ == "__main__":
    app.main(main)
