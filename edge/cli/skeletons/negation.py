"""Negation: switch a lamp off when its sensor has detected nobody for some time. The program has no timer.

PRESENCE returns the sensor's state and its start by the gateway's clock. SWITCH has an effect only if both still hold.
"""

from datetime import timedelta
from pathlib import Path

from edge.client import Application, Notification, Pipeline, plain

AFTER = timedelta(seconds=30)
app = Application(Path(__file__).with_suffix(".jsap"), find_gateway=True)


@app.aggregator("SENSORS", "SENSED", repeat=True)  # idempotent: it may be sent again until the gateway answers
async def sense(change: Notification, sensed: Pipeline) -> None:
    """Keep since when each sensor reports its state. A repeated state changes nothing."""
    for row in change.added:
        await sensed(row)


@app.aggregator("PRESENCE", "SWITCH", repeat=True)
async def light(change: Notification, switch: Pipeline) -> None:
    """Switch on at once, and off later. The gateway checks that sensor and time are unchanged by then."""
    for row in change.added:
        on = plain(row["presence"])
        await (switch(row, state="ON") if on else switch(row, state="OFF", delay=AFTER))


@app.consumer("LAMPS")
async def lamps(change: Notification) -> None:
    """Print the result."""
    for row in change.added:
        print(plain(row["lamp"]), plain(row["state"]), flush=True)


if __name__ == "__main__":
    app.main()
