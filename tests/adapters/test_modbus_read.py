"""`edge modbus read`: registers of a simulated device, read once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import serial
from click.testing import CliRunner, Result
from pymodbus.constants import ExcCodes

from edge.cli.modbus import read
from tests.adapters.modbus_simulator import NullModem, Simulator, words
from tests.support.processes import free_port


@pytest.fixture
def meter() -> Iterator[Simulator]:
    with Simulator(free_port()) as simulator:
        simulator.set(100, words("h", -215), "input")
        simulator.set(102, list(reversed(words("I", 70_000))))
        simulator.set(110, words("f", 21.2))
        simulator.set(120, [0x4142, 0x4300])
        simulator.set(3, [1], "coil")
        yield simulator


def reading(meter: Simulator, *arguments: str) -> Result:
    return CliRunner().invoke(read, [f"127.0.0.1:{meter.port}", "--timeout", "0.5", *arguments])


def test_registers_of_all_types_are_read(meter):
    arguments = ("input:100:int16*0.1", "0x6E:float32", "120:string2", "coil:3", "discrete:4", "7")
    done = reading(meter, *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["input", "100", "int16", "ff29", "-21.5"],
        ["holding", "110", "float32", "41a9", "999a", "21.2"],
        ["holding", "120", "string", "4142", "4300", '"ABC"'],
        ["coil", "3", "bit", "true"],
        ["discrete", "4", "bit", "false"],
        ["holding", "7", "uint16", "0000", "0"],
    ]
    found = json.loads(reading(meter, "--json", "--word-order", "little", "102:uint32").stdout)
    value = {"unit_id": 1, "table": "holding", "address": 102, "type": "uint32", "scale": None}
    assert found == [value | {"content": [4464, 1], "value": 70_000}]
    (scaled,) = json.loads(reading(meter, "--json", "input:100:int16*0.1").stdout)
    assert (scaled["scale"], scaled["value"]) == (0.1, -21.5)


def test_a_long_range_is_several_requests_and_a_refused_one_is_divided(meter):
    found = json.loads(reading(meter, "0-259", "--json").stdout)
    assert [each["address"] for each in found] == list(range(260))
    assert [request[3] for request in meter.requests] == [125, 125, 10]
    meter.refused[12] = ExcCodes.ILLEGAL_ADDRESS
    done = reading(meter, "10-15:uint32", "--json")
    assert done.exit_code == 1
    assert [(each["address"], "problem" in each) for each in json.loads(done.stdout)] == [
        (10, False),
        (12, True),
        (14, False),
    ]
    assert "many manuals count from 1), another TABLE" in reading(meter, "12").stdout
    meter.requests.clear()
    found = json.loads(reading(meter, "0-99", "--json").stdout)
    assert [each["address"] for each in found if "problem" in each] == [12]
    assert [each["address"] for each in found] == list(range(100))
    assert len(meter.requests) < 20  # each refused block is halved


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_was_read_is_kept_if_the_rest_is_interrupted(meter, monkeypatch, form):
    from edge.modbus_client import ModbusClient

    whole = ModbusClient.read

    def interrupted(self, unit_id, table, address, count):
        if address:
            raise KeyboardInterrupt
        return whole(self, unit_id, table, address, count)

    monkeypatch.setattr(ModbusClient, "read", interrupted)
    done = reading(meter, "0-200", *form)
    assert done.exit_code == 1
    assert len(json.loads(done.stdout) if form else done.stdout.splitlines()) == 125


def test_a_device_that_does_not_answer_is_1_with_a_remedy(meter):
    meter.silent.add(9)
    done = reading(meter, "7", "--unit-id", "9")
    assert done.exit_code == 1
    assert "--unit-id" in done.stderr
    unused = free_port()
    gone = CliRunner().invoke(read, [f"tcp://127.0.0.1:{unused}", "7"])
    assert gone.exit_code == 1
    assert f"127.0.0.1:{unused} cannot be connected: Connection refused; no program accepts connections" in gone.stderr
    missing = CliRunner().invoke(read, ["/dev/none", "7"])
    assert (missing.exit_code, "No such file" in missing.stderr, "check the path" in missing.stderr) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "words_of_error"),
    [
        (["127.0.0.1", "holdin:1"], "is not a table"),
        (["127.0.0.1", "1:int12"], "is not a type"),
        (["127.0.0.1", "coil:1:int16"], "is a bit"),
        (["127.0.0.1", "70000"], "0 to 65535"),
        (["127.0.0.1", "9-3"], "below the first"),
        (["127.0.0.1", "65535:uint32"], "0 to 65535"),
        (["127.0.0.1", "1*1e99"], "between 1e-40"),
        (["127.0.0.1", "1*--"], "is not a number"),
        (["127.0.0.1", "x"], "is not a register"),
        (["http://127.0.0.1", "1"], "is not a device"),
        (["127.0.0.1:port", "1"], "is not a device"),
        (["127.0.0.1:0", "1"], "is not a device"),
        (["tcp://127.0.0.1/1", "1"], "is not a device"),
        (["::1", "1"], "needs brackets"),
        (["ttyUSB0", "1"], "whole path of a serial line, such as /dev/ttyUSB0"),
        (["./ttyX", "1"], "whole path of a serial line"),
        (["127.0.0.1", "0-4:uint32"], "LAST is the last register, and a value has 2"),
    ],
)
def test_a_wrong_command_line_is_2(arguments, words_of_error):
    done = CliRunner().invoke(read, arguments)
    assert done.exit_code == 2
    assert words_of_error in done.stderr


def test_a_serial_line_is_read_unless_another_program_uses_it(tmp_path):
    with NullModem(tmp_path) as cable, Simulator(line=cable.other) as meter:
        meter.set(5, [17], device=2)
        command = [str(cable.one), "5", "--unit-id", "2", "--baud", "115200", "--timeout", "0.5"]
        done = CliRunner().invoke(read, command)
        assert (done.exit_code, done.stdout.split()) == (0, ["holding", "5", "uint16", "0011", "17"])
        with serial.Serial(str(cable.one), exclusive=True):
            used = CliRunner().invoke(read, command)
        assert used.exit_code == 1
        assert "the gateway or another program uses this line" in used.stderr
