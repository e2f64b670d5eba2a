"""The serial adapter over real pseudo-terminals: readings, commands, hot-plugging, full queues, stalled devices."""

import re
import threading
from contextlib import contextmanager

import pytest
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from edge.adapters.ingest import Ingest
from edge.adapters.serial import SerialAdapter
from edge.adapters.serial_device import DeviceUnavailable, find, open_device
from edge.adapters.serial_frames import encoded
from edge.adapters.settings import ActuationSettings, SerialSettings
from edge.mapping.actuators import Command
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.mapping.serial_ports import UsbDevice
from tests.adapters.adapter_parts import value_of
from tests.adapters.serial_device import Wire
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

T = "http://example.org/t"
JSON_LINES = """
[[serial]]
name = "a"
device = "DEVICE"

[[mapping]]
topic = "serial/a"
path = "t"
observation = "http://example.org/t"
"""
FAST = {"reconnect": 0.05, "silence": 0.05, "retry_min": 0.02}


@pytest.fixture
def wire(tmp_path):
    with Wire(tmp_path / "tty") as wire:
        yield wire


class Serving:
    """A serial adapter on an engine, with the ports and mappings of a file."""

    def __init__(self, observations, text: str, actuation: ActuationSettings | None = None, **settings: object) -> None:
        self.pack = load_pack(text, "test")
        mapper = Mapper([self.pack])
        self.ingest = Ingest(lambda: mapper, observations)
        self.ups: list[str] = []
        options = unchecked(SerialSettings, **{**FAST, **settings})
        self.adapter = SerialAdapter(options, actuation or ActuationSettings(), self.ingest, self._up)

    def _up(self, port, reported) -> None:
        self.ups.append(port.name)
        reported()

    @property
    def port(self):
        (port,) = self.adapter.ports
        return port

    def bad(self) -> list[dict[str, object]]:
        return self.ingest.bad_values.listed()


@contextmanager
def serving(observations, wire, text: str = JSON_LINES, **settings: object):
    found = Serving(observations, text.replace("DEVICE", str(wire.path)), **settings)
    found.adapter.start()
    found.adapter.follow(found.pack.ports)
    try:
        wait_for(lambda: found.port.connected or not wire.path.exists(), what="the port is open")
        yield found
    finally:
        found.adapter.stop()
        assert not found.adapter._writer.alive


def command(text: bytes, topic: str = "serial/a") -> Command:
    return Command("test/lamps", topic, text, 1, False)


def reads(engine, value: str) -> None:
    wait_for(lambda: value_of(engine, T) == value, what=f"the value {value}")


def test_lines_become_values_despite_noise(engine, observations, wire):
    with serving(observations, wire) as serial:
        wire.send(b'\n{"t": 21.5}\r\n')
        reads(engine, "21.5")
        wire.send(b'\xff\x00\xfe\n{"t": 22.5}\n')
        reads(engine, "22.5")
        wire.send(b'{"t": oops}\n{"t": 23.5}\n')
        reads(engine, "23.5")
        assert serial.port.tally.frames == 4
        assert serial.port.tally.bad == 1
        wait_for(lambda: len(serial.bad()) == 2, what="both are listed")
        reasons = {each["reason"] for each in serial.bad()}
        assert "it is not a line of text" in reasons
        assert any("not JSON" in str(reason) for reason in reasons)


def test_noise_is_one_entry_with_a_count(engine, observations, wire):
    with serving(observations, wire) as serial:
        wire.send(b"\n" + b"\xff\xff\n" * 500 + b'{"t": 1}\n')
        reads(engine, "1")
        wait_for(lambda: sum(int(str(each["count"])) for each in serial.bad()) == 500, what="all are counted")
        assert len(serial.bad()) == 1
        assert serial.ingest.bad_values.total == 500


def test_a_device_that_is_unplugged_comes_back(engine, observations, wire, caplog):
    caplog.set_level("INFO", "edge.adapters.serial_port")
    with serving(observations, wire) as serial:
        for value in (1, 2, 3):
            wait_for(lambda: serial.port.connected, what="the port is open")
            wire.send(b'\n{"t": %d}\n' % value)
            reads(engine, str(value))
            wire.unplug()
            wait_for(lambda: not serial.port.connected, what="the port is closed")
            assert serial.port.reason
            wire.plug()
        wait_for(lambda: len(serial.ups) == 4, what="it is open again")
    reported = [record.getMessage() for record in caplog.records]
    assert reported == ["serial.up", "serial.down"] * 3 + ["serial.up"], "once down, once up"


def test_a_missing_device_is_waited_for(engine, observations, tmp_path):
    wire = Wire(tmp_path / "tty")
    with serving(observations, wire) as serial:
        wait_for(lambda: "No such file" in serial.port.reason, what="it is reported")
        with wire:
            wait_for(lambda: serial.port.connected, what="the port is open")
            wire.send(b'\n{"t": 5}\n')
            reads(engine, "5")


def test_a_port_is_opened_exclusively(engine, observations, wire):
    with serving(observations, wire) as serial, pytest.raises(DeviceUnavailable, match="in use by another program"):
        open_device(serial.pack.ports[0])


def test_ports_follow_the_files(engine, observations, wire, tmp_path):
    with serving(observations, wire) as serial, Wire(tmp_path / "other") as other:
        same = load_pack(JSON_LINES.replace("DEVICE", str(wire.path)), "moved").ports
        before = serial.port
        serial.adapter.follow(same)
        assert serial.port is before, "nothing has changed"
        serial.adapter.follow(load_pack(JSON_LINES.replace("DEVICE", str(other.path)), "test").ports)
        wait_for(lambda: serial.port.connected, what="the other device is open")
        other.send(b'\n{"t": 7}\n')
        reads(engine, "7")
        assert not before.alive
        serial.adapter.follow(())
        assert serial.adapter.ports == []
        assert serial.adapter.alive


def test_commands_are_framed_and_conflated_while_the_device_is_away(engine, observations, tmp_path):
    wire = Wire(tmp_path / "tty")
    with serving(observations, wire) as serial:
        assert serial.adapter.put(command(b"LED 0"), 0.01) == ""
        assert serial.adapter.put(command(b"LED 1"), 0.01) == ""
        assert serial.adapter.put(command(b"FAN 3", "serial/a/fan"), 0.01) == ""
        assert serial.port.commands.conflated == 1
        with wire:
            wire.expect(b"LED 1\nFAN 3\n")
            wait_for(lambda: serial.port.commands.sent == 2, what="both are sent")
            serial.adapter.put(command(b"LED\n2"), 0.01)
            serial.adapter.put(command(b"LED 3", "serial/a/led"), 0.01)
            wire.expect(b"LED 3\n")
            assert serial.port.commands.failed == 1
            assert "no frame can be made of it" in str(serial.bad()[0]["reason"])
    assert serial.adapter.put(command(b"LED 4"), 0.01) == "the port does not exist any more"


def test_a_device_that_does_not_read_delays_neither_readings_nor_others(engine, observations, wire):
    with serving(observations, wire, actuation=ActuationSettings(rate=1000.0)) as serial:
        count = 100
        for number in range(count):
            assert serial.adapter.put(command(b"x" * 4000, f"serial/a/{number}"), 0.001) == ""
        wire.send(b'\n{"t": 9}\n')
        reads(engine, "9")
        assert serial.port.commands.sent < count, "Linux keeps some of it"
        wait_for(lambda: (wire.received(), serial.port.commands.sent == count)[1], what="all are sent once it reads")


def test_a_full_queue_stops_reading_and_loses_nothing_that_linux_buffers(engine, observations, wire):
    with serving(observations, wire, max_queued=2, max_batch=1) as serial:
        blocked, go = threading.Event(), threading.Event()

        def hold() -> None:
            blocked.set()
            go.wait(20)

        engine.on_writer(hold)
        assert blocked.wait(10)
        try:
            wire.send(b"\n" + b"".join(b'{"t": %d}\n' % value for value in range(100)))
            wait_for(lambda: serial.adapter.queued == 2, what="the queue is full")
            serial.adapter.put(command(b"ON"), 0.01)
            wire.expect(b"ON\n")
        finally:
            go.set()
        reads(engine, "99")
        assert serial.port.tally.frames == 100
        wait_for(lambda: serial.adapter.written == 100, what="all are carried out")


def test_an_endless_line_is_read_at_a_bounded_cost(engine, observations, wire):
    """Bytes that all look like the start of a frame are the most expensive noise."""
    text = JSON_LINES + 'payload = "json"\n'
    text = text.replace(
        'name = "a"', 'name = "a"\nframing = { kind = "length", sync = "C0", plus = 4 }\ncrc = "crc-32"\nskip = 2'
    )
    with serving(observations, wire, text) as serial:
        wire.send(b"\xc0" * 50_000)
        wait_for(lambda: serial.port.tally.discarded > 45_000, what="the noise is read")
        wire.send(encoded(serial.pack.ports[0], b'{"t": 4}'))
        reads(engine, "4")


def usb(device: str, vendor: int, product: int, serial: str | None) -> ListPortInfo:
    found = ListPortInfo(device, skip_link_detection=True)
    found.vid, found.pid, found.serial_number = vendor, product, serial
    return found


def test_usb_identities(monkeypatch):
    there = [
        usb("/dev/ttyUSB0", 0x10C4, 0xEA60, "A"),
        usb("/dev/ttyUSB1", 0x10C4, 0xEA60, "B"),
        usb("/dev/ttyACM0", 0x2341, 0x0043, None),
        ListPortInfo("/dev/ttyS0", skip_link_detection=True),
    ]
    monkeypatch.setattr(list_ports, "comports", lambda: there)
    assert find(UsbDevice(0x10C4, 0xEA60, "B")) == "/dev/ttyUSB1"
    assert find(UsbDevice(0x2341, None, None)) == "/dev/ttyACM0"
    with pytest.raises(
        DeviceUnavailable, match=re.escape("/dev/ttyUSB0 (usb:10c4:ea60:A), /dev/ttyUSB1 (usb:10c4:ea60:B); tell")
    ):
        find(UsbDevice(0x10C4, 0xEA60, None))
    with pytest.raises(DeviceUnavailable, match="no such USB device"):
        find(UsbDevice(0x10C4, 0xEA60, "C"))
