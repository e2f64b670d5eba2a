"""Each check of the doctor on a machine of files: results and messages."""

from __future__ import annotations

import ast
import os
import socket
import stat
import string
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge import endpoints, last_run
from edge.doctor import checks, examine
from edge.doctor.all_checks import CHECKS
from edge.doctor.checks import (
    backlog,
    broker,
    card,
    certificates,
    clock,
    disk,
    files,
    gateway,
    memory,
    modbus,
    restarts,
    serial,
    sparkplug,
    temperature,
    units,
    update,
)
from edge.doctor.finding import ok
from edge.doctor.texts import TEXTS
from edge.last_run import Run, RunRecord
from edge.security.certificates import make
from tests.support.processes import free_port

MAKERS = {"ok", "unknown", "warning", "problem"}
HEALTHY = {"version": "1", "uptime_seconds": 5, "pending_updates": 3, "parts": {"engine": "moves"}}
OUTBOX = {"state": "ships", "reason": "", "observations": 10, "bytes": 1000, "oldest": None, "dropped": 0}


def states(found):
    return [finding.state for finding in found]


def only(found):
    (finding,) = found
    return finding


def test_no_check_fails_on_an_empty_machine_and_each_problem_has_a_remedy(machine):
    found = list(examine(machine.around()))
    assert {name for name, _ in found} == {
        "gateway", "restarts", "disk", "card", "files", "recent", "clock", "broker", "certificates", "backlog",
        "memory", "temperature", "units",
    }  # fmt: skip
    for name, finding in found:
        assert "check failed" not in finding.what, name
        if finding.state in ("warning", "problem"):
            assert finding.why, name
            assert finding.do, name


def test_each_finding_gives_its_texts_the_values_that_they_need():
    """Findings whose values are literal; the tests of the checks render the others."""
    seen = set()
    for path in Path(checks.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") not in MAKERS or not call.args:
                continue
            code = call.args[0].value
            seen.add(code)
            given = {keyword.arg for keyword in call.keywords}
            needed = {name for text in TEXTS[code] for _, name, _, _ in string.Formatter().parse(text) if name}
            assert given == needed or None in given, code
    assert len(seen) > 70


def test_a_failing_check_affects_no_other_check(machine, monkeypatch):
    monkeypatch.setitem(CHECKS, "broker", lambda around: iter([ok("backlog.updates", count="many")]))
    machine.put("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    machine.put("proc/uptime", "nonsense")
    machine.disk("mmcblk0", stat="0 0 0 0 0 0 5")
    found = dict(examine(machine.around()))
    assert "check failed: ValueError" in found["card"].what
    assert "check failed: ValueError" in found["broker"].what
    assert found["memory"].state == "ok"


def test_gateway(machine):
    assert "no gateway runs" in only(gateway.check(machine.around())).what
    machine.runs()
    assert "does not answer: no answer within 5 s" in only(gateway.check(machine.around())).what
    machine.health = (200, HEALTHY)
    assert only(gateway.check(machine.around())).state == "ok"
    machine.health = (503, {"error_description": "Updates are refused: the disk is full"})
    assert only(gateway.check(machine.around())).what == "Updates are refused: the disk is full"
    machine.health = (401, {})
    assert only(gateway.check(machine.around())).state == "unknown"
    machine.health = (200, {"version": "1", "parts": {"engine": "moves"}})
    assert states(gateway.check(machine.around())) == ["ok", "unknown"]
    fault = {"file": "a.toml", "reason": "a.toml:3: no", "previous_version_applies": False}
    faults = {
        "mapping_faults": [
            fault,
            {"file": "c.toml", "reason": "no", "previous_version_applies": True},
            {
                "file": "homeassistant/light/a/config",
                "reason": "no",
                "previous_version_applies": True,
                "announced": True,
            },
        ],
        "query_faults": {"b.rq": "no"},
    }
    machine.health = (200, HEALTHY | faults | {"parts": {"ws": "no answer"}, "announce_fault": "no client"})
    found = list(gateway.check(machine.around()))
    assert states(found) == ["warning"] * 6
    assert found.pop().what == "announcing to Home Assistant fails: no client"
    announced = found.pop(3)
    assert announced.what.endswith(" that cannot be used: homeassistant/light/a/config no")
    assert "at the device" in announced.do
    assert [each.what.partition(" has an error: ")[2] for each in found[1:]] == [
        "a.toml:3: no",
        "c.toml no",
        "b.rq: no",
    ]
    assert [each.why for each in found[1:]] == [
        "it has no effect",
        "its previous version applies until the gateway restarts",
        "it has no effect",
    ]


def test_an_unreadable_data_directory_is_reported(machine):
    machine.runs()
    around = machine.around()
    machine.data.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        found = only(gateway.check(around))
    finally:
        if root:
            os.seteuid(0)
        machine.data.chmod(0o700)
    assert found.state == "unknown"
    assert "may not read" in found.what
    assert "sudo edge doctor" in found.do


def test_an_unheld_lock_file_is_not_a_gateway(machine):
    (machine.data / "lock").write_text("4711\n")
    machine.put("proc/locks", "1: FLOCK  ADVISORY  WRITE 4711 08:02:1 0 EOF\n")
    assert machine.around().process is None
    machine.runs()
    assert machine.around().process == 4711


def test_restarts(machine):
    assert only(restarts.check(machine.around())).state == "unknown"
    (machine.data / last_run.NAME).write_text("{")
    assert only(restarts.check(machine.around())).state == "unknown"
    recent = datetime.fromtimestamp(machine.now - 60, UTC).isoformat()
    old = datetime.fromtimestamp(machine.now - 3 * 86_400, UTC).isoformat()
    machine.put("proc/sys/kernel/random/boot_id", "here\n")
    fine, cut = Run("1", "here", recent, recent, "stopped"), Run("1", "x", recent, "", "power")
    machine.runs()
    last_run.write(machine.data, RunRecord(9, replace(fine, reason="", ended=""), (fine, replace(cut, started=old))))
    assert only(restarts.check(machine.around())).state == "ok"
    last_run.write(machine.data, RunRecord(9, replace(fine, reason="", ended=""), (cut, fine)))
    found = only(restarts.check(machine.around()))
    assert found.state == "warning"
    assert "power cut" in found.what
    last_run.write(machine.data, RunRecord(9, fine, (cut, cut, cut)))
    assert only(restarts.check(machine.around())).state == "problem"
    # If no gateway runs, the run without an end is over.
    (machine.root / "proc/locks").unlink()
    last_run.write(machine.data, RunRecord(9, Run("1", "here", recent), ()))
    assert "killed, or crashed" in only(restarts.check(machine.around())).what


def test_disk(machine):
    assert disk.assess(10_000_000, 30_000_000_000, 100_000_000).state == "problem"
    assert disk.assess(90_000_000, 30_000_000_000, 100_000_000).state == "warning"
    assert disk.assess(110_000_000, 30_000_000_000, 100_000_000).state == "ok"
    machine.put("proc/self/mounts", f"/dev/root / ext4 rw 0 0\ntmpfs {machine.data.parent} tmpfs rw 0 0\n")
    assert disk.kind_of(machine.around(), machine.data) == "tmpfs"
    assert "tmpfs" in next(iter(disk.check(machine.around()))).what
    machine.put("proc/self/mounts", "/dev/root / ext4 rw 0 0\n")
    assert "warning" not in [finding.state for finding in disk.check(machine.around()) if "tmpfs" in finding.what]


@pytest.mark.parametrize(
    ("life", "reserve", "expected"),
    [
        ("0x01 0x01", "0x01", ["ok", "ok"]),
        ("0x09 0x02", "0x01", ["warning", "ok"]),
        ("0x0b 0x02", "0x03", ["problem", "problem", "ok"]),
        ("0x01 0x02", "0x02", ["ok", "warning", "ok"]),
    ],
)
def test_wear_indicator_of_the_card_is_reported(machine, life, reserve, expected):
    machine.put("proc/uptime", "86400.00 1.00\n")
    sectors = "1 2 3 4 5 6 2000 8"
    machine.disk("mmcblk0", stat=sectors, device__life_time=life, device__pre_eol_info=reserve)
    assert states(card.check(machine.around())) == expected


def test_wear_is_estimated_for_a_card_without_a_wear_indicator(machine):
    assert only(card.check(machine.around())).state == "unknown"
    gigabytes = 15
    machine.disk("mmcblk0", stat=f"1 2 3 4 5 6 {gigabytes * 10**9 // 512} 8")
    machine.put("proc/uptime", "100.00 1.00\n")
    assert "too short for an estimate" in only(card.check(machine.around())).what
    machine.put("proc/uptime", "86400.00 1.00\n")
    machine.put("proc/4711/io", "rchar: 5\nwrite_bytes: 5000000\n")
    machine.runs()
    found = only(card.check(machine.around()))
    assert found.state == "warning"
    assert found.what.startswith("mmcblk0: 15.00 GB a day are written; the gateway itself has written 5 MB")


def test_files_that_others_may_read_are_closed(machine):
    secret = machine.data / "edge.sqlite3"
    secret.touch()
    secret.chmod(0o644)
    machine.data.chmod(0o755)
    finding = only(files.check(machine.around()))
    assert finding.state == "warning"
    finding.fix()
    assert finding.done == "data, edge.sqlite3: for the owner alone"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.data.stat().st_mode) == 0o700
    assert only(files.check(machine.around())).state == "ok"


def test_only_leftover_files_are_removed(machine):
    machine.now = datetime.now(UTC).timestamp()
    for name in ("a.part", "b.new", "fresh.part", "endpoints.json", "kept"):
        (machine.data / name).touch()
    for name in ("a.part", "b.new", "kept"):
        os.utime(machine.data / name, (0, 0))
    for name in ("data.before-restore", ".data.restore-x", ".data.restore-y"):
        (machine.data.parent / name).mkdir()
    (machine.data.parent / ".data.restore-y" / "lock").touch()
    for name in (".data.restore-x", ".data.restore-y"):
        os.utime(machine.data.parent / name, (0, 0))
    found = list(files.check(machine.around()))
    assert states(found) == ["warning"] * 5
    for finding in found:
        if finding.fix:
            finding.fix()
    assert [finding.done for finding in found if finding.fix] == [
        "removed a.part, b.new",
        "removed endpoints.json",
        "removed .data.restore-x",
    ]
    assert (machine.data.parent / ".data.restore-y").exists()
    assert sorted(path.name for path in machine.data.iterdir()) == ["fresh.part", "kept"]
    assert (machine.data.parent / "data.before-restore").exists()
    machine.runs()
    (machine.data / "endpoints.json").touch()
    assert [finding for finding in files.check(machine.around()) if finding.fix] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_others_are_given_to_the_owner(machine):
    os.chown(machine.data, 4711, 4712)
    (machine.data / "file").touch()
    finding = only(files.check(machine.around()))
    assert finding.state == "problem"
    finding.fix()
    assert ((machine.data / "file").stat().st_uid, (machine.data / "file").stat().st_gid) == (4711, 4712)


def test_clock(machine):
    machine.now = 86_400.0
    assert only(clock.check(machine.around())).what == "the clock shows 1970-01-02"
    machine.now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    last_run.write(machine.data, RunRecord(1, Run("1", "", "2026-01-02T00:00:00+00:00")))
    assert "the gateway was started 2026-01-02 00:00" in only(clock.check(machine.around())).what
    machine.now += 10 * 86_400
    assert only(clock.check(machine.around())).state in ("ok", "warning", "unknown")


def test_broker(machine):
    assert only(broker.check(machine.around())).state == "ok"
    assert only(broker.check(machine.around(mqtt={"enabled": False}))).state == "ok"
    port = free_port()
    theirs = {"mqtt": {"broker": f"mqtt://127.0.0.1:{port}"}}
    assert "Connection refused" in only(broker.check(machine.around(**theirs))).what
    machine.health = (200, HEALTHY | {"mqtt": "connected", "mqtt_broker": "external"})
    assert only(broker.check(machine.around(**theirs))).state == "ok"
    machine.health = (200, HEALTHY | {"mqtt": "not subscribed", "mqtt_broker": "external"})
    assert "has not accepted the subscription" in only(broker.check(machine.around(**theirs))).what
    with socket.create_server(("127.0.0.1", port)):
        machine.health = (200, HEALTHY | {"mqtt": "disconnected", "mqtt_broker": "external"})
        assert "is not connected" in only(broker.check(machine.around(**theirs))).what
        machine.health = None
        assert only(broker.check(machine.around(**theirs))).state == "unknown"
    machine.health = (200, HEALTHY)
    assert only(broker.check(machine.around(**theirs))).what == "MQTT is off (mqtt.enabled)"


def test_the_broker_is_that_of_the_running_gateway(machine):
    closed = f"mqtt://127.0.0.1:{free_port()}"
    endpoints.write(machine.data, {"mqtt": closed})
    machine.health = (200, HEALTHY | {"mqtt": "disconnected", "mqtt_broker": "external"})
    for own in ({}, {"enabled": False}, {"broker": "mqtt://elsewhere"}):
        assert f"{closed} cannot be reached" in only(broker.check(machine.around(mqtt=own))).what
    machine.health = (200, HEALTHY | {"mqtt": "connected", "mqtt_broker": "embedded"})
    assert "embedded" in only(broker.check(machine.around(mqtt={"broker": closed}))).what


def test_serial_ports(machine):
    machine.health = (200, HEALTHY)
    assert list(serial.check(machine.around())) == []
    machine.health = (200, HEALTHY | {"serial": {"dash7": "connected", "lora": "disconnected: no such device"}})
    good, bad = serial.check(machine.around())
    assert (good.state, bad.state) == ("ok", "problem")
    assert "lora is not connected: no such device" in bad.what
    machine.health = (200, HEALTHY | {"serial": {"lora": "disconnected"}})
    assert only(serial.check(machine.around())).what == "the port lora is not connected"


def test_modbus_devices(machine):
    machine.health = (200, HEALTHY)
    assert list(modbus.check(machine.around())) == []
    machine.health = (
        200,
        HEALTHY
        | {
            "modbus": {"meter": "connected", "valve": "connected: no value of a", "pump": "disconnected: no response"},
            "modbus_missing": {"valve": ["a"]},
        },
    )
    good, partly, bad = modbus.check(machine.around())
    assert (partly.state, "no value of a" in partly.what) == ("warning", True)
    assert (good.state, bad.state) == ("ok", "problem")
    assert "pump does not answer: no response" in bad.what


def test_sparkplug_nodes_and_devices(machine):
    machine.health = (200, HEALTHY)
    assert list(sparkplug.check(machine.around())) == []
    nodes = {"Plant/Line1": "connected", "Plant/Line1/Oven": "refused: too many metrics", "Plant/Line2": "disconnected"}
    machine.health = (200, HEALTHY | {"sparkplug": nodes})
    good, refused, lost = sparkplug.check(machine.around())
    assert (good.state, refused.state, lost.state) == ("ok", "problem", "problem")
    assert "Plant/Line1/Oven is refused: too many metrics" in refused.what
    assert "Plant/Line2 is not connected" in lost.what
    machine.health = (200, HEALTHY | {"sparkplug": {f"Plant/{number}": "disconnected" for number in range(15)}})
    found = list(sparkplug.check(machine.around()))
    assert (len(found), found[-1].code, found[-1].values) == (11, "sparkplug.more", {"count": 5})
    last = {"Plant/Z": "refused: too many metrics"}
    machine.health[1]["sparkplug"].update(last)
    assert [each.code for each in sparkplug.check(machine.around())][:2] == ["sparkplug.refused", "sparkplug.away"]


def test_certificates(machine):
    assert only(certificates.check(machine.around())).state == "ok"
    security = {"security": {"enabled": True}}
    make(machine.data / "tls", ["gateway.example.org"])
    machine.now = datetime.now(UTC).timestamp()
    assert states(certificates.check(machine.around(**security))) == ["ok", "ok"]
    machine.now += 390 * 86_400
    assert states(certificates.check(machine.around(**security))) == ["warning", "ok"]
    machine.now += 10 * 86_400
    assert states(certificates.check(machine.around(**security))) == ["problem", "ok"]
    machine.now += 4_000 * 86_400
    assert states(certificates.check(machine.around(**security))) == ["problem", "problem"]
    (machine.data / "tls" / "server.pem").write_text("nothing")
    assert states(certificates.check(machine.around(**security)))[0] == "problem"


@pytest.mark.parametrize(
    ("outbox", "state"),
    [
        ({}, ["ok", "ok"]),
        ({"state": "fails", "reason": "away"}, ["ok", "warning"]),
        ({"bytes": 60 * 1024 * 1024}, ["ok", "problem"]),
        ({"oldest": 1}, ["ok", "warning"]),
        ({"dropped": 5}, ["ok", "problem", "ok"]),
    ],
)
def test_backlog(machine, outbox, state):
    assert only(backlog.check(machine.around())).state == "unknown"
    machine.health = (200, HEALTHY | {"outbox": OUTBOX | outbox})
    assert states(backlog.check(machine.around())) == state


def test_backlog_of_updates(machine):
    machine.health = (200, HEALTHY | {"pending_updates": 999_999})
    assert only(backlog.check(machine.around())).state == "problem"


def test_memory(machine):
    assert only(memory.check(machine.around())).state == "unknown"
    machine.runs()
    machine.put("proc/4711/status", "VmRSS:\t   90000 kB\n")
    for free, state in ((500_000, "ok"), (80_000, "warning"), (40_000, "problem")):
        machine.put("proc/meminfo", f"MemTotal:  1000000 kB\nMemAvailable:  {free} kB\n")
        assert only(memory.check(machine.around())).state == state
    assert only(memory.check(machine.around())).what.endswith("the gateway takes 90 MB")
    machine.put("proc/vmstat", "pgfault 5\noom_kill 2\n")
    machine.put("proc/swaps", "Filename Type Size Used Priority\n/dev/mmcblk0p3 partition 500000 200000 -2\n")
    machine.put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\nSwapTotal: 500000 kB\nSwapFree: 300000 kB\n")
    assert states(memory.check(machine.around())) == ["ok", "warning", "warning"]


def test_temperature_and_power(machine):
    assert only(temperature.check(machine.around())).state == "unknown"
    for degrees, state in ((45_000, "ok"), (72_000, "warning"), (85_000, "problem")):
        machine.put("sys/class/thermal/thermal_zone0/temp", f"{degrees}\n")
        assert only(temperature.check(machine.around())).state == state
    machine.put("sys/class/thermal/thermal_zone0/temp", "45000\n")
    throttled = "sys/devices/platform/soc/soc:firmware/get_throttled"
    for flags, expected in (("0", ["ok"]), ("50005", ["problem", "warning"]), ("50000", ["warning", "warning"])):
        machine.put(throttled, f"{flags}\n")
        assert states(temperature.check(machine.around())) == ["ok", *expected]
    (machine.root / throttled).unlink()
    machine.put("sys/class/hwmon/hwmon1/name", "rpi_volt\n")
    machine.put("sys/class/hwmon/hwmon1/in0_lcrit_alarm", "1\n")
    assert states(temperature.check(machine.around())) == ["ok", "problem"]


def test_update(machine):
    assert list(update.check(machine.around())) == []  # not an image
    (machine.root / "data/rauc").mkdir(parents=True)
    assert only(update.check(machine.around())).state == "ok"
    machine.put("data/rauc/trial", "B 7.0")
    assert "7.0 is not confirmed yet" in only(update.check(machine.around())).what
    machine.put("data/rauc/undone", "B 7.0")
    assert "7.0 was undone" in only(update.check(machine.around())).what


def test_units(machine, tmp_path, monkeypatch):
    assert only(units.check(machine.around())).state == "unknown"
    (machine.root / "run/systemd/system").mkdir(parents=True)
    reported = tmp_path / "reported"
    command = tmp_path / "bin" / "systemctl"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\ncase "$1" in show) cat {reported} ;; *) echo "smb.service loaded failed failed" ;; esac\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    cases = {
        "LoadState=not-found": ["warning", "unknown"],
        "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNRestarts=0": ["warning", "ok"],
        "LoadState=loaded\nActiveState=active\nUnitFileState=disabled\nNRestarts=4": ["warning", "warning", "problem"],
        "LoadState=loaded\nActiveState=failed\nResult=exit-code\nNRestarts=0": ["warning", "problem"],
        "LoadState=loaded\nActiveState=inactive\nUnitFileState=enabled": ["warning", "warning"],
    }
    for text, expected in cases.items():
        reported.write_text(text + "\n")
        assert states(units.check(machine.around())) == expected


def test_a_link_that_replaces_the_file_while_it_is_opened_is_left_alone(machine, tmp_path, monkeypatch):
    """Another user swaps the file for a hard link, and swaps it back before the path is looked at again."""
    around = machine.around()
    around.data_dir.mkdir(parents=True, exist_ok=True)
    victim = tmp_path / "victim"
    victim.write_text("a file of another user")
    victim.chmod(0o644)
    own = around.data_dir / "edge.sqlite3"
    own.write_text("")
    own.chmod(0o644)
    (finding,) = [found for found in files.check(around) if found.fix is not None and "edge.sqlite3" in found.what]
    open_ = os.open

    def swapped(path, flags, *arguments):
        return open_(victim if path == own else path, flags, *arguments)

    (tmp_path / "link").hardlink_to(victim)
    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(OSError, match="another file"):
        finding.fix()
    assert victim.stat().st_mode & 0o777 == 0o644


def test_links_to_files_of_others_are_left_alone(machine, tmp_path):
    around = machine.around()
    around.data_dir.mkdir(parents=True, exist_ok=True)
    victim = tmp_path / "victim"
    victim.write_text("of somebody else")
    victim.chmod(0o644)
    (around.data_dir / "edge.sqlite3").symlink_to(victim)
    (around.data_dir / "clients.sqlite3").hardlink_to(victim)
    for finding in files.check(around):
        if finding.fix is not None:
            finding.fix()
    assert victim.stat().st_mode & 0o777 == 0o644
