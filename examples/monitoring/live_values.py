"""Live values (SEPA paper, section 5.4): all observations in the terminal, the one that changed last on top."""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import time
from pathlib import Path

from edge.client import Application, Notification, Row, plain

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--profile", help="profile with the address of the gateway, instead of looking for it")
arguments = parser.parse_args()
try:
    profile = arguments.profile or Path(__file__).with_name("monitoring.jsap")
    app = Application(profile, find_gateway=arguments.profile is None)
except (OSError, ValueError) as error:
    parser.error(str(error))

table: dict[object, str] = {}
"""Output line of each observation, oldest change first."""
news = asyncio.Event()


@app.consumer("OBSERVATIONS_VALUES")
async def values(change: Notification) -> None:
    """Update the table from a notification. Re-insertion moves a changed observation to the end."""
    for row in change.removed:
        table.pop(row["observation"], None)
    for row in change.added:
        table[row["observation"]] = line(row)
    news.set()


def line(row: Row) -> str:
    """Return the output line of an observation, without namespaces."""
    unit, location = (re.split(r"[#/]", str(plain(row[name])))[-1] for name in ("unit", "location"))
    return f"{time.strftime('%X')}  {plain(row['value'])!s:>12} {unit:<16} {plain(row['label'])}, {location}"


async def screen() -> None:
    """Print the part of the table that fits on the screen after each change, at most ten times a second."""
    while True:
        await news.wait()
        news.clear()
        width, height = shutil.get_terminal_size()
        lines = [f"{len(table)} observations. Ctrl-C ends.", *reversed(table.values())]
        print(
            "\033[H" + "\033[K\n".join(each[:width] for each in lines[: height - 1]) + "\033[K\n\033[J",
            end="",
            flush=True,
        )
        await asyncio.sleep(0.1)


app.main(screen)
