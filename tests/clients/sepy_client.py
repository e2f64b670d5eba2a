"""Driver for the unmodified sepy. Prints one JSON object a line; reads commands from standard input."""

import json
import sys
import threading

from sepy.SEPA import SEPA

http, ws = sys.argv[1:]
client = SEPA(logLevel=50)
lock = threading.Lock()


def say(**members):
    with lock:
        print(json.dumps(members), flush=True)


def query(sparql):
    say(event="result", data=client.sparql_query(sparql, host=f"{http}/query"))


def update(sparql):
    say(event="updated", data=client.sparql_update(sparql, host=f"{http}/update"))


def subscribe(sparql, alias):
    def handler(added, removed):
        say(event="notification", alias=alias, added=added, removed=removed)

    say(event="subscribed", alias=alias, spuid=client.sparql_subscribe(sparql, alias, handler, host=ws))


def unsubscribe(spuid):
    client.unsubscribe(spuid)
    client.get_subscriptions()[spuid].keep_running = False
    say(event="unsubscribing")


say(event="up")
for line in sys.stdin:
    command, *values = json.loads(line)
    try:
        {"query": query, "update": update, "subscribe": subscribe, "unsubscribe": unsubscribe}[command](*values)
    except ValueError as error:
        say(event="failed", data=str(error))
