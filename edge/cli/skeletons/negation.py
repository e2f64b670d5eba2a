"""Something did not happen: a lamp goes off when its sensor has seen nobody for a while. No timer is kept here.

SENSED keeps what a sensor says and, by the gateway's clock, since when. SWITCH works only if both still hold.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from edge.client import Application, ClientError, Notification, Pipeline, plain

AFTER = timedelta(seconds=30)
app = Application(Path(__file__).with_suffix(".jsap"))


@app.aggregator("PRESENCE", "SWITCH", repeat=True)  # twice does no harm: it is sent until the gateway answers
async def light(change: Notification, switch: Pipeline) -> None:
    """On at once. Off later, unless sensor or time have changed by then: the gateway looks, we need not."""
    for row in change.added:
        if plain(row["presence"]):
            await switch(row, state="ON")
        else:
            await switch(row, state="OFF", delay=AFTER)


@app.consumer("LAMPS")
async def lamps(change: Notification) -> None:
    """Show what becomes of it."""
    for row in change.added:
        print(plain(row["lamp"]), plain(row["state"]), flush=True)


if __name__ == "__main__":
    try:
        app.run()
    except ClientError as error:
        sys.exit(str(error))
