"""Storing service (SEPA paper, section 5.4): write every value with its time into a separate SPARQL store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edge.client import Application, ClientError, Endpoints, Notification, Options, Pipeline, SyncClient, explain, plain

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--profile", help="profile with the addresses of gateway and store, instead of looking for the gateway"
)
arguments = parser.parse_args()
try:
    # The client queues values while the store is slower. Beyond this bound it merges notifications, which loses values.
    profile = arguments.profile or Path(__file__).with_name("storing.yaml")
    find, options = arguments.profile is None, Options(waiting=100_000)
    app = Application(profile, options=options, find_gateway=find, stop_on_error=True)
except (OSError, ValueError) as error:
    parser.error(str(error))

last_stored = app.profile.query("LAST_STORED")
try:
    with SyncClient(Endpoints(query=last_stored.sparql11.url), over="http") as history:
        last = {row["observation"]: plain(row["value"]) for row in history.select(last_stored.text())}
except ClientError as error:
    sys.exit(f"the store: {explain(error)}")
except KeyboardInterrupt:
    sys.exit(130)


@app.aggregator("OBSERVATIONS_VALUES", "STORE_OBSERVATION")
async def keep(change: Notification, store: Pipeline) -> None:
    """Store values that differ from the last stored one: the first notification has all values, and labels change."""
    for row in change.added:
        observation, value = row["observation"], plain(row["value"])
        if last.get(observation) != value:
            stored = await store(observation=observation, unit=row["unit"], value=row["value"])
            await stored  # one at a time: the store assigns timestamps, which must be distinct
            last[observation] = value


app.main()
