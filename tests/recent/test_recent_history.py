"""The recent history after restarts, power cuts, full disks and months."""

from __future__ import annotations

import random
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recent_world import BEGIN, SENSOR, World

from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import NotFound, ResultTooLarge
from edge.protocol.series import SeriesRequest
from edge.recent.aggregates import Points
from edge.recent.block_file import Samples
from edge.recent.sample_log import HEADER
from edge.recent.series import TICKS

MINUTE = 60
HOUR = 3600
DAY = 86_400


def feed(world, values, every=1.0, **more):
    """Add values at regular times, and let the thread's work be done at its times."""
    until = world.clock.now + world.settings.flush_interval
    for value in values:
        world.add(value, **more)
        world.clock.sleep(every)
        if world.clock.now >= until:
            world.work()
            until += world.settings.flush_interval


def test_values_are_there_at_once_and_after_each_step_on_the_disk(world):
    world = world()
    world.add(20)
    world.clock.sleep(0.25)
    world.add(21.5)
    expected = [(0, 20), (0.25, 21.5)]
    assert world.values() == expected
    world.work()
    assert world.values() == expected
    assert world.files() == ["log-00000001"]
    world.start()
    assert world.values() == expected
    world.seal()
    assert world.values() == expected
    assert world.files() == ["raw-00000002.blocks"]
    world.start()
    assert world.values() == expected


def test_texts_and_booleans_keep_their_kind(world):
    world = world()
    for value in ("off", "on", "off"):
        world.add(value, kind="text")
        world.add(1.0 if value == "on" else 0.0, "urn:o/switch", kind="boolean")
        world.clock.sleep(1)
    for _ in range(3):
        assert world.values() == [(0, "off"), (1, "on"), (2, "off")]
        assert world.values(sensor="urn:o/switch") == [(0, False), (1, True), (2, False)]
        (row,) = world.rows(points=1, end=10)
        assert (row.value, row.samples, row.low, row.mean) == ("off", 3, None, None)
        (row,) = world.rows(points=1, end=10, sensor="urn:o/switch")
        assert (row.value, row.low, row.high, row.mean) == (False, False, True, pytest.approx(1 / 3))
        world.seal()
        world.start()


def test_texts_in_the_log_survive_a_restart_with_new_ones(world):
    world = world()
    for value in ("off", "on"):
        world.add(value, kind="text")
        world.clock.sleep(1)
        world.work()
    world.start()
    for value in ("on", "fault"):
        world.add(value, kind="text")
        world.clock.sleep(1)
        world.work()
    world.start()
    assert [value for _, value in world.values() if value] == ["off", "on", "on", "fault"]


def test_a_power_cut_loses_only_unsynchronized_data_and_leaves_a_gap(world):
    world = world()
    feed(world, range(45))
    world.start()
    world.clock.sleep(100)
    world.add(7)
    found = world.values()
    assert [value for _, value in found] == [*range(30), None, 7]
    assert found[-2] == (30, None)


@given(cut=st.integers(0, 3 * 4096 - 1))
def test_a_log_that_is_cut_off_anywhere_is_read_up_to_there(tmp_path_factory, cut):
    world = World(tmp_path_factory.mktemp("cut"))
    for value in range(3):
        world.add(value)
        world.add("on", "urn:o/state", "text")
        world.clock.sleep(1)
        world.work()
    log = world.directory / "recent" / "log-00000001"
    assert log.stat().st_size == 3 * 4096
    content = log.read_bytes()
    # A chunk is whole if its header and its content are, whatever follows.
    sizes = [HEADER.size + HEADER.unpack_from(content, 4096 * number)[1] for number in range(3)]
    whole = sum(cut >= 4096 * number + size for number, size in enumerate(sizes))
    log.write_bytes(content[:cut])
    world.start()
    world.add(9)
    assert [value for _, value in world.values() if value is not None] == [*range(whole), 9]


def test_a_damaged_chunk_costs_its_own_values(world):
    world = world()
    for value in range(3):
        world.add(value)
        world.clock.sleep(1)
        world.work()
    log = world.directory / "recent" / "log-00000001"
    content = bytearray(log.read_bytes())
    content[4096 + 60] ^= 1
    log.write_bytes(content)
    world.start()
    world.add(9)
    assert [value for _, value in world.values() if value is not None] == [0, 2, 9]
    assert world.history.damaged == 1


def test_series_that_a_damaged_chunk_introduced_are_lost_and_no_others(world):
    world = world()
    for sensor in ("urn:o/a", "urn:o/b", "urn:o/c"):
        world.add("on", sensor, "text")
        world.add("off", "urn:o/a", "text")
        world.clock.sleep(1)
        world.work()
    world.add("on", "urn:o/b", "text")
    world.add("on", "urn:o/a", "text")
    world.work()
    log = world.directory / "recent" / "log-00000001"
    content = bytearray(log.read_bytes())
    content[4096 + 60] ^= 1
    log.write_bytes(content)
    world.start()
    assert [value for _, value in world.values(sensor="urn:o/a") if value] == ["on", "off", "off", "on"]
    assert [value for _, value in world.values(sensor="urn:o/c") if value] == ["on"]
    with pytest.raises(NotFound):
        world.values(sensor="urn:o/b")


def test_a_crash_between_raw_file_and_log_repeats_nothing(world, monkeypatch):
    world = world()
    feed(world, range(40))
    log = world.directory / "recent" / "log-00000001"
    content = log.read_bytes()
    world.seal()
    log.write_bytes(content)
    world.start()
    assert [value for _, value in world.values()] == [*range(40)]
    assert world.files() == ["raw-00000001.blocks"]


def test_a_request_during_the_change_of_files_finds_each_value_once(world, monkeypatch):
    world = world()
    feed(world, range(40))
    seal, found = world.history._store.seal, []

    def sealed(buffer):
        found.append(world.values())
        file = seal(buffer)
        found.append(world.values())
        return file

    monkeypatch.setattr(world.history._store, "seal", sealed)
    world.seal()
    found.append(world.values())
    assert [[value for _, value in values] for values in found] == [[*range(40)]] * 3


def test_a_log_that_cannot_be_removed_repeats_nothing(world, monkeypatch):
    world = world()
    feed(world, range(40))
    unlink = Path.unlink

    def fail(path, *, missing_ok=False):
        if path.name.startswith("log"):
            raise OSError(30, "Read-only file system")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", fail)
    world.seal()
    assert not world.history.failing
    feed(world, range(40, 50))
    world.seal()
    monkeypatch.undo()
    for _ in range(2):
        assert [value for _, value in world.values()] == [*range(50)]
        world.start()


def test_a_raw_file_that_somebody_deleted_does_not_stop_the_aggregation(world):
    world = world()
    for value in range(9):
        feed(world, [value])
        world.seal()
        world.clock.sleep(HOUR / 2)
    assert not [name for name in world.files() if name.startswith("minutes")]
    (world.directory / "recent" / "raw-00000002.blocks").unlink()
    (world.directory / "recent" / "raw-00000003.blocks").write_bytes(b"nothing")
    for value in range(9, 16):
        feed(world, [value])
        world.seal()
        world.clock.sleep(HOUR / 2)
    assert not world.history.failing
    assert [name for name in world.files() if name.startswith("minutes")]
    assert [value for _, value in world.values()] == [0, *range(3, 16)]


def test_a_log_that_somebody_deleted_costs_no_value(world):
    world = world()
    feed(world, [1, 2])
    world.work()
    (world.directory / "recent" / "log-00000001").unlink()
    feed(world, [3], sensor="urn:o/other")
    feed(world, [4])
    world.work()
    assert not world.history.failing
    assert [name for name in world.files() if name.startswith("raw")]
    feed(world, [5])
    world.work()
    before = world.values()
    assert [value for _, value in before] == [1, 2, 4, 5]
    world.start()  # as after `kill -9`
    assert world.values() == before
    assert [value for _, value in world.values(sensor="urn:o/other")] == [3]


def test_a_restart_is_a_gap_and_values_after_it_are_a_new_line(world):
    world = world()
    feed(world, [1, 2, 3])
    world.work()
    world.clock.sleep(60)
    world.start()
    feed(world, [4])
    assert world.values() == [(0, 1), (1, 2), (2, 3), (3, None), (63, 4)]


def test_a_gap_is_visible_between_periods_but_not_within_one(world):
    world = world()
    feed(world, range(30))
    world.work()
    world.clock.sleep(60)
    world.start()
    feed(world, range(30))
    rows = [row.value for row in world.rows(points=20, end=120)]
    assert rows.count(None) == 1
    assert [row.value for row in world.rows(points=3, end=120)] == [29, 29]


def test_a_quiet_sensor_has_no_gap(world):
    world = world()
    feed(world, [1])
    for _ in range(20):
        world.clock.sleep(30)
        world.work()
    feed(world, [2])
    assert world.values() == [(0, 1), (601, 2)]


def test_downsampling_keeps_extremes(world):
    world = world()
    values = [20.0] * 3000
    values[1234], values[2345] = 99, -99
    feed(world, values)
    for points in (2, 10, 77, 300):
        rows = world.rows(end=3000, points=points)
        assert len(rows) <= points
        assert max(row.high for row in rows) == 99
        assert min(row.low for row in rows) == -99
        assert sum(row.samples for row in rows) == 3000


@given(
    rows=st.lists(st.tuples(st.integers(0, 50_000), st.integers(-50, 50)), min_size=1, max_size=60),
    step=st.integers(1, 20_000),
    cuts=st.lists(st.integers(0, 60), max_size=3),
)
def test_aggregates_of_aggregates_are_those_of_the_samples(rows, step, cuts):
    """Minutes made of any parts of the samples, in any order of time, give the same periods of whole minutes."""
    step = -(-step // 6000) * 6000
    parts = [rows[i:j] for i, j in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True)]
    blocks = [Samples([t for t, _ in part], [v for _, v in part], []) for part in parts]
    direct = Points("number", blocks, 0, 10**9).periods(step)
    minutes = [Points("number", [block], 0, 10**9).minutes() for block in blocks if block.times]
    again = Points("number", minutes, 0, 10**9).periods(step)
    assert [row[:1] + row[2:5] for row in again] == [row[:1] + row[2:5] for row in direct]
    assert [row.mean for row in again] == pytest.approx([row.mean for row in direct], abs=0.01)


LARGEST = 1.7976931348623157e308


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([LARGEST, 1e308, -1.7e308], 3.658977116207719e307),
        ([1.7e308, 1.6e308], 1.65e308),
        ([-1.7e308, -1.6e308], -1.65e308),
        ([LARGEST] * 3, LARGEST),
        ([-LARGEST] * 7, -LARGEST),
        ([LARGEST, -LARGEST, LARGEST, -LARGEST], 0.0),
    ],
)
def test_the_mean_of_the_largest_numbers_is_finite(values, mean):
    samples = Samples([6000 * 10 + each for each in range(len(values))], values, [])
    (row,) = Points("number", [samples], 0, 10**9).periods(6000)
    assert row.mean == pytest.approx(mean, rel=1e-12)
    assert row.low <= row.mean <= row.high


def test_means_of_aggregates_of_the_largest_numbers_are_finite():
    """The product of a mean and its count is beyond the range of a double, in either direction."""
    first, second, third = (
        Points("number", [Samples([begin + each for each in range(4)], [value] * 4, [])], 0, 10**9).minutes()
        for begin, value in ((0, LARGEST), (6000, -LARGEST), (12000, LARGEST))
    )
    for blocks, mean in (([first, third], LARGEST), ([first, second], 0), ([first, second, third], LARGEST / 3)):
        (row,) = Points("number", blocks, 0, 10**9).periods(18000)
        assert row.mean == pytest.approx(mean, rel=1e-12)


def test_after_a_day_there_are_aggregates_and_after_a_month_nothing(world):
    world = world()
    feed(world, range(600))
    world.seal()
    for _ in range(8):
        world.clock.sleep(HOUR)
        feed(world, [0])
        world.work()
    assert [name for name in world.files() if name.startswith("minutes")]
    assert len(world.values(end=600)) == 600
    world.clock.sleep(DAY)
    feed(world, [0])
    world.seal()
    rows = world.rows(end=600)
    assert [(row.time // 1_000_000 - BEGIN, row.value, row.samples, row.low, row.mean) for row in rows] == [
        (minute * MINUTE, minute * 60 + 59, 60, minute * 60, minute * 60 + 29.5) for minute in range(10)
    ]
    world.clock.sleep(31 * DAY)
    feed(world, [0])
    for _ in range(2):
        world.clock.sleep(7 * HOUR)
        feed(world, [0])
        world.seal()
    assert world.rows(end=600) == []


def test_values_of_one_time_are_all_kept_in_each_state_of_the_files(world):
    world = world()
    feed(world, [0])
    values = [2, 1, 1, 3]
    for value in values:
        world.add(value)
    same = [value for _, value in world.values()][-4:]
    world.work()
    world.start()
    written = [value for _, value in world.values()][-4:]
    world.seal()
    sealed = [value for _, value in world.values()][-4:]
    assert same == written == sealed == values
    (row,) = [row for row in world.rows(points=1) if row.value is not None]
    assert (row.samples, row.value, row.low, row.high) == (5, 3, 0, 3)


def test_the_same_question_has_the_same_answer_in_each_state_of_the_files(world):
    """No value is lost or counted twice, whichever files have it."""
    world = world()
    chance = random.Random(3)
    total = 0.0
    count = 0
    for step in range(40):
        for _ in range(chance.randrange(1, 200)):
            value = round(chance.gauss(20, 5), 1)
            world.add(value)
            world.clock.sleep(chance.choice([0.5, 1, 7]))
            total, count = total + value, count + 1
        world.clock.steady_now += chance.choice([0, HOUR])
        world.work()
        if chance.random() < 0.3:
            world.clock.sleep(chance.choice([10, HOUR]))
        if chance.random() < 0.3:
            world.work()
            world.start()
        if step % 5 == 4:
            for points in (300, 20, 5, None):
                rows = [row for row in world.rows(end=40 * DAY, points=points) if row.value is not None]
                samples = [row.samples or 1 for row in rows]
                assert sum(samples) == count
                means = [row.value if row.mean is None else row.mean for row in rows]
                found = sum(mean * size for mean, size in zip(means, samples, strict=True))
                assert found == pytest.approx(total, abs=0.01 * count)
    assert any(name.startswith("minutes") for name in world.files())


def test_the_disk_limit_removes_the_oldest_values_first(world):
    world = world(max_bytes=1024 * 1024)
    chance = random.Random(1)
    world.add(1, "urn:o/first")
    for hour in range(40):
        for sensor in range(200):
            for second in range(60):
                world.clock.now = BEGIN + hour * HOUR + second * 60
                world.add(chance.random(), f"urn:o/{sensor}")
        world.clock.now = BEGIN + (hour + 1) * HOUR
        world.seal()
        assert world.history.bytes <= 1024 * 1024 + 200_000
    assert world.history.removed > 0
    assert not world.history.failing
    assert len(world.rows(begin=39 * HOUR, end=41 * HOUR, sensor="urn:o/0")) == 60
    levels = {name.partition("-")[0] for name in world.files()}
    assert levels >= {"raw", "minutes"}


def test_a_wrong_clock_removes_nothing(world):
    world = world()
    feed(world, range(100))
    world.seal()
    world.clock.right = False
    world.clock.now += 100 * 365 * DAY
    feed(world, [0])
    world.seal()
    assert len(world.values(end=100)) == 100


def test_a_clock_that_is_set_back_loses_nothing(world):
    world = world()
    feed(world, range(50))
    world.clock.now -= 10 * DAY
    feed(world, range(50))
    world.work()
    world.start()
    assert [value for _, value in world.values(begin=-20 * DAY) if value is not None] == [*range(50), *range(50)]


def test_a_disk_that_fails_costs_no_value_until_the_memory_is_full(world, monkeypatch):
    world = world(max_memory=1024 * 1024)
    feed(world, range(100))
    broken = True
    append, seal = world.history._store.append, world.history._store.seal

    def fail(*arguments):
        if broken:
            raise OSError(28, "No space left on device")
        return (append if type(arguments[0]).__name__ == "Chunk" else seal)(*arguments)

    monkeypatch.setattr(world.history._store, "append", fail)
    monkeypatch.setattr(world.history._store, "seal", fail)
    feed(world, range(100, 200))
    assert "No space left" in world.history.failing
    assert [value for _, value in world.values()] == [*range(200)]
    for _ in range(6):
        feed(world, range(20_000), every=0.001)
        world.work()
        assert world.history._buffer.bytes <= 1024 * 1024
    assert world.history.lost > 0
    broken = False
    world.work()
    assert not world.history.failing
    feed(world, [-1])
    world.work()
    kept = [value for _, value in world.values()]
    world.start()
    assert [value for _, value in world.values() if value is not None] == [value for value in kept if value is not None]
    assert kept[-1] == -1


def test_a_damaged_file_is_set_aside_and_the_others_answer(world):
    world = world()
    for value in range(3):
        feed(world, [value])
        world.seal()
    first, second, _ = [world.directory / "recent" / name for name in world.files() if name.startswith("raw")]
    first.write_bytes(b"nothing")
    content = bytearray(second.read_bytes())
    content[-60:] = bytes(60)
    second.write_bytes(content)
    world.start()
    assert world.values()[-1] == (2, 2)
    assert "raw-00000001.blocks.damaged" in world.files()
    world.history.available(lambda graph: True)
    assert world.history.damaged >= 2


def test_only_readable_graphs_are_visible(world):
    world = world()
    world.add(1)
    world.add(2, graph="urn:secret")
    world.add(3, "urn:o/other", graph="urn:secret")
    world.clock.sleep(1)
    for _ in range(2):
        assert [value for _, value in world.values(readable=lambda graph: not graph)] == [1]
        request = SeriesRequest(("urn:o/other",), 0, 2**60)
        with pytest.raises(NotFound, match="/api/series"):
            world.history.read(request, lambda graph: not graph)
        listed = world.history.available(lambda graph: not graph)
        assert [(each.observation, each.graph) for each in listed] == [(SENSOR, "")]
        assert len(world.history.available(lambda graph: True)) == 3
        world.seal()


def test_an_observation_without_values_in_the_period_is_known(world):
    world = world()
    feed(world, [1])
    world.seal()
    assert world.rows(begin=DAY, end=2 * DAY) == []


def test_too_many_rows_are_refused(world):
    world = world()
    series = world.history._buffer
    world.add(0)
    ((key, _),) = series.series.items()
    series.extend(key, range(BEGIN * TICKS, BEGIN * TICKS + 250_000), [1.0] * 250_000)
    with pytest.raises(ResultTooLarge, match="shorter period"):
        world.rows()
    assert len(world.rows(end=2500, points=300)) <= 300


RESULT = ox.NamedNode("http://www.w3.org/ns/sosa/hasResult")
VALUE = ox.NamedNode("http://qudt.org/1.1/schema/qudt#numericValue")
QUANTITY = ox.NamedNode("urn:q")


def commit(world, *values, filling=0):
    """Commit values of `SENSOR`, each with its own update, which also adds `filling` other statements."""
    for value in values:
        others = [(QUANTITY, ox.NamedNode("urn:p"), ox.Literal(number), None) for number in range(filling)]
        link = (ox.NamedNode(SENSOR), RESULT, QUANTITY, None)
        literal = value if isinstance(value, ox.Literal) else ox.Literal(value)
        change = ChangeSet([link, (QUANTITY, VALUE, literal, None), *others])
        world.history.committed([change], world.clock.wall())
        world.clock.sleep(1)


def test_the_writer_never_waits_and_the_order_of_values_stays(world):
    world = world()
    commit(world, 1, 2)
    assert not world.history._queue
    with world.history._lock:  # as while the recording thread encodes values
        commit(world, 3)
        commit(world, 4, filling=1000)
    assert len(world.history._queue) == 2
    commit(world, 5)  # it may not overtake
    assert len(world.history._queue) == 3
    assert world.history._wake.is_set()
    world.work()
    commit(world, 6)
    with world.history._lock:
        commit(world, 7)
    commit(world, 8)
    assert not world.history._queue
    assert [value for _, value in world.values()] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_disk_that_hangs_takes_no_memory_without_limit(world):
    world = world(max_memory=1024 * 1024)
    for number in range(200_000):  # the recording thread does nothing
        commit(world, number, filling=600 if number % 20_000 == 0 else 0)
        assert world.history._buffer.bytes <= 1024 * 1024 + 200_000
        assert len(world.history._queue) < 5_000
    assert world.history.lost > 0
    assert next(reversed(world.values()))[1] == 199_999


def test_large_texts_of_updates_do_not_wait_in_memory(world):
    world = world()
    for number in range(1000):
        text = ox.Literal(f"{number}" + "x" * 50_000)
        world.history.committed([ChangeSet([(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), text, None)])], 0)
    assert not world.history._queue
    with world.history._lock:
        for number in range(100):
            commit(world, ox.Literal(f"{number}" + "x" * 50_000))
            if world.history._wake.is_set():
                break
    # The thread takes them before they have 2 MB.
    assert len(world.history._queue) < 40


def test_nothing_is_written_while_there_are_no_values(world):
    world = world()
    for _ in range(300):
        world.clock.sleep(30)
        world.work()
    assert world.files() == []
