"""The Modbus adapter against a simulated device: values, commands, exceptions, dead peers, serial lines."""

from contextlib import contextmanager

import pytest
from pymodbus.constants import ExcCodes

from edge.adapters.ingest import Ingest
from edge.adapters.modbus import ModbusAdapter
from edge.adapters.settings import ActuationSettings, ModbusSettings
from edge.mapping.actuators import Command
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from tests.adapters.adapter_parts import value_of
from tests.adapters.modbus_simulator import NullModem, Simulator, words
from tests.support.processes import free_port
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

METER = """
[[modbus]]
name = "meter"
host = "127.0.0.1"
port = PORT
interval = 0.1
registers = [
  { name = "voltage", address = 0, table = "input", type = "float32", unit = "V" },
  { name = "power", address = 2, table = "input", type = "int32", word_order = "little", scale = 0.1, unit = "W" },
  { name = "energy", address = 100, type = "uint64", unit = "Wh" },
  { name = "setpoint", address = 10, type = "int16", scale = 0.1, unit = "°C", write = { min = 5, max = 30 } },
  { name = "relay", address = 3, table = "coil", write = true },
  { name = "door", address = 7, table = "discrete" },
  { name = "alarm", address = 20, bit = 3 },
  { name = "model", address = 30, type = "string", length = 4 },
]
"""


class Serving:
    """A Modbus adapter on an engine, with the devices of a file."""

    def __init__(self, observations, text: str, **settings: object) -> None:
        self.pack = load_pack(text, "test")
        mapper = Mapper([self.pack])
        self.ingest = Ingest(lambda: mapper, observations)
        self.ups: list[str] = []
        self.accepted: list[Command] = []
        options = unchecked(
            ModbusSettings, **{"timeout": 0.3, "reconnect": 0.05, "reconnect_max": 0.2, "retry_min": 0.02, **settings}
        )
        self.given_up: list[tuple[str, bool]] = []
        self.adapter = ModbusAdapter(
            options, ActuationSettings(), self.ingest, self._up, self.accepted.append, self._give_up
        )

    def _up(self, device, done) -> None:
        self.ups.append(device.name)
        done()

    def _give_up(self, command: Command, refused: bool) -> None:
        self.given_up.append((command.topic, refused))

    def device(self, name: str = "meter"):
        return next(each for each in self.adapter.devices if each.device.name == name)

    def bad(self) -> list[dict[str, object]]:
        return self.ingest.bad_values.listed()


@contextmanager
def serving(observations, text: str, **settings: object):
    found = Serving(observations, text, **settings)
    found.adapter.start()
    found.adapter.follow(found.pack.devices)
    try:
        yield found
    finally:
        found.adapter.stop()
        assert not found.adapter.alive


@pytest.fixture
def simulator():
    with Simulator(free_port()) as simulator:
        yield simulator


def meter(simulator: Simulator, text: str = METER) -> str:
    return text.replace("PORT", str(simulator.port))


def iri(value: str, device: str = "meter") -> str:
    return f"urn:sepa-edge:modbus:{device}/{value}"


def command(value: str, text: str, device: str = "meter") -> Command:
    return Command("test/c", f"modbus/{device}/{value}", text.encode(), 1, False)


def reads(engine, name: str, value: str, device: str = "meter") -> None:
    wait_for(lambda: value_of(engine, iri(name, device)) == value, what=f"{name} {value}")


def test_values_of_all_tables_become_observations(engine, observations, simulator):
    simulator.set(0, words("f", 230.1), "input")
    simulator.set(2, words("i", -1234)[::-1], "input")
    simulator.set(100, words("Q", 2**40 + 1))
    simulator.set(10, words("h", -25))
    simulator.set(3, [1], "coil")
    simulator.set(7, [1], "discrete")
    simulator.set(20, [0b1000])
    simulator.set(30, words("8s", b"SDM120\0\0"))
    with serving(observations, meter(simulator)):
        reads(engine, "voltage", "230.1")
        reads(engine, "power", "-123.4")
        reads(engine, "energy", str(2**40 + 1))
        reads(engine, "setpoint", "-2.5")
        for name in ("relay", "door", "alarm", "available"):
            reads(engine, name, "true")
        reads(engine, "model", "SDM120")
        simulator.set(0, words("f", 231.2), "input")
        reads(engine, "voltage", "231.2")
    assert (1, 4, 0, 4) in simulator.requests, "adjacent registers are read together"


def test_commands_are_written_to_registers(engine, observations, simulator):
    with serving(observations, meter(simulator)) as modbus:
        wait_for(lambda: modbus.device().available, what="the device answers")
        for value, text in (("setpoint", "21.5"), ("relay", "true")):
            assert modbus.adapter.put(command(value, text), 0.01) == ""
        wait_for(lambda: len(modbus.accepted) == 2, what="both are accepted")
        assert simulator.get(10) == [215]
        assert simulator.get(3, table="coil") == [1]
        reads(engine, "setpoint", "21.5")
        reads(engine, "relay", "true")
        assert modbus.device().commands.sent == 2
        assert modbus.adapter.put(command("voltage", "1"), 0.01) == ""
        assert modbus.adapter.put(command("setpoint", "99999"), 0.01) == ""
        wait_for(lambda: len(modbus.bad()) == 2, what="the others are listed")
        reasons = {str(each["topic"]): str(each["reason"]) for each in modbus.bad()}
        assert "no such register" in reasons["modbus/meter/voltage"]
        assert "out of the range of int16" in reasons["modbus/meter/setpoint"]
        assert "does not exist" in modbus.adapter.put(command("x", "1", "other"), 0.01)


def test_an_exception_is_reported_once_and_the_others_go_on(engine, observations, simulator, caplog):
    simulator.refused[2] = ExcCodes.ILLEGAL_ADDRESS  # within the request for voltage and power
    simulator.set(0, words("f", 230.1), "input")
    with serving(observations, meter(simulator)) as modbus:
        reads(engine, "voltage", "230.1")
        polls = modbus.device().polls
        wait_for(lambda: modbus.device().polls > polls + 3, what="more polls")
        assert value_of(engine, iri("power")) is None
        (bad,) = modbus.bad()
        assert bad["count"] == 1
        assert "illegal data address" in str(bad["reason"])
        assert "power" in str(bad["reason"])
        assert "voltage" not in str(bad["reason"])
        assert [each.getMessage() for each in caplog.records].count("modbus.refused") == 1
        del simulator.refused[2]
        reads(engine, "power", "0")


def test_a_refused_command_is_listed_and_not_repeated(engine, observations, simulator):
    with serving(observations, meter(simulator)) as modbus:
        wait_for(lambda: modbus.device().available, what="the device answers")
        simulator.refused[10] = ExcCodes.ILLEGAL_VALUE
        modbus.adapter.put(command("setpoint", "20"), 0.01)
        wait_for(lambda: modbus.device().commands.failed == 1, what="it is refused")
        assert len(modbus.device().commands) == 0
        assert modbus.accepted == []
        assert [each for each in modbus.bad() if "illegal data value" in str(each["reason"])]


def test_a_dead_peer_comes_back_with_its_values_and_commands(engine, observations, caplog):
    caplog.set_level("INFO", "edge.adapters.modbus_bus")
    simulator = Simulator(free_port())
    with serving(observations, meter(simulator)) as modbus:
        reads(engine, "available", "false")
        assert "cannot be connected" in modbus.device().reason
        assert modbus.adapter.put(command("setpoint", "22"), 0.01) == ""
        simulator.set(0, words("f", 230.5), "input")
        with simulator:
            reads(engine, "voltage", "230.5")
            reads(engine, "available", "true")
            wait_for(lambda: simulator.get(10) == [220], what="the command is written")
        reads(engine, "available", "false")
        simulator.set(0, words("f", 231.5), "input")
        with simulator:
            reads(engine, "voltage", "231.5")
        assert modbus.ups == ["meter", "meter"]
    names = [each.getMessage() for each in caplog.records if each.name == "edge.adapters.modbus_bus"]
    assert names[:4] == ["modbus.down", "modbus.up", "modbus.down", "modbus.up"]


TWO = """
[[modbus]]
name = "one"
LINE
interval = 0.1
registers = [{ name = "level", address = 1, write = true }]

[[modbus]]
name = "two"
LINE
unit_id = 2
interval = 0.1
registers = [{ name = "level", address = 1 }]
"""


def test_a_silent_device_of_a_bus_does_not_stop_the_others(engine, observations, simulator):
    simulator.set(1, [7], device=2)
    text = TWO.replace("LINE", f'host = "127.0.0.1"\nport = {simulator.port}')
    with serving(observations, text) as modbus:
        assert len({id(bus) for bus, _ in modbus.adapter._devices.values()}) == 1, "they share a connection"
        reads(engine, "level", "7", "two")
        reads(engine, "available", "true", "one")
        simulator.silent.add(1)
        reads(engine, "available", "false", "one")
        assert "timeout" in modbus.device("one").reason
        simulator.set(1, [8], device=2)
        reads(engine, "level", "8", "two")
        simulator.silent.clear()
        reads(engine, "available", "true", "one")


def test_devices_on_a_serial_line(engine, observations, tmp_path):
    with NullModem(tmp_path) as cable, Simulator(line=cable.other) as simulator:
        simulator.set(1, [5])
        simulator.set(1, [6], device=2)
        text = TWO.replace("LINE", f'device = "{cable.one}"\nbaud = 115200')
        with serving(observations, text) as modbus:
            reads(engine, "level", "5", "one")
            reads(engine, "level", "6", "two")
            modbus.adapter.put(command("level", "44", "one"), 0.01)
            reads(engine, "level", "44", "one")
            assert simulator.get(1) == [44]
            simulator.silent.add(1)
            reads(engine, "available", "false", "one")
            simulator.set(1, [8], device=2)
            reads(engine, "level", "8", "two")
            simulator.silent.clear()
            reads(engine, "available", "true", "one")


def test_unchanged_devices_continue_when_others_change(engine, observations, simulator):
    text = TWO.replace("LINE", f'host = "127.0.0.1"\nport = {simulator.port}')
    other = text.replace('name = "two"', 'name = "two"\nword_order = "little"').replace("127.0.0.1", "localhost", 1)
    with serving(observations, other) as modbus:
        reads(engine, "level", "0", "one")
        before = modbus.device("one")
        changed = load_pack(other.replace("unit_id = 2", "unit_id = 2\ngap = 3"), "test")
        modbus.adapter.follow(changed.devices)
        assert modbus.device("one") is before
        assert modbus.device("two").device is changed.devices[1]
        modbus.adapter.follow(())
        assert modbus.adapter.devices == []


UNANSWERED = """
[[modbus]]
name = "meter"
host = "127.0.0.1"
port = PORT
interval = 0.1
registers = [
  { name = "first", address = 1 },
  { name = "second", address = 2 },
  { name = "level", address = 50, write = true },
]
"""


def test_a_register_without_a_response_does_not_stop_the_others(engine, observations, simulator, caplog):
    simulator.mute.add((3, 2))
    with serving(observations, meter(simulator, UNANSWERED), timeout=0.1) as modbus:
        reads(engine, "first", "0")
        wait_for(lambda: [each for each in modbus.bad() if "second" in str(each["reason"])], what="it is reported")
        ups, device = len(modbus.ups), modbus.device()
        modbus.adapter.put(command("level", "7"), 0.01)
        polls = device.polls
        wait_for(lambda: device.polls > polls + 5, what="more polls")
        reads(engine, "level", "7")
        assert len(modbus.ups) == ups, "the device stays connected"
        (bad,) = modbus.bad()
        assert "no response" in str(bad["reason"])
        assert "first" not in str(bad["reason"])
        simulator.mute.clear()
        reads(engine, "second", "0")
        assert [each.getMessage() for each in caplog.records].count("modbus.refused") == 1


def test_a_write_without_a_response_is_given_up(engine, observations, simulator):
    with serving(observations, meter(simulator, UNANSWERED), timeout=0.1) as modbus:
        reads(engine, "level", "0")
        simulator.mute.add((6, 50))
        modbus.adapter.put(command("level", "7"), 0.01)
        wait_for(lambda: modbus.given_up, what="it is given up")
        assert modbus.given_up == [("modbus/meter/level", False)]
        assert [each for each in modbus.bad() if "whenever this was written" in str(each["reason"])]


def test_exceptions_of_a_write(engine, observations, simulator):
    with serving(observations, meter(simulator)) as modbus:
        reads(engine, "setpoint", "0")
        simulator.refused[10] = ExcCodes.ACKNOWLEDGE
        modbus.adapter.put(command("setpoint", "20"), 0.01)
        wait_for(lambda: len(modbus.accepted) == 1, what="the device has accepted it, and needs time")
        simulator.refused[10] = ExcCodes.DEVICE_BUSY
        modbus.adapter.put(command("setpoint", "21"), 0.01)
        wait_for(lambda: sum(each[1] == 6 for each in simulator.requests) > 4, what="it is tried again")
        assert not modbus.given_up
        del simulator.refused[10]
        reads(engine, "setpoint", "21")
        simulator.refused[10] = ExcCodes.DEVICE_FAILURE
        modbus.adapter.put(command("setpoint", "22"), 0.01)
        wait_for(lambda: modbus.given_up == [("modbus/meter/setpoint", True)], what="the device refuses it")


def test_limits_apply_to_all_commands(engine, observations, simulator):
    with serving(observations, meter(simulator)) as modbus:
        reads(engine, "setpoint", "0")
        for text in ("4.9", "30.1"):
            modbus.adapter.put(command("setpoint", text), 0.01)
            wait_for(lambda text=text: [each for each in modbus.bad() if text in str(each["reason"])], what="a reason")
        assert all(refused for _, refused in modbus.given_up)
        assert not [each for each in simulator.requests if each[1] == 6]


def test_divided_requests_are_joined_again(engine, observations, simulator):
    simulator.refused[2] = ExcCodes.ILLEGAL_ADDRESS
    with serving(observations, meter(simulator)) as modbus:
        wait_for(modbus.bad, what="it is divided")
        del simulator.refused[2]
        reads(engine, "power", "0")
        simulator.requests.clear()
        wait_for(lambda: (1, 4, 0, 4) in simulator.requests, what="one request for both")


def test_a_device_whose_terms_change_stays_connected(engine, observations, simulator):
    with serving(observations, meter(simulator)) as modbus:
        reads(engine, "voltage", "0")
        before = modbus.device()
        text = meter(simulator).replace('unit = "V"', 'unit = "V", label = "Voltage"')
        modbus.adapter.follow(load_pack(text, "test").devices)
        assert modbus.device() is before
