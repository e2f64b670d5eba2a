"""Mapping files apply when they change. A broken file leaves the previous mappings in force."""

import logging
import os
from dataclasses import replace

import pytest

from edge.adapters.files import MappingFiles
from edge.adapters.settings import MappingsSettings
from edge.mapping.errors import MappingError
from edge.mapping.pack import load_pack
from edge.mapping_files import load_file
from edge.protocol.errors import NotReady
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

MAPPING = """
[[mapping]]
topic = "{topic}"
observation = "http://example.org/{name}"
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "mappings"
    folder.mkdir()
    return folder


def observed(files: MappingFiles, topic: str) -> list[str]:
    return [reading.observation for reading in files.mapper.map(topic, b"1").readings]


def write(file, topic: str, name: str) -> None:
    file.write_text(MAPPING.format(topic=topic, name=name))


def test_files_are_read_replaced_and_removed(folder):
    received = []
    files = MappingFiles(MappingsSettings(dir=folder, packs=()), received.append)
    assert observed(files, "a") == []
    assert not files.look()
    write(folder / "one.toml", "a", "one")
    assert files.look()
    assert observed(files, "a") == ["http://example.org/one"]
    write(folder / "one.toml", "a", "two")
    assert files.look()
    assert observed(files, "a") == ["http://example.org/two"]
    (folder / "one.toml").unlink()
    assert files.look()
    assert observed(files, "a") == []
    assert files.reloads == len(received) == 3


def test_a_file_is_in_use_when_its_reading_is_logged(folder, caplog, monkeypatch):
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    in_use = []

    def emit(record):
        if record.getMessage() == "mappings.file_read":
            in_use.append(observed(files, "a"))

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(caplog.handler, "emit", emit)
    write(folder / "one.toml", "a", "one")
    assert files.look()
    assert in_use == [["http://example.org/one"]]


def test_a_change_that_keeps_size_and_time_is_seen_by_its_inode(folder):
    write(folder / "one.toml", "a", "one")
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    before = (folder / "one.toml").stat()
    write(folder / "new", "a", "two")
    os.utime(folder / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (folder / "new").rename(folder / "one.toml")
    assert files.look()
    assert observed(files, "a") == ["http://example.org/two"]


def test_a_broken_file_is_reported_and_its_last_valid_version_stays(folder, caplog):
    file = folder / "one.toml"
    write(file, "a", "one")
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    file.write_text("[[mapping]\n")
    assert not files.look()
    assert not files.look()
    assert observed(files, "a") == ["http://example.org/one"]
    [fault] = files.faults()
    assert fault["file"] == str(file)
    assert fault["previous_version_applies"] is True
    assert [(each["code"], each["line"]) for each in fault["faults"]] == [("not_toml", 1)]
    assert str(file) in str(fault["reason"])
    assert caplog.messages.count("mappings.file_broken") == 1
    write(file, "a", "mended")
    assert files.look()
    assert files.faults() == []
    assert observed(files, "a") == ["http://example.org/mended"]


def test_a_probable_mistake_is_logged_and_the_file_applies(folder, caplog):
    write(folder / "one.toml", "a", "one")
    with (folder / "one.toml").open("a") as file:
        file.write('unit = "unit:Celcius"\n')
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    assert observed(files, "a") == ["http://example.org/one"]
    assert files.faults() == []
    assert caplog.messages.count("mappings.doubtful") == 1


def test_announced_mappings_apply_at_once_and_stay_when_files_change(folder):
    received = []
    files = MappingFiles(MappingsSettings(dir=folder, packs=()), received.append)
    announced = load_pack(MAPPING.format(topic="b", name="announced"), own=False)
    announced = replace(announced, mappings=tuple(replace(each, announced=True) for each in announced.mappings))
    files.announce([announced])
    assert observed(files, "b") == ["http://example.org/announced"]
    assert received == []
    files.declare()
    assert received == [files.mapper]
    write(folder / "one.toml", "a", "one")
    assert files.look()
    assert observed(files, "a") + observed(files, "b") == ["http://example.org/one", "http://example.org/announced"]
    # A file of the operator takes the topic, also before it is written.
    own = load_pack(MAPPING.format(topic="b", name="own"))
    [reading] = files.mapper_with(folder / "two.toml", own).map("b", b"1").readings
    assert reading.observation == "http://example.org/own"
    files.announce([])
    assert observed(files, "b") == []


def test_announcements_while_the_engine_is_away_apply(folder, caplog):
    def fails(_):
        raise NotReady("later")

    files = MappingFiles(MappingsSettings(dir=folder, packs=()), fails)
    files.declare()
    assert caplog.messages.count("mappings.not_declared") == 1


def test_a_file_that_was_never_valid_blocks_no_other(folder):
    (folder / "bad.toml").write_text("nonsense")
    write(folder / "good.toml", "a", "good")
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    assert observed(files, "a") == ["http://example.org/good"]
    assert [fault["previous_version_applies"] for fault in files.faults()] == [False]


def test_a_file_that_shows_a_defect_of_the_checks_is_a_broken_file(folder, monkeypatch):
    def load(path, **given):
        return {}["x"] if path.stem == "bad" else load_file(path, **given)

    monkeypatch.setattr("edge.adapters.files.load_file", load)
    write(folder / "bad.toml", "a", "bad")
    write(folder / "good.toml", "a", "good")
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    assert observed(files, "a") == ["http://example.org/good"]
    [fault] = files.faults()
    assert (fault["file"], "KeyError: 'x'" in str(fault["reason"])) == (str(folder / "bad.toml"), True)


def test_a_missing_directory_may_be_created_later(folder):
    folder.rmdir()
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    assert files.faults() == []
    folder.mkdir()
    write(folder / "one.toml", "a", "one")
    assert files.look()


def test_listing_17_of_the_paper_is_a_mapping_file(folder):
    (folder / "pepoli.json").write_text("""{"semantic-mappings": {"pepoli/6lowpan/network/NODO1/Temperature": {
        "observation": "arces-monitor:Pepoli-6lowpan-Nodo1-Temperature",
        "unit": "qudt-unit-1-1:DegreeCelsius", "location": "arces-monitor:Star",
        "comment": "Server room temperature---Viale Pepoli (6LowPan)", "label": "Server room temperature"}}}""")
    files = MappingFiles(MappingsSettings(dir=folder, packs=()))
    assert files.faults() == []
    assert observed(files, "pepoli/6lowpan/network/NODO1/Temperature") == [
        "http://mml.arces.unibo.it/monitor#Pepoli-6lowpan-Nodo1-Temperature"
    ]
    [declared] = files.mapper.declared()
    assert declared.label == "Server room temperature"


def test_the_directory_is_watched(folder):
    files = MappingFiles(MappingsSettings(dir=folder, packs=(), reload_interval=0.05))
    files.start()
    write(folder / "one.toml", "a", "one")
    wait_for(lambda: files.reloads)
    files.stop()


def test_an_unknown_pack_is_refused():
    with pytest.raises(MappingError):
        MappingFiles(unchecked(MappingsSettings, packs=("nonsense",)))
