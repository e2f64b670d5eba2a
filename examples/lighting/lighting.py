"""Smart lighting (SPS paper, section II.D): a lamp is on while its sensor detects presence, and some seconds longer."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

from edge.client import Application, Notification, Pipeline, plain

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--after", type=float, default=3.0, help="seconds that a lamp stays on (3)")
parser.add_argument("--profile", help="profile with the address of the gateway, instead of looking for it")
arguments = parser.parse_args()
try:
    profile = arguments.profile or Path(__file__).with_name("lighting.jsap")
    app = Application(profile, find_gateway=arguments.profile is None)
except (OSError, ValueError) as error:
    parser.error(str(error))


@app.aggregator("SENSORS", "SENSED", repeat=True)  # the update is idempotent, so the client may resend it
async def sense(change: Notification, sensed: Pipeline) -> None:
    """Record when a sensor last changed. Sensors may repeat the same value."""
    for row in change.added:
        await sensed(row)


@app.aggregator("PRESENCE", "SWITCH", repeat=True)
async def switch(change: Notification, lamp: Pipeline) -> None:
    """Switch on immediately. Switch off with a delayed update, which has no effect if the sensor changes before."""
    for row in change.added:
        if plain(row["presence"]):
            await lamp(row, state="ON")
        else:
            await lamp(row, state="OFF", delay=timedelta(seconds=arguments.after))


app.main()
