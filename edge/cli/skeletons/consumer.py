"""A consumer: it receives notifications. The query and the gateway's address are in the .jsap file."""

from __future__ import annotations

import sys
from pathlib import Path

from edge.client import Application, ClientError, Notification

app = Application(Path(__file__).with_suffix(".jsap"))


@app.consumer("TEMPERATURES")
async def temperatures(change: Notification) -> None:
    """Called with the whole result first, then with each change. `temperatures.results` is what holds now."""
    for row in change.removed:
        print("-", row.plain(), flush=True)
    for row in change.added:
        print("+", row.plain(), flush=True)
    print(len(temperatures.results), "now", flush=True)


if __name__ == "__main__":
    try:
        app.run()
    except ClientError as error:
        sys.exit(str(error))
