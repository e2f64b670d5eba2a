"""An unmodified consumer of the Web of Things, node-wot, finds a lamp, reads, sets and observes it."""

from __future__ import annotations

import json
import os
import subprocess

from test_things import CONSUMER, LAMP, STATE, Home, thing

from tests.support.node_packages import installed
from tests.support.waiting import wait_for


def test_node_wot_finds_reads_sets_and_observes_a_lamp(tmp_path):
    modules = installed(CONSUMER)
    home = Home(tmp_path / "home")
    try:
        home.report("zigbee2mqtt/kitchen/lamp", STATE)
        wait_for(lambda: len(home.http.get(thing(LAMP)).json().get("properties", ())) == len(STATE), what="the lamp")
        command = ["node", str(CONSUMER / "consumer.js"), str(home.http.base_url), LAMP]
        environment = {**os.environ, "NODE_PATH": str(modules)}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as consumer:
            try:
                wait_for(lambda: home.told or consumer.poll() is not None, what="the message")
                home.report("zigbee2mqtt/kitchen/lamp", {"brightness": 77})
                output, errors = consumer.communicate(timeout=60)
            finally:
                consumer.kill()
        assert consumer.returncode == 0, errors
        found = json.loads(output)
    finally:
        home.close()
    assert found == {
        "explored": [LAMP],
        "search": True,
        "all": {**STATE, "state": False},
        "tooBright": "Client error: Bad Request",
        "observed": [STATE["brightness"], 77],
        "readOnly": "ConsumedThing 'kitchen/lamp' did not get suitable form",
    }
    assert home.told == [("zigbee2mqtt/kitchen/lamp/set", {"brightness": 77})]
