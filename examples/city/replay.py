"""Publish recorded readings of car parks and city sensors over MQTT, a step of each recording every second."""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Iterator
from itertools import groupby, islice, zip_longest
from pathlib import Path
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

_SAMPLE = Path(__file__).parent / "sample"

Message = tuple[str, str]
"""Topic and payload."""


def parking_steps(path: Path) -> Iterator[list[Message]]:
    """Yield the messages of all car parks for each time of a recording in the form of CityBench."""
    with path.open(newline="", encoding="utf-8") as file:
        for _, rows in groupby(csv.DictReader(file), lambda row: row["updatetime"]):
            yield [(f"parking/{row['garagecode']}", json.dumps(row)) for row in rows]


def sensor_steps(path: Path) -> Iterator[list[Message]]:
    """Yield the messages of all city sensors for each time of a recording in the form of RIoTBench."""
    with path.open(encoding="utf-8") as file:
        for _, lines in groupby(file, lambda line: line.partition(",")[0]):
            yield [_sensor_message(line.partition(",")[2].strip()) for line in lines]


def _sensor_message(payload: str) -> Message:
    source = next(record["sv"] for record in json.loads(payload)["e"] if record["n"] == "source")
    return f"air/{source}", payload


def steps(parking: Path, sensors: Path) -> Iterator[list[Message]]:
    """Yield the messages of both recordings, step by step, until both have ended."""
    for first, second in zip_longest(parking_steps(parking), sensor_steps(sensors)):
        yield [*(first or ()), *(second or ())]


def main() -> None:
    """Publish all steps, or until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mqtt", default="mqtt://127.0.0.1:1883", help="URL of the broker (%(default)s)")
    parser.add_argument("--parking", type=Path, default=_SAMPLE / "parking.csv", help="(%(default)s)")
    parser.add_argument("--sensors", type=Path, default=_SAMPLE / "sensors.csv", help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=60, help="steps to publish (%(default)s)")
    arguments = parser.parse_args()
    broker = urlsplit(arguments.mqtt)
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    try:
        client.connect(broker.hostname or "127.0.0.1", broker.port or 1883)
    except OSError as error:
        raise SystemExit(f"The broker {arguments.mqtt} does not answer: {error}") from None
    client.loop_start()
    begin = time.monotonic()
    try:
        for number, messages in enumerate(islice(steps(arguments.parking, arguments.sensors), arguments.steps)):
            time.sleep(max(0.0, begin + number - time.monotonic()))
            for message in [client.publish(topic, payload, qos=1) for topic, payload in messages]:
                message.wait_for_publish(10)
            print(f"step {number + 1}: {len(messages)} messages", flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        client.disconnect()
        client.loop_stop()


if __name__ == "__main__":
    main()
