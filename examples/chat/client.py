"""A chat client (SEPA paper, section 5.4): a Sender, a Receiver and a Remover that are independent of each other."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from edge.client import Application, Notification, Pipeline, plain

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("me", help="your name")
parser.add_argument("other", help="name of the other person")
parser.add_argument("--profile", help="profile with the address of the gateway, instead of looking for it")
arguments = parser.parse_args()
me, other = (f"http://schema.org/Person-{quote(name, safe='')}" for name in (arguments.me, arguments.other))
try:
    profile = arguments.profile or Path(__file__).with_name("client.yaml")
    app = Application(profile, find_gateway=arguments.profile is None)
except (OSError, ValueError) as error:
    parser.error(str(error))


async def sender() -> None:
    """Join the chat, and send each line of standard input as a message."""
    await app.producer("JOIN").produce(person=me, name=arguments.me)
    send = app.producer("SEND")
    show(f"You are {arguments.me}. Type to {arguments.other}; Ctrl-D ends.")
    async for text in typed():
        sent = await send.produce(text=text, sender=me, receiver=other)
        if sent.added == 0:
            show(f"    not sent: {arguments.other} has never joined")


@app.aggregator("SENT", "SET_RECEIVED", receiver=me)
async def receiver(change: Notification, set_received: Pipeline) -> None:
    """Show messages to me and mark them as received. A message disappears when its sender has seen the mark."""
    for row in change.added:
        show(f"{plain(row['name'])}: {plain(row['text'])}")
        await set_received(message=row["message"])
    for row in change.removed:
        show(f"    {plain(row['name'])} knows that you got it")


@app.aggregator("RECEIVED", "REMOVE", sender=me)
async def remover(change: Notification, remove: Pipeline) -> None:
    """Remove my messages that the other person has received."""
    for row in change.added:
        show(f"    received at {str(plain(row['time']))[11:19]}")
        await remove(message=row["message"])


async def typed() -> AsyncIterator[str]:
    """Yield the lines of standard input without blocking the event loop."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield line.decode(errors="replace").rstrip("\n")


def show(text: str) -> None:
    """Print a line immediately."""
    print(text, flush=True)


app.main(sender)
