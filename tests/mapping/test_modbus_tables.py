"""Modbus devices in mapping files: registers, their readings, faults with their line, and polling groups."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import Mapper, MappingError, load_pack
from edge.mapping.modbus_devices import LineBus, TcpBus
from edge.mapping.modbus_polling import poll_groups
from edge.mapping.modbus_values import INTEGERS, RegisterFormat, truth
from edge.mapping.solution import SolutionTerm

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    text
    for page in ("modbus.md", "how-to/modbus.md")
    for text in re.findall(r"```toml[^\n]*\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    if "[[modbus]]" in text
]


def device(registers: str, keys: str = 'host = "192.0.2.1"'):
    (found,) = load_pack(f'[[modbus]]\nname = "d"\n{keys}\nregisters = [\n{registers}\n]\n', "f").devices
    return found


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_documentation_loads(number):
    pack = load_pack(EXAMPLES[number], "example")
    assert pack.devices
    assert pack.warnings == ()


def test_a_device_and_the_mapping_of_its_values():
    pack = load_pack(
        """
[defaults]
store = "change"

[[modbus]]
name = "heating"
host = "192.0.2.1"
location = "edge:place:cellar"
registers = [
  { name = "flow", address = 5, type = "int16", scale = 0.1, unit = "°C", write = { min = 20, max = 60 } },
  { name = "pump", address = 6, table = "coil", write = true },
  { name = "mode", address = 7, values = { 0 = "off", 1 = "auto" }, write = true },
  { name = "fault", address = 8, bit = 15 },
  { name = "serial", address = 9, type = "string", length = 8, label = "Serial number" },
]
""",
        "f",
    )
    assert pack.warnings == ()
    mapper = Mapper([pack])
    payload = b'{"flow": 455, "pump": true, "mode": 1, "fault": false, "serial": "A1"}'
    mapped = mapper.map("modbus/heating", payload)
    assert mapped.problems == ()
    found = {each.observation.rpartition("/")[2]: each for each in mapped.readings}
    assert {name: each.value for name, each in found.items()} == {
        "flow": "45.5",
        "pump": "true",
        "mode": "auto",
        "fault": "false",
        "serial": "A1",
    }
    assert {each.location for each in mapped.readings} == {"urn:sepa-edge:place:cellar"}
    assert {each.sensor for each in mapped.readings} == {"urn:sepa-edge:modbus:heating"}
    assert found["flow"].unit == "http://qudt.org/1.1/vocab/unit#DegreeCelsius"
    assert (found["pump"].label, found["serial"].label) == ("pump of heating", "Serial number")

    def told(name: str, value: str, datatype: str = "string") -> tuple[str, bytes]:
        setter, captures = mapper.setter("modbus/heating", f"urn:sepa-edge:modbus:heating/{name}")
        return setter.render(captures, SolutionTerm(value, f"http://www.w3.org/2001/XMLSchema#{datatype}"))

    assert told("flow", "45.5", "decimal") == ("modbus/heating/flow", b"45.5")
    assert told("pump", "true", "boolean") == ("modbus/heating/pump", b"true")
    assert told("mode", "auto") == ("modbus/heating/mode", b"1")
    assert mapper.setter("modbus/heating", "urn:sepa-edge:modbus:heating/fault") is None
    (available,) = mapper.map("modbus/heating/available", b"offline").readings
    assert (available.value, available.observation) == ("false", "urn:sepa-edge:modbus:heating/available")
    (found,) = pack.devices
    assert found.register("modbus/heating/flow").scale == Decimal("0.1")
    assert found.register("modbus/heating/fault") is None
    assert "urn:sepa-edge:modbus:heating/flow" in {each.observation for each in mapper.declared()}


def test_lines_and_connections():
    assert device('{ name = "a", address = 0 }').bus == TcpBus("192.0.2.1", 502, "tcp")
    line = device('{ name = "a", address = 0 }', 'device = "/dev/ttyUSB0"\nbaud = 2400\nparity = "even"')
    assert line.bus == LineBus("/dev/ttyUSB0", 2400, "even", 1)


def test_scale_defaults_of_the_file_apply_to_writes():
    text = '[defaults]\nscale = 0.5\n[[modbus]]\nname = "d"\nhost = "h"\n'
    text += 'registers = [{ name = "a", address = 0, write = true }]'
    (found,) = load_pack(text, "f").devices
    assert found.register("modbus/d/a").scale == Decimal("0.5")
    (other,) = load_pack(text.replace("0.5", "0.25"), "f").devices
    assert not found.same(other)
    assert found.same(load_pack(text + "\n# the same", "f").devices[0])


FAULTS = [
    ('{ name = "a", address = 0, unit = "Celcius" }', "5", 'registers[0].unit: "Celcius" is not a unit'),
    ('{ name = "a", address = 65535, type = "float32" }', "5", "registers[0].address: The value ends after"),
    ('{ name = "a", address = 70000 }', "5", "registers[0].address: Must be less than or equal to 65535"),
    ('{ name = "a", address = 0, tabel = "input" }', "5", 'registers[0].tabel: Unknown key. Did you mean "table"?'),
    ('{ name = "a", address = 0 },\n{ name = "a", address = 1 }', "6", "registers[1].name: Another register"),
    ('{ name = "a", address = 0 },\n{ name = "b b", address = 1 }', "6", "registers[1].name: A name has"),
    ('{ name = "available", address = 0 }', "5", "registers[0].name: A name has"),
    ('{ name = "a", address = 0, table = "coil", type = "int16" }', "5", "registers[0].type: Coils and discrete"),
    ('{ name = "a", address = 0, type = "string" }', "5", "registers[0].length: A string has a length"),
    ('{ name = "a", address = 0, type = "float32", bit = 1 }', "5", "registers[0].bit: Only integers have bits"),
    ('{ name = "a", address = 0, bit = [12, 8] }', "5", "registers[0].bit: This is beyond the 16 bits"),
    ('{ name = "a", address = 0, no_value = 0x18000 }', "5", "registers[0].no_value: The content is larger"),
    ('{ name = "a", address = 0, table = "input", write = true }', "5", "registers[0].write: Input registers and"),
    ('{ name = "a", address = 0, bit = 1, write = true }', "5", "registers[0].write: Single bits"),
    ('{ name = "a", address = 0, write = { function = 15 } }', "5", "registers[0].write: The table and the size"),
    ('{ name = "a", address = 0, write = { min = 5, max = 1 } }', "5", "registers[0].write.min: The smallest value"),
    ('{ name = "a", address = 0, type = "int24" }', "5", "registers[0].type: Must be 'int16'"),
    ('{ name = "a", address = 0, type = "float64", interval = 0.01 }', "5", "registers[0].interval: Must be greater"),
]


@pytest.mark.parametrize(("registers", "line", "fault"), FAULTS, ids=range(len(FAULTS)))
def test_faults_of_registers_have_their_line(registers, line, fault):
    with pytest.raises(MappingError) as caught:
        device(registers)
    assert f'f:{line}: modbus "d": {fault}' in str(caught.value)
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("", "host: A device has either a host or a serial line."),
        ('host = "h"\ndevice = "/dev/x"', "host: A device has either a host or a serial line."),
        ('host = "h"\nbaud = 9600', "baud: This is for serial lines."),
        ('device = "/dev/x"\nport = 5', "port: This is for TCP connections."),
        ('device = "ttyUSB0"', 'device: "ttyUSB0" is neither a path nor a USB identity.'),
        ('device = "/dev/x"\nunit_id = 250', "unit_id: On a serial line, an address is at most 247."),
        ('host = "h"\nunit_id = 0', "unit_id: Must be greater than or equal to 1."),
        ('host = "h"\nmax_registers = 126', "max_registers: Must be less than or equal to 125."),
        ('host = "modbus://h"', "host: A host is a name or an address, without a port."),
        ('host = "192.0.2.1:502"', "host: A host is a name or an address, without a port."),
        ('host = "[2001:db8::1]"', "host: A host is a name or an address, without a port."),
    ],
)
def test_faults_of_devices(keys, fault):
    with pytest.raises(MappingError) as caught:
        device('{ name = "a", address = 0 }', keys)
    assert f'modbus "d": {fault}' in str(caught.value)


def test_tables_in_brackets_have_lines_too():
    text = '[[modbus]]\nname = "d"\nhost = "h"\n[[modbus.registers]]\nname = "a"\naddress = 1\n'
    text += '[[modbus.registers]]\nname = "b"\n'
    with pytest.raises(MappingError, match=r'f:7: modbus "d": registers\[1\].address: Field required'):
        load_pack(text, "f")
    with pytest.raises(MappingError, match=r'f:9: modbus "d": registers\[1\].write: Input'):
        load_pack(text + 'write = true\naddress = 2\ntable = "input"\n', "f")


def test_devices_of_a_line_have_the_same_settings():
    text = '[[modbus]]\nname = "NAME"\ndevice = "/dev/x"\nbaud = BAUD\nregisters = [{ name = "a", address = 0 }]\n'
    one, other = text.replace("NAME", "one").replace("BAUD", "9600"), text.replace("NAME", "other")
    assert len(load_pack(one + other.replace("BAUD", "9600"), "f").devices) == 2
    with pytest.raises(MappingError, match='f:8: modbus "other": device: "one" has the same line with another speed'):
        load_pack(one + other.replace("BAUD", "19200"), "f")
    with pytest.raises(MappingError, match="Another device of this file has that name"):
        load_pack(one + one, "f")


ORDERS = st.sampled_from(["big", "little"])


@given(st.sampled_from(sorted(INTEGERS)), st.integers(), ORDERS, ORDERS)
def test_integers_round_trip(kind, number, byte_order, word_order):
    count, signed = INTEGERS[kind]
    number %= 1 << 16 * count
    if signed:
        number -= 1 << 16 * count - 1
    form = RegisterFormat(kind, count, byte_order, word_order)
    assert form.decode(form.encode(str(number))) == str(number)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), ORDERS, ORDERS)
def test_floats_round_trip(number, byte_order, word_order):
    for form in (
        RegisterFormat("float32", 2, byte_order, word_order),
        RegisterFormat("float64", 4, byte_order, word_order),
    ):
        assert float(form.decode(form.encode(repr(number)))) == pytest.approx(number, rel=1e-7, abs=1e-45)


@given(st.integers(-32768, 32767), st.sampled_from(["0.1", "0.001", "3", "0.3"]), st.sampled_from(["0", "-40", "0.05"]))
def test_writes_invert_scale_and_offset(raw, scale, offset):
    form = RegisterFormat("int16", 1)
    value = Decimal(raw) * Decimal(scale) + Decimal(offset)
    assert form.encode(str(value), Decimal(scale), Decimal(offset)) == [raw % 65536]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8), ORDERS)
def test_texts_round_trip(text, byte_order):
    form = RegisterFormat("string", 16, byte_order, "little")
    assert form.decode(form.encode(text)) == text.strip()


def words(form: str, value: object) -> list[int]:
    data = struct.pack(f">{form}", value)
    return list(struct.unpack(f">{len(data) // 2}H", data))


@pytest.mark.parametrize(
    ("form", "given", "value"),
    [
        (RegisterFormat("float32", 2), words("f", 230.1), "230.1"),
        (RegisterFormat("float32", 2, word_order="little"), words("f", 230.1)[::-1], "230.1"),
        (RegisterFormat("float32", 2, byte_order="little"), [0x6643, 0x9A19], "230.1"),
        (RegisterFormat("float32", 2), [0x7FC0, 0], None),
        (RegisterFormat("float64", 4), words("d", float("inf")), None),
        (RegisterFormat("int16", 1, no_value=frozenset({0x8000})), [0x8000], None),
        (RegisterFormat("int16", 1), [0x8000], "-32768"),
        (RegisterFormat("int32", 2, word_order="little"), [0xFFFE, 0xFFFF], "-2"),
        (RegisterFormat("uint16", 1, bits=(3, 1)), [0b1000], True),
        (RegisterFormat("uint16", 1, bits=(4, 4)), [0xABCD], "12"),
        (RegisterFormat("string", 3), words("6s", b"AB\0\xff\0\0"), "AB"),
    ],
)
def test_decoding(form, given, value):
    assert form.decode(given) == value


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        (RegisterFormat("int16", 1), "40000", "out of the range of int16"),
        (RegisterFormat("uint16", 1), "-1", "out of the range of uint16"),
        (RegisterFormat("int16", 1), "warm", "is not a number"),
        (RegisterFormat("int16", 1), "NaN", "is not a number"),
        (RegisterFormat("int16", 1), "1e999999999", "has too many digits"),
        (RegisterFormat("float32", 2), "1e39", "too large for float32"),
        (RegisterFormat("string", 1), "abc", "the text has 3 bytes, the registers hold 2"),
        (RegisterFormat("int16", 1, no_value=frozenset({0x8000})), "-32768", 'means "no value"'),
    ],
)
def test_values_that_a_register_cannot_hold(form, text, reason):
    with pytest.raises(ValueError, match=reason):
        form.encode(text)


def test_truth_values():
    assert [truth(text) for text in ("true", "ON", "1", "false", "off", "0")] == [True] * 3 + [False] * 3
    assert RegisterFormat("uint16", 1).encode("true") == [1]
    with pytest.raises(ValueError, match="is not a truth value"):
        truth("maybe")


def places(registers: str, keys: str = "") -> list[list[tuple[str, int, int]]]:
    found = device(registers, f'host = "h"\n{keys}')
    return [[(each.table, each.address, each.count) for each in group.requests] for group in found.groups]


def test_adjacent_registers_are_read_together():
    registers = ",".join(f'{{ name = "r{n}", address = {n}, type = "float32" }}' for n in range(0, 200, 2))
    assert places(registers) == [[("holding", 0, 124), ("holding", 124, 76)]]
    assert places(registers, "max_registers = 80") == [[("holding", 0, 80), ("holding", 80, 80), ("holding", 160, 40)]]


def test_gaps_are_read_only_if_they_may_be():
    registers = '{ name = "a", address = 0 }, { name = "b", address = 3 }, { name = "c", address = 3, table = "input" }'
    assert places(registers) == [[("holding", 0, 1), ("holding", 3, 1), ("input", 3, 1)]]
    assert places(registers, "gap = 2") == [[("holding", 0, 4), ("input", 3, 1)]]


def test_bits_of_one_register_are_read_once():
    registers = ",".join(f'{{ name = "b{n}", address = 9, bit = {n} }}' for n in range(16))
    assert places(registers) == [[("holding", 9, 1)]]


def test_intervals_are_groups():
    registers = '{ name = "a", address = 0, interval = 1 }, { name = "b", address = 1 }'
    assert places(registers, "interval = 60") == [[("holding", 0, 1)], [("holding", 1, 1)]]


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 4)), min_size=1, max_size=60),
    st.integers(0, 10),
    st.integers(4, 125),
)
def test_each_value_is_in_one_request(values, gap, most):
    text = ",".join(
        f'{{ name = "v{n}", address = {address}, type = "{("uint16", "uint32", "string", "uint64")[count - 1]}"'
        + (", length = 3" if count == 3 else "")
        + " }"
        for n, (address, count) in enumerate(values)
    )
    registers = device(text).registers
    (group,) = poll_groups(registers, lambda _: most, gap)
    read = [value.name for request in group.requests for value in request.values]
    assert sorted(read) == sorted(each.name for each in registers)
    for request in group.requests:
        assert request.count <= most
        for value in request.values:
            assert request.address <= value.address
            assert value.address + value.count <= request.address + request.count
        parts = request.halves()
        assert sorted(each.name for part in parts for each in part.values) == sorted(
            each.name for each in request.values
        )


def test_devices_are_the_same_if_their_requests_are():
    register = '{ name = "a", address = 1, write = true%s }'
    one = device(register % "")
    assert one.same(device(register % ', label = "A", unit = "V"'))
    for other in (register % ", scale = 2", register.replace("write = true", "write = { max = 5 }") % ""):
        assert not one.same(device(other))
    assert not one.same(device(register % "", 'host = "192.0.2.2"'))
    assert not one.same(device(register % "", 'host = "192.0.2.1"\ntimeout = 5'))
    assert device(register % "", 'host = "2001:db8::1"').bus == TcpBus("2001:db8::1", 502, "tcp")


@pytest.mark.parametrize("text", ["1_0", "1_0.5", "_1"])
def test_digits_are_not_grouped(text):
    with pytest.raises(ValueError, match="is not a number"):
        RegisterFormat("uint16", 1).encode(text)
