"""The dispatcher from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import threading

from edge.engine.wakeups import together, wake_now
from edge.gates.loop_dispatcher import LoopDispatcher
from tests.support.waiting import eventually


class CountingLoop:
    """An event loop that counts its wake-ups."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.wakeups = 0

    def call_soon_threadsafe(self, *args):
        self.wakeups += 1
        return self.loop.call_soon_threadsafe(*args)

    def __getattr__(self, name):
        return getattr(self.loop, name)


async def test_a_burst_is_one_wake_up_and_keeps_its_order():
    loop = CountingLoop(asyncio.get_running_loop())
    bridge, got = LoopDispatcher(loop), []  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: [bridge.put(got.append, number) for number in range(5000)])
    thread.start()
    thread.join()  # the loop cannot run meanwhile, so all calls are one burst
    await eventually(lambda: len(got) == 5000, "delivery")
    assert got == list(range(5000))
    assert loop.wakeups == 1


async def test_nothing_is_lost_while_both_sides_run():
    bridge, got = LoopDispatcher(asyncio.get_running_loop()), []

    def put() -> None:
        for number in range(20_000):
            bridge.put(got.append, number)

    threads = [threading.Thread(target=put) for _ in range(2)]
    for thread in threads:
        thread.start()
    await eventually(lambda: len(got) == 40_000, "delivery")
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted([*range(20_000), *range(20_000)])


async def test_other_work_has_its_turn_within_a_burst():
    loop = asyncio.get_running_loop()
    bridge, got, seen = LoopDispatcher(loop), [], []
    for number in range(5000):
        bridge.put(got.append, number)
    loop.call_soon(lambda: seen.append(len(got)))
    await eventually(lambda: len(got) == 5000, "delivery")
    assert seen[0] < 5000


async def test_a_failing_receiver_delays_no_other(caplog):
    bridge, got = LoopDispatcher(asyncio.get_running_loop()), []

    def fail(item):
        raise RuntimeError(item)

    for receiver in (got.append, fail, got.append):
        bridge.put(receiver, len(got))
    await eventually(lambda: len(got) == 2, "what comes after it")
    assert "bridge.fault" in caplog.text


def test_a_closed_loop_is_not_an_error():
    loop = asyncio.new_event_loop()
    bridge = LoopDispatcher(loop)
    loop.close()
    bridge.put(print, 1)


async def test_a_function_runs_once_after_the_items_of_a_turn():
    bridge, got = LoopDispatcher(asyncio.get_running_loop()), []

    def receive(item):
        if not got:
            bridge.afterwards(lambda: got.append("end"))
        got.append(item)

    for number in range(3):
        bridge.put(receive, number)
    await eventually(lambda: "end" in got, "the end of the turn")
    assert got == [0, 1, 2, "end"]


async def test_a_function_outside_of_a_turn_runs_soon():
    bridge, got = LoopDispatcher(asyncio.get_running_loop()), []
    bridge.afterwards(lambda: got.append(1))
    bridge.afterwards(lambda: got.append(2))
    await eventually(lambda: got == [1, 2], "both")


async def test_the_notifications_of_a_commit_wake_the_loop_once_at_its_end():
    loops = [CountingLoop(asyncio.get_running_loop()) for _ in range(2)]
    bridges, got = [LoopDispatcher(loop) for loop in loops], []  # type: ignore[arg-type]
    with together():
        for number in range(200):
            bridges[number % 2].put(got.append, number)
        assert [loop.wakeups for loop in loops] == [0, 0]
    assert [loop.wakeups for loop in loops] == [1, 1]
    await eventually(lambda: len(got) == 200, "delivery")


async def test_a_thread_with_more_work_wakes_the_loop_before_it():
    loop = CountingLoop(asyncio.get_running_loop())
    bridge, got = LoopDispatcher(loop), []  # type: ignore[arg-type]
    wake_now()
    with together():
        with together():  # a commit within the work of an adapter
            bridge.put(got.append, 1)
        assert loop.wakeups == 0
        wake_now()
        wake_now()
        assert loop.wakeups == 1
        await eventually(lambda: got == [1], "delivery")
        bridge.put(got.append, 2)
        assert loop.wakeups == 1
    assert loop.wakeups == 2
    await eventually(lambda: got == [1, 2], "delivery")


async def test_many_notifications_do_not_wait_for_the_end_of_the_commit():
    loop = CountingLoop(asyncio.get_running_loop())
    bridge = LoopDispatcher(loop)  # type: ignore[arg-type]
    with together():
        for number in range(2000):
            bridge.put(lambda _: None, number)
        assert loop.wakeups == 1


async def test_other_threads_wake_the_loop_while_a_commit_is_handed_over():
    bridge, got = LoopDispatcher(asyncio.get_running_loop()), []
    with together():
        bridge.put(got.append, 1)
        thread = threading.Thread(target=bridge.put, args=(got.append, 2))
        thread.start()
        await eventually(lambda: got == [1, 2], "delivery")
    thread.join()
