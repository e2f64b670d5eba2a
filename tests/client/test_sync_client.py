"""The synchronous client."""

import asyncio
import signal
import subprocess
import sys
import threading

import pytest
from client_gateway import NUMBERS, QUICK, numbers

from edge.client import Backoff, Closed, Options, Refused, SyncClient
from tests.support.waiting import PATIENCE, wait_for


def test_queries_updates_and_refusals(empty_gateway):
    with SyncClient(empty_gateway.endpoints) as client:
        assert client.update("INSERT DATA { <urn:set> <urn:has> 1 , 2 }").added == 2
        assert numbers(client.select(NUMBERS)) == [1, 2]
        assert client.ask("ASK { ?s ?p 2 }") is True
        assert len(client.construct("CONSTRUCT WHERE { ?s ?p ?o }")) == 2
        assert client.query("ASK { ?s ?p 3 }") is False
        with pytest.raises(Refused):
            client.update("nonsense")


def test_a_subscription_is_a_blocking_iterator(empty_gateway):
    with SyncClient(empty_gateway.endpoints) as client:
        with client.subscribe(NUMBERS, timeout=PATIENCE) as subscription:
            assert client.connected
            assert subscription.next(PATIENCE).added == ()
            with pytest.raises(TimeoutError):
                subscription.next(0.05)
            for n in range(3):
                client.update(f"INSERT DATA {{ <urn:set> <urn:has> {n} }}")
            seen = []
            for notification in subscription:
                seen += numbers(notification.added)
                if len(seen) == 3:
                    break
            assert seen == [0, 1, 2]
            assert numbers(subscription.results) == [0, 1, 2]
        assert subscription.next(PATIENCE) is None
        assert list(subscription) == []


def test_handlers_run_on_a_thread_of_their_own_and_may_use_the_client(empty_gateway, caplog):
    done = threading.Event()
    where = set()

    with SyncClient(empty_gateway.endpoints) as client:

        def handler(notification):
            where.add(threading.current_thread())
            for n in numbers(notification.added):
                if n == 1:
                    raise RuntimeError("mine")
                if n == 2:
                    client.update("INSERT DATA { <urn:set> <urn:has> 3 }")
                if n == 3:
                    subscription.close()
                    done.set()

        subscription = client.subscribe(NUMBERS, handler)
        for n in (1, 2):
            client.update(f"INSERT DATA {{ <urn:set> <urn:has> {n} }}")
        assert done.wait(PATIENCE)
        client.update("INSERT DATA { <urn:set> <urn:has> 4 }")
    assert len(where) == 1
    assert threading.main_thread() not in where
    assert "handler failed at Notification" in caplog.text
    assert any('n="1"' in record.getMessage() for record in caplog.records), "with the row"


def test_a_handler_may_close_the_client(empty_gateway):
    client = SyncClient(empty_gateway.endpoints)
    closed = threading.Event()

    def handler(notification):
        client.close()
        closed.set()

    client.subscribe(NUMBERS, handler)
    assert closed.wait(PATIENCE)
    with pytest.raises(Closed):
        client.ask("ASK {}")


def test_closing_ends_all_waiting_calls(absent_gateway):
    client = SyncClient(absent_gateway.endpoints, options=QUICK)
    ended = []

    def work(action):
        with pytest.raises(Closed):
            action()
        ended.append(action)

    threads = [
        threading.Thread(target=work, args=(action,))
        for action in (lambda: client.subscribe(NUMBERS), lambda: client.ask("ASK {}"), lambda: client.update("X"))
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(asyncio.all_tasks(client._thread._loop)) >= 3, "the calls to wait")
    client.close()
    client.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(ended) == 3


def test_a_subscribe_call_has_a_timeout(absent_gateway):
    with SyncClient(absent_gateway.endpoints, options=QUICK) as client, pytest.raises(TimeoutError):
        client.subscribe(NUMBERS, timeout=0.2)


def test_many_threads_share_a_client(empty_gateway):
    with SyncClient(empty_gateway.endpoints) as client:

        def work(k):
            for n in range(20):
                client.update(f"INSERT DATA {{ <urn:set> <urn:has> {100 * k + n} }}")

        threads = [threading.Thread(target=work, args=(k,)) for k in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(client.select(NUMBERS)) == 100


def test_the_listener_may_use_the_client(gateway):
    news = []

    def listener(url, connected):
        news.append((connected, client.ask("ASK {}") if connected else None))

    with SyncClient(gateway.endpoints, options=Options(backoff=Backoff(0.05, 0.2), on_connection=listener)) as client:
        subscription = client.subscribe(NUMBERS)
        wait_for(lambda: news, what="the listener")
        gateway.kill()
        gateway.start()
        gateway.put(7)
        seen = []
        while 7 not in seen:
            seen += numbers(subscription.next(PATIENCE).added)
        wait_for(lambda: len(news) == 3, what="the listener again")
        assert news == [(True, True), (False, None), (True, True)]


def test_the_loop_never_waits_for_itself(empty_gateway):
    with SyncClient(empty_gateway.endpoints) as client:

        async def inside():
            with pytest.raises(RuntimeError, match="deadlock"):
                client.ask("ASK {}")
            return True

        assert client._thread.run(inside())


PROGRAM = """
import sys
from edge.client import Endpoints, SyncClient
with SyncClient(Endpoints(*sys.argv[1:])) as client:
    with client.subscribe("SELECT * { ?s ?p ?o }") as subscription:
        try:
            for notification in subscription:
                print(notification.sequence, flush=True)
        except KeyboardInterrupt:
            print("bye", flush=True)
"""


def test_ctrl_c_interrupts_a_blocking_iterator(empty_gateway):
    at = empty_gateway.endpoints
    arguments = [sys.executable, "-c", PROGRAM, at.query, at.update, at.subscribe]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "0\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err, process.returncode) == ("bye\n", "", 0)
