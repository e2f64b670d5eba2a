"""Smart lighting (SPS paper, section II.D): a lamp is on while somebody is there, and for a while after."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

from edge.client import Application, Notification, Pipeline, plain
from edge.jsap import ProfileError

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--after", type=float, default=3.0, help="seconds that a lamp stays on (3)")
parser.add_argument("--profile", default=Path(__file__).with_name("lighting.jsap"), help="where the gateway is")
arguments = parser.parse_args()
try:
    app = Application(arguments.profile)
except (OSError, ProfileError) as error:
    parser.error(str(error))


@app.aggregator("SENSORS", "SENSED", repeat=True)  # twice does no harm: it is sent until the gateway answers
async def sense(change: Notification, sensed: Pipeline) -> None:
    """Keep when a sensor last changed: it may say the same again and again."""
    for row in change.added:
        await sensed(row)


@app.aggregator("PRESENCE", "SWITCH", repeat=True)
async def switch(change: Notification, lamp: Pipeline) -> None:
    """On at once. Off later, unless the sensor has changed by then: the gateway looks, we need not."""
    for row in change.added:
        if plain(row["presence"]):
            await lamp(row, state="ON")
        else:
            await lamp(row, state="OFF", delay=timedelta(seconds=arguments.after))


app.run()
