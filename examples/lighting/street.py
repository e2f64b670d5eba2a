"""A street of lamp posts with people in it: each post has a sensor and a lamp, both on MQTT. Watch it in a terminal."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edge.client import local_services

_STEP = 0.1
"""Seconds between two steps."""
_ROW = 50
"""Number of posts in a line of the screen."""


class Street:
    """State of the simulation: positions of people, sensor values, and lamps."""

    def __init__(self, posts: int, people: int, speed: float) -> None:
        """Place people at random. `speed` is in posts per second."""
        self.lamps = [False] * posts
        self.presence: list[bool | None] = [None] * posts
        self.places = [random.uniform(0, posts) for _ in range(people)]
        self._speeds = [random.choice((-1, 1)) * random.uniform(0.5, 1.5) * speed for _ in range(people)]

    def step(self) -> list[int]:
        """Move all people by one step. Returns the posts whose sensor value has changed."""
        posts = len(self.lamps)
        self.places = [(place + speed * _STEP) % posts for place, speed in zip(self.places, self._speeds, strict=True)]
        taken = {int(place) for place in self.places}
        changed = [post for post in range(posts) if self.presence[post] != (post in taken)]
        for post in changed:
            self.presence[post] = post in taken
        return changed

    def drawn(self) -> str:
        """Return the street as text: a line of lamps, and below it a line of people."""
        lines = []
        for begin in range(0, len(self.lamps), _ROW):
            posts = range(begin, min(begin + _ROW, len(self.lamps)))
            lines += [
                "".join("\033[93m●\033[0m" if self.lamps[post] else "\033[90m·\033[0m" for post in posts),
                "".join("☺" if self.presence[post] else " " for post in posts),
            ]
        return "\n".join([*lines, f"{sum(self.lamps)} of {len(self.lamps)} lamps are on. Ctrl-C ends."])


def main() -> None:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("EDGE_MQTT") or local_services().get("mqtt", "127.0.0.1:1883")
    parser.add_argument("--mqtt", default=default, help="the broker: HOST[:PORT] or a URL (%(default)s)")
    parser.add_argument("--posts", type=int, default=100, help="(%(default)s)")
    parser.add_argument("--people", type=int, default=6, help="(%(default)s)")
    parser.add_argument("--speed", type=float, default=2.0, help="posts a second that one walks (%(default)s)")
    arguments = parser.parse_args()
    try:
        broker = _broker(arguments.mqtt)
    except ValueError as error:
        parser.error(f"--mqtt {arguments.mqtt}: {error}")
    street = Street(arguments.posts, arguments.people, arguments.speed)
    client = _connected(*broker, street)
    screen = sys.stdout.isatty()
    try:
        print("\033[2J" if screen else "The street is open. Ctrl-C ends.", flush=True)
        while True:
            for post in street.step():
                client.publish(f"street/{post}/presence", "true" if street.presence[post] else "false", qos=1)
            if screen:
                print(f"\033[H{street.drawn()}\033[J", flush=True)
            time.sleep(_STEP)
    except KeyboardInterrupt:
        client.disconnect()
        client.loop_stop()


def _broker(address: str) -> tuple[str, int]:
    """Host and port of `HOST[:PORT]` or `mqtt://HOST[:PORT]`. Raises `ValueError`."""
    url = urlsplit(address if "://" in address else f"mqtt://{address}")
    if url.scheme != "mqtt" or not url.hostname or url.username is not None or url.path.strip("/") or url.query:
        raise ValueError("write HOST[:PORT] or mqtt://HOST[:PORT]")
    return url.hostname, 1883 if url.port is None else url.port


def _connected(host: str, port: int, street: Street) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2)

    def subscribe(client: mqtt.Client, *_: object) -> None:
        client.subscribe("street/+/lamp/set", qos=1)

    def switch(client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        post, on = int(message.topic.split("/")[1]), message.payload == b"ON"
        if post < len(street.lamps):
            street.lamps[post] = on
        if not sys.stdout.isatty():
            print(f"lamp {post} {'on' if on else 'off'}", flush=True)

    client.on_connect = subscribe
    client.on_message = switch
    try:
        client.connect(host, port)
    except (OSError, ValueError) as error:
        sys.exit(f"no MQTT broker at {host}:{port}: {error}; is the gateway running (`edge run`)?")
    client.loop_start()
    return client


if __name__ == "__main__":
    main()
