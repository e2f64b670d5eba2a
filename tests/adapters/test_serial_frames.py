"""Frames in a byte stream: the parser finds each valid one, however it is split and whatever noise comes before it."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.adapters.serial_frames import encoded, frames
from edge.mapping.pack import load_pack

FRAMINGS = {
    "lines": 'framing = "lines"',
    "carriage returns": 'framing = { kind = "lines", end = "0D" }',
    "lines with a checksum": 'crc = "sum8"\nframing = { kind = "lines", end = "0D0A0D0A" }',
    "slip": 'framing = "slip"\ncrc = "crc-16/kermit"',
    "slip without a checksum": 'framing = "slip"',
    "hdlc": 'framing = "hdlc"\ncrc = "crc-16/x-25"',
    "cobs": 'framing = "cobs"\ncrc = "crc-32"',
    "cobs with a head": 'framing = "cobs"\ncrc = { name = "crc-32", at = 0 }\nskip = 4',
    "delimited": 'framing = { kind = "delimited", start = "02", end = "03", escape = "10" }\ncrc = "crc-16/modbus"',
    "no start": 'framing = { kind = "delimited", end = "03", escape = "10", flip = 64 }\ncrc = "crc-16/arc"',
    "dash7": (
        'framing = { kind = "length", sync = "C000", at = 4, plus = 7 }\n'
        'crc = { name = "crc-16/ibm-3740", at = 5 }\nskip = 7'
    ),
    "length of two bytes": (
        'framing = { kind = "length", sync = "AA", size = 2, endian = "little" }\nskip = 3\ncrc = "crc-32"'
    ),
    "length of all": (
        'framing = { kind = "length", sync = "AA55", size = 4, plus = 0 }\nskip = 6\ncrc = "crc-16/modbus"'
    ),
}
BY_SYNC = ("dash7", "length of two bytes", "length of all")
LONGEST = 400


def port(name: str):
    return load_pack(f'[[serial]]\nname = "p"\ndevice = "/dev/x"\n{FRAMINGS[name]}\n', "f").ports[0]


def payloads(name: str):
    if name in ("lines", "carriage returns"):
        return st.lists(st.from_regex(r"[ -~]{1,40}", fullmatch=True).map(str.encode), min_size=1, max_size=8)
    if name == "lines with a checksum":
        # A checksum can equal the end of a line.
        lines = st.from_regex(r"[ -~]{1,40}", fullmatch=True).map(str.encode)
        return st.lists(lines.filter(lambda line: sum(line) & 0xFF not in b"\r\n"), min_size=1, max_size=8)
    return st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=8)


def settled(name: str, found=None):
    """Return the frames of a port that was opened while its line was silent."""
    found = found or frames(port(name), LONGEST)
    found.silence()
    return found


def pieces(data, stream: bytes) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@pytest.mark.parametrize("name", FRAMINGS)
@given(data=st.data())
def test_encoded_frames_are_found_wherever_the_stream_is_cut(name, data):
    sent = data.draw(payloads(name))
    stream = b"".join(encoded(port(name), payload) for payload in sent)
    found = settled(name)
    assert [payload for piece in pieces(data, stream) for payload in found.feed(piece)] == sent
    assert (found.tally.frames, found.tally.bad, found.tally.discarded) == (len(sent), 0, 0)


@pytest.mark.parametrize("name", FRAMINGS)
@given(data=st.data())
def test_after_noise_good_frames_are_found_again(name, data):
    """Noise can end with bytes that look like the start of a frame.

    The parser then loses at most one frame, and none after a pause.
    """
    sent = data.draw(payloads(name))
    noise = data.draw(st.binary(max_size=600))
    found = settled(name)
    before = found.feed(noise) + found.silence()
    first = encoded(port(name), b"first")
    after = found.feed(first) + [payload for payload in sent for payload in found.feed(encoded(port(name), payload))]
    assert after[-len(sent) :] == sent
    if name in BY_SYNC:
        assert after == [b"first", *sent]
    assert found.tally.frames == len(before) + len(after)


@pytest.mark.parametrize("name", BY_SYNC)
def test_an_unfinished_frame_delays_others_until_the_line_is_silent(name):
    found = settled(name)
    broken, good = encoded(port(name), bytes(250))[:12], encoded(port(name), b"good")
    assert found.feed(broken + good) == []
    assert found.waits
    assert found.silence() == [b"good"]
    assert not found.waits
    assert found.tally.bad == 1
    assert found.tally.reason == "it ended early"


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_frame_that_is_too_long_is_dropped_without_memory(name):
    found = settled(name)
    piece = b"A" * 1000
    for _ in range(100):
        assert found.feed(piece) == []
    assert len(found._rest if hasattr(found, "_rest") else found._buffer) < 2 * LONGEST + 1000
    assert found.tally.discarded > 90_000
    found.feed(encoded(port(name), b"first"))
    found.silence()
    assert found.feed(encoded(port(name), b"good")) == [b"good"]


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_megabyte_of_noise_is_not_a_frame(name):
    found = settled(name)
    noise = os.urandom(1_000_000)
    held = [payload for at in range(0, len(noise), 500) for payload in found.feed(noise[at : at + 500])]
    if "lines" in name or name in ("carriage returns", "slip without a checksum"):
        return  # only their structure distinguishes these from noise
    assert len(held) <= 2, "a checksum of 16 bits lets one of 65,536 pass"


def test_lines_are_text_and_data_before_the_first_line_end_is_dropped():
    found = frames(port("lines"), LONGEST)
    assert found.waits
    assert found.feed(b"5\r\nT=21.5\r\n\n\xff\xfe\nT\x00\nT=\xc2\xb0\xe2\x82\xac\n") == [b"T=21.5", "T=°€".encode()]
    assert found.tally.bad == 2
    assert found.tally.reason == "it is not a line of text"
    assert not found.waits


def test_a_silent_line_is_at_the_beginning_of_a_frame():
    found = settled("lines")
    assert found.feed(b"T=1\n") == [b"T=1"]


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("lines", b"a\nb", "the bytes that end a frame"),
        ("lines with a checksum", b"\xfd\x0d", "the bytes that end a frame"),
        ("dash7", b"x" * 256, "263 bytes are more than the frame can say"),
    ],
)
def test_a_payload_that_cannot_be_framed_is_refused(name, payload, reason):
    with pytest.raises(ValueError, match=reason):
        encoded(port(name), payload)


def test_without_skip_a_payload_brings_its_head_and_gets_length_and_checksum():
    keys = re.sub(r"\nskip = \d+", "", FRAMINGS["dash7"])
    whole = load_pack(f'[[serial]]\nname = "p"\ndevice = "/dev/x"\n{keys}\n', "f").ports[0]
    sent = bytes.fromhex("C0 00 01 01 00 00 00 20 40 00 04 00 F3 00 00")
    frame = encoded(whole, sent)
    assert frame == bytes.fromhex("C0 00 01 01 08 A4 BE 20 40 00 04 00 F3 00 00")
    assert frames(whole, LONGEST).feed(frame) == [frame]
    for wrong in (b"", b"\xc0\x00", b"\xc1\x00\x01\x01\x00\x00\x00"):
        with pytest.raises(ValueError, match=r"checksum stands|does not begin with"):
            encoded(whole, wrong)
