"""A consumer: it receives notifications of all observations. The query is in the .jsap file.

It finds the gateway by EDGE_URL, or on this machine; else the addresses of the .jsap file count.
"""

from __future__ import annotations

from pathlib import Path

from edge.client import Application, Notification

app = Application(Path(__file__).with_suffix(".jsap"), find_gateway=True)


@app.consumer("OBSERVATIONS")
async def observations(change: Notification) -> None:
    """Called with the whole result first, then with each change. `observations.results` is what holds now."""
    for row in change.removed:
        print("-", row.plain(), flush=True)
    for row in change.added:
        print("+", row.plain(), flush=True)
    print(len(observations.results), "now", flush=True)


if __name__ == "__main__":
    app.main()
