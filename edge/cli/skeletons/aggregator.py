"""An aggregator: it receives notifications and answers with updates. The SPARQL is in the .jsap file.

It finds the gateway by EDGE_URL, or on this machine; else the addresses of the .jsap file count.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from edge.client import Application, Notification, Pipeline, plain

WARM = Decimal(25)

app = Application(Path(__file__).with_suffix(".jsap"), find_gateway=True)


@app.aggregator("TEMPERATURES", "SET_ALARM", repeat=True)  # twice does no harm: it is sent until the gateway answers
async def watch(change: Notification, set_alarm: Pipeline) -> None:
    """Raise an alarm where it is warm. Updates are sent without waiting for each other, and arrive in order."""
    for row in change.added:
        value = plain(row["value"])
        alarm = isinstance(value, int | float | Decimal) and value > WARM
        await set_alarm(sensor=row["sensor"], alarm=alarm)
        print(f"{plain(row['sensor'])} has {value}: {'too warm' if alarm else 'fine'}", flush=True)


if __name__ == "__main__":
    app.main()
