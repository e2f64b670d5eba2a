"""Producers, consumers and aggregators of a profile, and applications built from them."""

import asyncio
import json
import threading
from collections import Counter
from datetime import timedelta

import pytest
from client_gateway import QUICK, Gateway, following
from client_profile import profile_of, profile_text
from support.logs import records_of

from edge.client import (
    Application,
    Brokers,
    Consumer,
    Options,
    Producer,
    Refused,
    Scheduled,
    SyncConsumer,
    SyncProducer,
)
from edge.jsap import BindingError, Profile, ProfileError, UnknownEntry
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def profile(empty_gateway):
    return profile_of(empty_gateway)


def lamps(rows):
    return {(row.plain()["lamp"], row.plain()["state"]) for row in rows}


async def test_a_producer_puts_terms_into_its_update(profile):
    async with Producer(profile, "SET") as lamp, Consumer(profile, "LAMPS") as received:
        assert (await lamp.produce(lamp="urn:l1", state='") } ; CLEAR ALL #')).added == 1
        assert (await lamp.update({"lamp": "urn:l2", "state": True})).added == 1
        await eventually(lambda: len(received.results) == 2, "both lamps")
        assert lamps(received.results) == {("urn:l1", '") } ; CLEAR ALL #'), ("urn:l2", True)}
        with pytest.raises(BindingError):
            await lamp.produce(lamp="urn:l1")
    with pytest.raises(UnknownEntry):
        Producer(profile, "LAMPS")


async def test_a_consumer_hands_over_deltas_and_state(profile):
    async with (
        Brokers() as brokers,
        Consumer(profile, "LAMP", {"lamp": "urn:l1"}, brokers=brokers) as lamp,
    ):
        assert lamp.connected
        assert (await following(lamp)).sequence == 0
        produce = Producer(profile, "SET", brokers=brokers)
        for state in ("on", "off"):
            await produce.produce(lamp="urn:l1", state=state)
            await produce.produce(lamp="urn:l2", state=state)
        delta = await following(lamp)
        assert [row.plain() for row in delta.added] == [{"state": "on"}]
        delta = await following(lamp)
        assert [row.plain() for row in delta.removed] == [{"state": "on"}]
        assert [row.plain() for row in lamp.results] == [{"state": "off"}]


async def test_handlers_of_rows(profile):
    async with Consumer(profile, "LAMPS") as received, Producer(profile, "SET") as produce:
        seen = []

        @received.on_removed
        def gone(row):
            seen.append(("-", row.plain()["state"], threading.current_thread() is threading.main_thread()))

        @received.on_added
        async def new(row):
            seen.append(("+", row.plain()["state"], threading.current_thread() is threading.main_thread()))

        running = asyncio.create_task(received.run())
        for state in (1, 2):
            await produce.produce(lamp="urn:l", state=state)
        await eventually(lambda: len(seen) == 3, "all rows")
        assert seen == [("+", 1, True), ("-", 1, False), ("+", 2, True)]
        await received.close()
        await running


async def test_an_application_from_event_to_action(profile):
    app = Application(profile, options=QUICK)
    seen = asyncio.Event()

    @app.aggregator("SEEN", "SET")
    async def light(delta, update):
        for row in delta.added:
            await update(lamp=f"{row.plain()['place']}-lamp", state=row.plain()["n"] > 0)

    @app.consumer("LAMP", lamp="urn:door-lamp")
    async def watch(delta):
        if any(row.plain() == {"state": True} for row in delta.added):
            seen.set()

    async def main():
        see = app.producer("SEE")
        await see.produce(n=0)
        await see.produce(n=2)
        async with asyncio.timeout(PATIENCE):
            await seen.wait()
        assert app.connected
        assert [row.plain() for row in watch.results] == [{"state": True}]
        assert [row.plain()["n"] for row in light.results] == [2]

    async with asyncio.timeout(PATIENCE):
        await app.serve(main)
    assert not app.connected


async def test_an_application_asks_once_and_agents_that_start_twice_subscribe_once(profile):
    application = Application(profile, options=QUICK)
    changes = []

    @application.consumer("LAMPS")
    async def lamp(change):
        changes.append(change)

    async def main():
        await asyncio.gather(lamp.start(), lamp.start())
        await application.producer("SET").produce(lamp="urn:l1", state="on")
        await eventually(lambda: len(changes) == 2, "the lamp")
        assert [row.plain() for row in await application.query("LAMP", lamp="urn:l1")] == [{"state": "on"}]

    await application.serve(main)
    assert [change.sequence for change in changes] == [0, 1]


async def test_updates_of_an_aggregator_are_pipelined_in_order(profile):
    app = Application(profile)
    outcomes = []

    @app.aggregator("SEEN", "SET")
    async def count(delta, update):
        for row in delta.added:
            outcomes.extend([await update({"lamp": "urn:l"}, state=n) for n in range(300)])
            outcomes.append(row)

    states = []
    done = asyncio.Event()

    @app.consumer("LAMP", lamp="urn:l")
    async def watch(delta):
        states.extend(row.plain()["state"] for row in delta.added)
        if 299 in states:
            done.set()

    async def main():
        await app.producer("SEE").produce(n=1)
        async with asyncio.timeout(PATIENCE):
            await done.wait()
        assert [task.result().added for task in outcomes[:-1]] == [1] * 300

    await app.serve(main)
    assert states == sorted(states)


async def test_a_slow_handler_delays_no_other_and_misses_nothing(profile):
    app = Application(profile, options=Options(waiting=3))
    go_on = asyncio.Event()
    changes, state = [], Counter()

    @app.consumer("LAMPS")
    async def slow(change):
        await go_on.wait()
        changes.append(change)
        state.subtract(change.removed)
        state.update(change.added)

    async def main():
        produce = app.producer("SET")
        for n in range(40):
            await produce.produce(lamp="urn:l", state=n)
        await eventually(lambda: lamps(slow.results) == {("urn:l", 39)}, "the result is the newest")
        go_on.set()
        await eventually(lambda: lamps(+state) == {("urn:l", 39)}, "the handler knows all")

    await app.serve(main)
    assert len(changes) <= 5
    assert [change.sequence for change in changes] == list(range(len(changes)))


async def test_a_plain_handler_runs_on_a_thread_and_may_wait(profile):
    app = Application(profile)
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    outcomes = []

    @app.aggregator("SEEN", "SET")
    def light(delta, update):
        assert threading.current_thread() is not threading.main_thread()
        for row in delta.added:
            outcomes.append(update(lamp="urn:l", state=row["n"]).result(PATIENCE))
            loop.call_soon_threadsafe(done.set)

    async def main():
        await app.producer("SEE").produce(n=1)
        async with asyncio.timeout(PATIENCE):
            await done.wait()

    await app.serve(main)
    assert outcomes[0].added == 1


async def test_a_failing_handler_is_logged_with_its_row_and_continues(profile, caplog):
    app = Application(profile)
    received = []

    @app.aggregator("SEEN", "SET")
    async def light(delta, update):
        for row in delta.added:
            received.append(row.plain()["n"])
            if row.plain()["n"] == 1:
                raise RuntimeError("mine")
            if row.plain()["n"] == 2:
                await update(lamp="no iri at all", state=1)

    async def main():
        see = app.producer("SEE")
        for n in (1, 2, 3):
            await see.produce(n=n)
        await eventually(lambda: 3 in received, "the third")

    await app.serve(main)
    assert "light failed at" in caplog.text
    assert 'n="1"' in caplog.text
    assert "mine" in caplog.text
    assert "BindingError" in caplog.text


@pytest.mark.parametrize("plain", [False, True])
async def test_an_update_that_is_refused_is_one_line_with_its_values(profile, empty_gateway, caplog, plain):
    text = '{"updates": {"FAIL": {"sparql": "INSERT DATA { ?x <urn:p> 1 } ; LOAD <http://nowhere.invalid/>",'
    text += ' "forcedBindings": {"x": {"type": "uri"}}}}}'
    app = Application(Profile.parse(merged(empty_gateway, text)))
    outcomes = []

    async def light(delta, update):
        outcomes.extend([await update(x=row["place"]) for row in delta.added])

    def plain_light(delta, update):
        outcomes.extend(asyncio.wrap_future(update(x=row["place"]), loop=loop) for row in delta.added)

    loop = asyncio.get_running_loop()
    app.aggregator("SEEN", "FAIL")(plain_light if plain else light)

    async def main():
        async with Producer(profile, "SEE") as see:
            await see.produce(n=1)
        await eventually(lambda: outcomes and records_of("edge.client", caplog), "the failure")
        with pytest.raises(Refused):
            await outcomes[0]

    await app.serve(main)
    (record,) = records_of("edge.client", caplog)
    assert "FAIL failed at x=<urn:door>: " in record.getMessage()


async def test_a_refused_request_of_a_handler_is_logged_in_one_line(profile, caplog):
    app = Application(profile)
    received = []

    @app.consumer("SEEN")
    async def watch(delta):
        received.append(delta)
        raise Refused("error", "no\nsuch thing", 500)

    async def main():
        await eventually(lambda: received and records_of("edge.client", caplog), "the failure")

    await app.serve(main)
    (record,) = records_of("edge.client", caplog)
    assert record.getMessage().endswith("no such thing (error, 500)")


@pytest.mark.parametrize("where", ["handler", "update"])
async def test_an_application_may_ask_to_stop_at_the_first_failure(profile, where):
    app = Application(profile, stop_on_error=True)

    @app.aggregator("SEEN", "SET")
    async def light(delta, update):
        if delta.added and where == "handler":
            raise RuntimeError("mine")
        if delta.added:
            await update(lamp="urn:l", state=1, id="an id without a time")

    async def main():
        await app.producer("SEE").produce(n=1)
        await asyncio.sleep(PATIENCE)

    with pytest.raises((RuntimeError, ValueError), match=r"mine|delay"):
        await app.serve(main)


async def test_a_refused_subscription_ends_the_application(profile, empty_gateway):
    text = '{"queries": {"Q": {"sparql": "SELECT * { ?s ?p ?o SERVICE <http://nowhere/> { ?s ?p ?o } }"}}}'
    app = Application(Profile.parse(merged(empty_gateway, text)))

    @app.consumer("Q")
    async def watch(delta):
        pass

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Refused):
            await app.serve()


def merged(gateway, text):
    return json.dumps({**json.loads(profile_text(gateway.http_port, gateway.ws_port)), **json.loads(text)})


async def test_a_delayed_update_and_its_timer(profile):
    async with Brokers() as brokers, Consumer(profile, "LAMPS", brokers=brokers) as received:
        produce = Producer(profile, "SET", brokers=brokers)
        scheduled = await produce.update({"lamp": "urn:l", "state": 1}, delay=timedelta(hours=1), id="off/lamp 1")
        assert isinstance(scheduled, Scheduled)
        assert scheduled.id == "off/lamp 1"
        assert not scheduled.replaced
        again = await produce.update({"lamp": "urn:l", "state": 2}, delay=timedelta(milliseconds=50), id="off/lamp 1")
        assert isinstance(again, Scheduled)
        assert again.replaced
        await eventually(lambda: lamps(received.results) == {("urn:l", 2)}, "the timer")


async def test_host_takes_the_place_of_all_hosts(empty_gateway):
    profile = profile_of(empty_gateway, host="nowhere.invalid")
    async with Brokers(host="127.0.0.1") as brokers:
        assert (await Producer(profile, "SET", brokers=brokers).produce(lamp="urn:l", state=1)).added == 1


async def test_one_application_talks_to_several_brokers(empty_gateway, tmp_path):
    other = Gateway(tmp_path / "other")
    other.start()
    try:
        text = json.loads(merged(empty_gateway, "{}"))
        text["updates"]["SET"]["sparql11protocol"] = {"port": other.http_port}
        text["queries"]["LAMPS"]["sparql11seprotocol"] = {"availableProtocols": {"ws": {"port": other.ws_port}}}
        app = Application(Profile.parse(json.dumps(text)))
        done = asyncio.Event()

        @app.aggregator("SEEN", "SET")
        async def store(delta, update):
            for row in delta.added:
                await update(lamp=row["place"], state=row["n"])

        @app.consumer("LAMPS")
        async def watch(delta):
            if lamps(delta.added) == {("urn:door", 5)}:
                done.set()

        async def main():
            await app.producer("SEE").produce(n=5)
            async with asyncio.timeout(PATIENCE):
                await done.wait()

        await app.serve(main)
    finally:
        other.end()


def test_plain_programs(profile):
    with (
        SyncProducer(profile, "SET") as produce,
        SyncConsumer(profile, "LAMP", {"lamp": "urn:l"}, timeout=PATIENCE) as lamp,
    ):
        assert lamp.next(PATIENCE).added == ()
        assert produce.produce(lamp="urn:l", state=1).added == 1
        assert [row.plain() for row in lamp.next(PATIENCE).added] == [{"state": 1}]
        assert isinstance(produce.update({"lamp": "urn:l", "state": 2}, delay=timedelta(0)), Scheduled)
        for delta in lamp:
            assert [row.plain() for row in delta.added] == [{"state": 2}]
            break
        assert [row.plain() for row in lamp.results] == [{"state": 2}]
        assert lamp.connected
    lamp.close()


def test_invalid_profiles_and_names_are_reported_at_once(profile, tmp_path):
    broken = tmp_path / "broken.jsap"
    broken.write_text("{")
    with pytest.raises(ProfileError):
        Application(broken)
    app = Application(profile)
    with pytest.raises(UnknownEntry, match="LAMPS"):
        app.consumer("LAMPSES")(print)
    with pytest.raises(BindingError, match="lamp"):
        app.consumer("LAMP")(print)
