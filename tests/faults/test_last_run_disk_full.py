"""The gateway reports the end of the last run even if the disk is full."""

from __future__ import annotations

from edge import last_run
from tests.faults.monitored_gateway import Watched


def test_runs_are_distinguished_on_a_full_disk(gateway, disk):
    process = gateway(disk.data, EDGE__MQTT__ENABLED="false")
    Watched(process)
    disk.fill()
    process.kill()
    Watched(process)
    record = last_run.read(disk.data)
    assert (record.before[0].reason, record.starts) == ("crashed", 2)
    process.stop()
    assert last_run.read(disk.data).run.reason == "stopped"
