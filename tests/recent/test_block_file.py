"""Block files: all series are found again, and damage of any byte is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.recent.block_file import BlockFile, DamagedFile, Header, Minutes, Samples, write
from edge.recent.series import SeriesKey

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=20)
KEYS = st.builds(SeriesKey, st.sampled_from(["", "urn:g"]), NAMES, st.sampled_from(["number", "boolean"]))
SAMPLES = st.lists(st.tuples(st.integers(0, 2**40), st.floats(-100, 100)), min_size=1, max_size=8)


def header(level="raw", generation=1):
    return Header(level, generation, 0, 2**41, ((10, 20), (30, 40)))


@given(blocks=st.dictionaries(KEYS, SAMPLES, max_size=6))
def test_each_series_is_found_again(tmp_path_factory, blocks):
    directory = tmp_path_factory.mktemp("blocks")
    blocks = {key: Samples([t for t, _ in rows], [v for _, v in rows], []) for key, rows in blocks.items()}
    path = write(directory, header(), blocks.items())
    with BlockFile(path) as file:
        assert file.header.recorded == ((10, 20), (30, 40))
        assert sorted(file.names()) == sorted(blocks)
        for observation in {key.observation for key in blocks}:
            expected = {key: block for key, block in blocks.items() if key.observation == observation}
            assert dict(file.blocks(observation)) == expected
        assert list(file.blocks("urn:other-" * 3)) == []
        file.verify()


def test_aggregates_are_found_again(tmp_path):
    key = SeriesKey("", "urn:o", "number")
    block = Minutes([0, 6000], [1.5, 2], [3, 4], [1, 0.5], [2, 3], [1.51, 1.734], [])
    with BlockFile(write(tmp_path, header("minutes"), [(key, block)])) as file:
        assert list(file.blocks("urn:o")) == [(key, block)]


def verify(path):
    with BlockFile(path) as file:
        file.verify()


def test_damage_of_any_byte_is_noticed(tmp_path):
    blocks = {SeriesKey("", f"urn:o{number}", "text"): Samples([1, 2], [0, 1], ["on", "off"]) for number in range(3)}
    path = write(tmp_path, header(), blocks.items())
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with pytest.raises(DamagedFile):
            verify(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFile):
            verify(path)
