"""The event stream of stored values: each value exactly once, and pages that never change, whatever happens."""

from __future__ import annotations

import errno
import math
import random
import shutil
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recent_world import SENSOR, World

from edge.protocol.errors import Gone, NotFound, NotReady, RequestTimeout
from edge.protocol.event_stream import PAGE_SIZE, NodeName, read_name
from edge.recent import event_stream
from edge.recent.batches import MISSING, Batch, new_identity, packed, sample_runs, sections, unpacked
from edge.recent.sample_log import BLOCK


def everybody(graph):
    return True


class Follower:
    """Follows the links, as a client with a list of complete nodes does. It notes each member that is new to it."""

    def __init__(self, readable=everybody):
        self.readable = readable
        self.complete = {}
        self.members = {}
        self.latest = 0

    def run(self, history):
        """Return the values of the members that the follower has not seen."""
        new = []
        waiting = [link.name for link in history.outline().sections]
        while waiting:
            name = waiting.pop(0)
            if name in self.complete:
                continue
            node = history.node(name, self.readable)
            waiting += [link.name for link in node.links]
            for member in node.members:
                if (member.section, member.position) not in self.members:
                    new.append(member.value)
                self.members[member.section, member.position] = member
            if node.complete:
                self.complete[name] = node
        return new

    def check(self, history):
        """Assert that complete nodes have not changed."""
        for name, before in self.complete.items():
            try:
                assert history.node(name, self.readable) == before
            except Gone:
                continue


@pytest.fixture
def follower():
    return Follower()


def test_a_value_is_a_member_when_it_is_on_the_disk(world, follower):
    world = world()
    assert follower.run(world.history) == []
    world.add(20)
    world.add("on", "urn:o/switch", "text")
    world.add(1, "urn:o/open", "boolean")
    assert follower.run(world.history) == []
    world.clock.sleep(1)
    world.work()
    assert follower.run(world.history) == [20.0, "on", True]
    assert follower.run(world.history) == []
    (first, *_) = follower.members.values()
    assert (first.observation, first.published - first.time) == (SENSOR, 1_000_000)


def test_the_pages_are_the_same_before_and_after_the_raw_file(world, follower):
    world = world()
    for value in range(3):
        for sensor in range(400):
            world.add(value + sensor / 1000, f"urn:o/{sensor}")
        world.add(-0.0, "urn:o/zero")
        world.add(("on", "off")[value % 2], "urn:o/switch", "text")
        world.clock.sleep(30)
        world.work()
    assert len(follower.run(world.history)) == 3 * 402
    full = [name for name in follower.complete if name.page is not None]
    assert [name.page for name in full] == [0, 1]
    world.seal()
    follower.check(world.history)
    assert follower.run(world.history) == []
    assert [name.page for name in follower.complete] == [0, 1, None, 2]
    world.start()
    follower.check(world.history)
    world.add(7)
    world.work()
    assert follower.run(world.history) == [7.0]


def test_the_last_values_before_a_raw_file_get_their_place_with_it(world, follower):
    world = world()
    world.add(1)
    world.work()
    assert follower.run(world.history) == [1.0]
    append = world.history._store.append

    def late(chunk):
        written = append(chunk)
        world.add(3)  # between the last chunk and the raw file
        world.add(4, "urn:o/new")
        return written

    world.history._store.append = late
    world.add(2)
    world.seal()
    assert sorted(follower.run(world.history)) == [2.0, 3.0, 4.0]
    follower.check(world.history)
    world.start()
    assert follower.run(world.history) == []


def test_a_client_that_was_away_finds_the_rest_of_an_open_page_after_a_restart(world, follower):
    world = world()
    for value in range(700):
        world.add(value)
    world.work()
    follower.run(world.history)
    for value in range(700, 900):
        world.add(value)
    world.work()
    world.start()
    assert follower.run(world.history) == [float(value) for value in range(700, 900)]


def test_values_that_a_power_cut_took_leave_no_name_to_others(world, follower):
    world = world()
    world.add(1)
    world.work()
    world.add(2)  # lost
    world.start()
    world.add(3)
    world.work()
    assert follower.run(world.history) == [1.0, 3.0]
    assert len({section for section, _ in follower.members}) == 2


def test_a_history_from_a_backup_gives_no_name_twice(world, follower, tmp_path):
    world = world()
    world.add(1)
    world.work()
    backup = tmp_path / "backup"
    shutil.copytree(world.directory / "recent", backup)
    for value in range(2, 700):
        world.add(value)
    world.work()
    world.seal()
    assert len(follower.run(world.history)) == 699
    shutil.rmtree(world.directory / "recent")
    shutil.copytree(backup, world.directory / "recent")
    world.start()
    for value in range(1000, 1700):
        world.add(value)
    world.work()
    assert follower.run(world.history) == [float(value) for value in range(1000, 1700)]
    ((old, _), *_) = follower.members
    with pytest.raises(Gone):
        world.history.node(NodeName(old, 1), everybody)


def test_times_of_publication_never_decrease_although_the_clock_is_set_back(world, follower):
    world = world()
    for step in (0, -86_400, 3600, -7200, 0):
        world.clock.now += step
        world.add(step)
        world.work()
        if step < 0:
            world.start()
    world.seal()
    world.clock.now -= 86_400
    world.start()
    world.add(1)
    world.work()
    follower.run(world.history)
    times = [member.published for member in follower.members.values()]
    assert len(times) == 6
    assert times == sorted(times)
    links = world.history.outline().sections
    assert [link.begins for link in links] == sorted(link.begins for link in links)


def test_late_values_are_new_members_with_their_own_time(world, follower):
    world = world()
    world.add(1)
    world.work()
    follower.run(world.history)
    now = world.clock.now
    world.clock.now -= 3600
    world.add(2)
    world.clock.now = now + 30
    world.work()
    assert follower.run(world.history) == [2.0]
    first, late = follower.members.values()
    assert late.time < first.time
    assert late.published > first.published


def test_removed_files_are_gone_with_all_their_nodes(world, follower):
    world = world()
    for value in range(3):
        world.add(value)
        world.work()
        world.seal()
        world.clock.sleep(3600)
    follower.run(world.history)
    world.clock.sleep(86_400)
    world.history._store.aggregate()
    world.history._store.prune(world.history._now(), trusted=True)
    assert not world.history.outline().sections
    for name in follower.complete:
        with pytest.raises(Gone, match="/ldes/observations"):
            world.history.node(name, everybody)
    world.add(9)
    world.work()
    assert follower.run(world.history) == [9.0]


def test_a_page_that_has_not_begun_is_not_found(world, follower):
    world = world()
    world.add(1)
    world.work()
    follower.run(world.history)
    ((section, _),) = follower.members
    with pytest.raises(NotFound):
        world.history.node(NodeName(section, 1), everybody)
    world.start()
    with pytest.raises(Gone):
        world.history.node(NodeName(section, 1), everybody)
    with pytest.raises(Gone):
        world.history.node(NodeName(section ^ 1, 0), everybody)


def test_clients_see_the_members_of_readable_graphs_alone(world):
    world = world()
    for value in range(PAGE_SIZE):
        world.add(value, graph="urn:secret" if value % 2 else "")
    world.work()
    limited, everything = Follower(lambda graph: not graph), Follower()
    for _ in range(2):
        limited.run(world.history)
        everything.run(world.history)
        assert [member.value for member in limited.members.values()] == [float(each) for each in range(0, PAGE_SIZE, 2)]
        assert len(everything.members) == PAGE_SIZE
        assert all(everything.members[name] == member for name, member in limited.members.items())
        world.seal()


def test_an_observation_with_a_very_long_iri_is_left_out(world):
    world = world()
    for number, name in enumerate(("x" * 496, "x" * 497, "\u00e9" * 248, "\u00e9" * 249)):
        world.add(number, f"urn:{name}")
    world.work()
    for _ in range(2):
        assert Follower().run(world.history) == [0.0, 2.0]
        world.seal()


def test_a_damaged_chunk_costs_its_members_and_no_others(world, follower):
    world = world()
    for value in range(4):
        world.add(value)
        world.add(("on", "off")[value % 2], "urn:o/switch", "text")
        world.work()
    follower.run(world.history)
    path = world.directory / "recent" / "log-00000001"
    content = bytearray(path.read_bytes())
    content[BLOCK + 50] ^= 1  # the chunk that introduced the text "off"
    path.write_bytes(content)
    world.start()
    rest = Follower()
    assert rest.run(world.history) == [0.0, "on", 2.0, "on", 3.0]
    assert all(follower.members[name] == member for name, member in rest.members.items())
    assert follower.run(world.history) == []
    world.seal()
    rest.check(world.history)


def flip(path, place):
    """Damage one byte of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def raw_files(world):
    return sorted((world.directory / "recent").glob("raw-*"))


def test_a_damaged_block_costs_its_members_for_good(world, follower):
    world = world()
    for sensor in range(3):
        world.add(sensor, f"urn:o/{sensor}")
    world.work()
    world.seal()
    (path,) = raw_files(world)
    flip(path, len(path.read_bytes()) // 2)
    assert len(follower.run(world.history)) == 2
    assert [name.page for name in follower.complete] == [None, 0]
    follower.check(world.history)
    assert world.history.damaged == 1


def test_a_damaged_end_of_a_file_is_read_and_counted_once(world, follower, caplog):
    world = world()
    world.add(1)
    world.work()
    world.seal()
    follower.run(world.history)
    ((section, _),) = follower.members
    flip(raw_files(world)[0], -2)
    world.start()
    for _ in range(3):
        assert not world.history.outline().sections
        for name in (NodeName(section, None), NodeName(section, 0), NodeName(77, 0)):
            with pytest.raises(Gone):
                world.history.node(name, everybody)
    assert world.history.damaged == 1
    assert [record.message for record in caplog.records].count("recent.file_damaged") == 1


@pytest.mark.parametrize("known", [True, False])
def test_an_error_of_the_disk_that_may_pass_is_not_a_removed_node(world, follower, monkeypatch, known):
    world = world()
    for value in range(3):
        world.add(value)
    world.work()
    world.seal()
    (section,) = world.history.outline().sections
    if not known:
        world.start()
    with monkeypatch.context() as patched:
        patched.setattr("os.open", too_many_files)
        for name in (section.name, NodeName(section.name.section, 0)):
            with pytest.raises(NotReady, match="Too many open files"):
                world.history.node(name, everybody)
        if not known:
            with pytest.raises(NotReady):
                world.history.outline()
    assert follower.run(world.history) == [0.0, 1.0, 2.0]
    assert world.history.damaged == 0


def test_an_error_of_the_disk_at_the_start_costs_no_file(world, follower, monkeypatch):
    world = world()
    world.add(1)
    world.work()
    world.seal()
    with monkeypatch.context() as patched:
        patched.setattr("os.open", too_many_files)
        world.start()
    assert "Too many open files" in world.history.failing
    assert world.history.open()
    assert follower.run(world.history) == [1.0]


def too_many_files(*_, **__):
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_clock_far_ahead_that_is_not_trusted_does_not_set_the_time_of_publication(world, follower):
    world = world()
    for ahead, right in ((70 * 365 * 86_400, False), (0, True), (86_400, False), (0, True)):
        world.clock.sleep(60)
        world.clock.now += ahead
        world.clock.right = right
        world.add(1)
        world.work()
        world.clock.now -= ahead
    follower.run(world.history)
    times = [round(member.published / 1e6 - world.clock.now, 2) for member in follower.members.values()]
    assert times[1:] == [-120, -119.99, 0]
    assert times[0] < -120


@pytest.mark.parametrize("damaged", [False, True])
def test_the_time_of_publication_does_not_decrease_if_the_newest_file_has_no_section(world, follower, damaged):
    world = world()
    world.add(1)
    world.work()
    world.seal()
    world.clock.sleep(3600)
    if not damaged:
        world.history._store._logs[-1].identity = 0
    world.add(2)
    world.work()
    world.seal()
    if damaged:
        follower.run(world.history)
        flip(raw_files(world)[-1], -2)
    world.clock.now -= 7200
    world.start()
    world.add(3)
    world.work()
    follower.run(world.history)
    times = [member.published for member in follower.members.values()]
    assert times == sorted(times)
    assert len(times) == 2 + damaged


def test_values_between_the_last_chunk_and_the_raw_file_are_published_with_the_file(world, follower):
    world = world()
    seal = world.history._seal

    def late():
        world.add(5)
        seal()

    world.history._seal = late
    world.seal()
    assert follower.run(world.history) == [5.0]
    (member,) = follower.members.values()
    assert member.published == round(world.clock.now * 1e6)


@pytest.mark.parametrize("hung", [False, True])
def test_values_that_memory_had_to_drop_leave_no_name_to_others(world, follower, hung):
    world = world(max_memory=2**20)
    for value in range(700):
        world.add(value)
    world.work()
    follower.run(world.history)
    if hung:  # the writer thread drops the values
        world.history._drop_buffer()
    else:
        seal, world.history._store.seal = world.history._store.seal, fail
        world.seal()
        for _ in range(2):
            for _ in range(40_000):
                world.add(-1.0)
            world.work()
        world.history._store.seal = seal
    assert world.history.lost
    for value in range(1000, 1400):
        world.add(value)
    world.work()
    found = follower.run(world.history)
    assert found[-400:] == [float(value) for value in range(1000, 1400)]
    follower.check(world.history)
    ((section, _), *_) = follower.members
    with pytest.raises(Gone):
        world.history.node(NodeName(section, 0), everybody)
    world.start()
    follower.check(world.history)
    again = follower.run(world.history)
    assert again == []
    world.seal()
    follower.check(world.history)


def test_samples_of_an_earlier_version_are_not_in_the_stream(world, follower):
    world = world()
    world.history._store._logs[-1].identity = 0
    world.add(1)
    world.work()
    world.start()
    world.add(2)
    world.work()
    for _ in range(2):
        assert [each.value for each in follower.members.values()] + follower.run(world.history) == [2.0]
        world.seal()
    assert [value for _, value in world.values() if value is not None] == [1, 2]


def test_reading_ends_in_time(world, follower, monkeypatch):
    world = world()
    world.add(1)
    world.work()
    world.seal()
    (link,) = world.history.outline().sections
    with pytest.raises(RequestTimeout):
        world.history.outline(timeout=-1)
    with pytest.raises(RequestTimeout):
        world.history.node(link.name, everybody, timeout=-1)
    monkeypatch.setattr(event_stream, "_MOST_SECTIONS", 1)
    world.add(2)
    world.work()
    assert [each.ends for each in world.history.outline().sections] == [None]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 700), st.integers(1, 5)),
        st.tuples(st.sampled_from(["work", "kill", "seal", "follow", "lose", "back", "fail"])),
    ),
    max_size=25,
)


@given(actions=ACTIONS)
def test_each_stored_value_is_a_member_exactly_once(actions):
    with TemporaryDirectory() as directory:
        world, follower = World(Path(directory)), Follower()
        number, waiting, stored, received = 0, [], [], []
        for action, *more in actions:
            if action == "add":
                for _ in range(more[0]):
                    world.add(number, f"urn:o/{number % more[1]}")
                    waiting.append(float(number))
                    number += 1
            elif action in ("work", "seal"):
                getattr(world, action)()
                stored, waiting = stored + waiting, []
            elif action == "kill":
                world.start()
                waiting = []
            elif action == "follow":
                received += follower.run(world.history)
                follower.check(world.history)
            elif action == "lose":
                received += follower.run(world.history)
                store = world.history._store
                if raw := store.of("raw"):
                    store._remove(raw[0])
            elif action == "back":
                world.clock.now -= 3600
            else:
                seal, world.history._store.seal = world.history._store.seal, fail
                flushed = world.history._sealing is None  # otherwise values wait until the file is written
                world.seal()
                if flushed:
                    stored, waiting = stored + waiting, []
                world.history._store.seal = seal
            world.clock.sleep(1)
        received += follower.run(world.history)
        assert sorted(received) == stored
        published = [member.published for member in follower.members.values()]
        assert published == sorted(published)


DROPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "work", "kill", "seal", "drop", "follow"]), st.integers(1, 700)),
    max_size=25,
)


@given(actions=DROPS)
def test_members_and_complete_pages_stay_the_same_if_values_are_dropped(actions):
    with TemporaryDirectory() as directory:
        world, follower, number, known = World(Path(directory)), Follower(), 0, {}
        for action, count in [*actions, ("work", 1), ("follow", 1), ("kill", 1), ("follow", 1)]:
            if action == "add":
                for _ in range(count):
                    world.add(number, f"urn:o/{number % 3}")
                    number += 1
            elif action == "kill":
                world.start()
            elif action == "drop":
                world.history._drop_buffer()
            elif action == "follow":
                follower.run(world.history)
                follower.check(world.history)
                assert all(follower.members[name] == member for name, member in known.items())
                known = dict(follower.members)
            else:
                getattr(world, action)()
            world.clock.sleep(1)


def fail(*_):
    raise OSError("No space left")


@pytest.mark.parametrize(
    "text", ["", "0", "0" * 11, "0" * 12 + "-", "0" * 12 + "-01", "A" * 12, "0" * 12 + "-" + "9" * 11]
)
def test_other_texts_are_not_names(text):
    assert read_name(text) is None


@given(section=st.integers(0, 2**48 - 1), page=st.none() | st.integers(0, 10**10 - 1))
def test_names_are_read_again(section, page):
    name = NodeName(section, page)
    assert read_name(str(name)) == name


ENTRIES = st.lists(st.tuples(st.integers(0, 3) | st.just(MISSING), st.integers(1, 5)), max_size=4)


def test_batches_are_packed_with_new_numbers():
    batches = [Batch(5, 0, 7, *columns([(0, 1), (1, 2), (MISSING, 3), (3, 1)])), Batch(5, 7, 8, *columns([(2, 1)]))]
    first, second = unpacked(packed(batches, [2, 3, 0, 1]))
    assert (list(first.numbers), list(first.counts), first.end) == ([2, 3, MISSING, 1], [1, 2, 3, 1], 7)
    assert list(second.numbers) == [0]


def test_batches_of_irregular_series_take_half_a_byte_for_each_sample():
    source = random.Random(1)
    batches, end = [], 0
    for _ in range(60):
        batches.append(Batch(5, end, 3000, *columns([(each, 1) for each in range(1000) if source.random() < 0.5])))
        end = batches[-1].end
    numbers = list(range(1000))
    source.shuffle(numbers)
    assert len(packed(batches, numbers)) < 0.5 * end


@given(groups=st.lists(ENTRIES, min_size=1, max_size=5), size=st.integers(1, 7))
def test_parts_have_each_sample_once(groups, size):
    log, batches, position, expected, read = new_identity(), [], 0, [], [0] * 4
    for entries in groups:
        batch = Batch(log, position, 10 * position, *columns(entries))
        for number, count in entries:
            if number != MISSING:
                expected += [(number, read[number] + place, position + place) for place in range(count)]
                read[number] += count
            position += count
        batches.append(batch)
    for given_batches in (batches, unpacked(packed(batches, range(4)))):
        found = [
            (part.number, part.begin + place, part.position + place)
            for begin in range(0, position, size)
            for part in sample_runs(given_batches, log, begin, begin + size)
            for place in range(part.size)
        ]
        assert found == expected
    assert [section.end for section in sections(batches)] == [position]
    assert list(sample_runs(batches, log + 1, 0, math.inf)) == []


def columns(entries):
    return array("I", [number for number, _ in entries]), array("I", [count for _, count in entries])
