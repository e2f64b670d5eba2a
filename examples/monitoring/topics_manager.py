"""Topics Manager (SEPA paper, section 5.4): declare in the graph which MQTT topics are observations.

Without arguments, it adds the mappings of the profile's `extended.semantic-mappings`; otherwise the given topic.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from edge.client import Brokers, ClientError, Consumer, Producer, explain, plain
from edge.jsap import Profile, SemanticMapping

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("topic", nargs="?", help="for example cellar/temperature")
parser.add_argument("--label", help="(the topic)")
parser.add_argument("--comment", default="")
parser.add_argument("--unit", default="qudt-unit-1-1:Unitless", help="(%(default)s)")
parser.add_argument("--location", default="arces-monitor:Somewhere", help="(%(default)s)")
parser.add_argument("--profile", help="profile with the address of the gateway, instead of looking for it")
arguments = parser.parse_args()
try:
    profile = Profile.load(arguments.profile or Path(__file__).with_name("monitoring.jsap"))
    brokers = Brokers(find_gateway=arguments.profile is None)
except (OSError, ValueError) as error:
    parser.error(str(error))


def wanted() -> tuple[SemanticMapping, ...]:
    """Return the mappings to add."""
    topic = arguments.topic
    if topic is None:
        return profile.mappings
    observation = profile.namespaces["arces-monitor"] + quote(topic, safe="")
    label = arguments.label or topic
    return (SemanticMapping(topic, observation, arguments.unit, arguments.location, arguments.comment, label),)


async def main() -> None:
    """Add missing mappings. Adding an existing mapping again would delete its value."""
    async with brokers, Consumer(profile, "TOPICS", brokers=brokers) as topics:
        add = Producer(profile, "ADD_OBSERVATION", brokers=brokers)
        known = {plain(row["topic"]) for row in topics.results}
        for mapping in wanted():
            if mapping.topic in known:
                print(f"{mapping.topic} is known")
            else:
                await add.update(asdict(mapping))
                print(f"{mapping.topic} is <{mapping.observation}> from now on")


try:
    asyncio.run(main())
except ClientError as error:
    sys.exit(explain(error))
except KeyboardInterrupt:
    sys.exit(130)
