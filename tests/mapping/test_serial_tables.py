"""Serial ports in mapping files: valid declarations, and errors with their line."""

import re
from pathlib import Path

import pytest

from edge.mapping import Mapper, MappingError, load_pack
from edge.mapping.checksums import ALGORITHMS
from edge.mapping.serial_ports import UsbDevice

TEXT = (Path(__file__).parents[2] / "docs" / "serial.md").read_text("utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def port(keys: str):
    (found,) = load_pack(f'[[serial]]\nname = "p"\n{keys}\n', "f").ports
    return found


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_documentation_loads(number):
    assert load_pack(EXAMPLES[number], "example").ports


def test_every_checksum_is_documented():
    assert [name for name in ALGORITHMS if f"`{name}`" not in TEXT] == []


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("/dev/ttyUSB0", "/dev/ttyUSB0"),
        ("usb:10c4:EA60", UsbDevice(0x10C4, 0xEA60, None)),
        ("usb:10c4:*:A:1", UsbDevice(0x10C4, None, "A:1")),
        ("usb:*:*:0001", UsbDevice(None, None, "0001")),
        ("usb:10c4:ea60:*", UsbDevice(0x10C4, 0xEA60, None)),
    ],
)
def test_devices(text, device):
    assert port(f'device = "{text}"').device == device


def test_ports_of_all_files_are_known():
    files = [load_pack(f'[[serial]]\nname = "{name}"\ndevice = "/dev/x"\n', name) for name in "ab"]
    assert [each.topic for each in Mapper(files).ports] == ["serial/a", "serial/b"]
    assert files[0].ports[0].same(load_pack('[[serial]]\nname = "a"\ndevice = "/dev/x"\n# moved\n', "x").ports[0])


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ('device = "ttyUSB0"', '3: serial "p": device: "ttyUSB0" is neither a path nor a USB identity.'),
        ('device = "usb:*:*"', '3: serial "p": device: This could be any device.'),
        ('device = "/dev/x"\nbaud = "fast"', '4: serial "p": baud: Must be a valid integer.'),
        ('device = "/dev/x"\nspeed = 9600', '4: serial "p": speed: Unknown key.'),
        ('device = "/dev/x"\nparity = "often"', "4: serial \"p\": parity: Must be 'none', 'even', 'odd'"),
        (
            'device = "/dev/x"\ncrc = "crc-17"',
            '4: serial "p": crc: "crc-17" is not a known checksum. Did you mean "crc-1',
        ),
        (
            'device = "/dev/x"\nframing = { kind = "slip", end = "00" }',
            '4: serial "p": framing.end: Framing of the kind',
        ),
        (
            'device = "/dev/x"\nframing = { kind = "length" }',
            '4: serial "p": framing.sync: Frames that tell their length',
        ),
        (
            'device = "/dev/x"\nframing = { kind = "length", sync = "AA55", at = 1 }',
            '4: serial "p": framing.at: The length',
        ),
        ('device = "/dev/x"\nframing = { kind = "length", sync = "A" }', '4: serial "p": framing.sync: "A" is not hex'),
        ('device = "/dev/x"\nframing = { kind = "delimited" }', '4: serial "p": framing.end: Frames between bytes'),
        (
            'device = "/dev/x"\nframing = { kind = "delimited", end = "03", escape = "23" }',
            '4: serial "p": framing.flip: The byte after the escape',
        ),
        (
            'device = "/dev/x"\nframing = { kind = "delimited", end = "0303", escape = "23" }',
            '4: serial "p": framing.escape: Where there is an escape',
        ),
        (
            'device = "/dev/x"\nframing = { kind = "delimited", end = "03", flip = 1 }',
            '4: serial "p": framing.flip: Nothing',
        ),
    ],
)
def test_faults(keys, fault):
    with pytest.raises(MappingError) as caught:
        port(keys)
    assert f"f:{fault}" in str(caught.value)


def test_names():
    for name in ("", "a/b", "a b", "+"):
        with pytest.raises(MappingError, match="letters, digits"):
            load_pack(f'[[serial]]\nname = "{name}"\ndevice = "/dev/x"\n', "f")
    with pytest.raises(MappingError, match='f:5: serial "a": name: Another port'):
        load_pack('[[serial]]\nname = "a"\ndevice = "/dev/x"\n[[serial]]\nname = "a"\ndevice = "/dev/y"\n', "f")
