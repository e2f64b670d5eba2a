"""A producer: it sends a measurement every two seconds. SPARQL and addresses are in the .jsap file."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from edge.client import Application, ClientError

app = Application(Path(__file__).with_suffix(".jsap"))
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
    try:
        app.run(main)
    except ClientError as error:
        sys.exit(str(error))
