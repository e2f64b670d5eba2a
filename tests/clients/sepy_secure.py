"""Driver for the secure mode of the unmodified sepy: register, update, query, subscribe.

Prints one JSON object a line.
"""

import json
import sys
import threading
import warnings

warnings.simplefilter("ignore")  # it does not verify certificates, and urllib3 says so

from sepy.ConnectionHandler import ConnectionHandler  # noqa: E402

https, wss, identity = sys.argv[1:]
client = ConnectionHandler(identity, logLevel=50)
oauth = f"{https}/oauth/register", f"{https}/oauth/token"
received = threading.Event()


def say(**members):
    print(json.dumps(members), flush=True)


def handler(added, removed):
    say(event="notification", added=added, removed=removed)
    if added:
        received.set()


say(event="updated", status=client.secureRequest(f"{https}/secure/update", sys.stdin.readline(), False, *oauth)[0])
status, text = client.secureRequest(f"{https}/secure/query", sys.stdin.readline(), True, *oauth)
say(event="result", status=status, data=json.loads(text))
spuid = client.openSecureWebsocket(wss, sys.stdin.readline(), "alias", handler, *oauth)
say(event="subscribed", spuid=spuid, received=received.wait(10))
client.closeWebsocket(spuid)
