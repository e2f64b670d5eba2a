"""The watchdog of progress, with explicit times."""

from __future__ import annotations

import asyncio
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.gateway.watchdog import Component, Stalled, Watchdog
from edge.metrics import Metrics


class Fake:
    """A component that behaves as the test says."""

    def __init__(self, name: str = "gate", *, alone: bool = True, mended: bool = True) -> None:
        self.moves = True
        self.mended = mended
        self.restarts: list[float] = []
        self.now = 0.0
        self.part = Component(name, self.prove, self.restart if alone else None, ends=not alone)

    async def prove(self) -> None:
        if not self.moves:
            raise Stalled("it was stopped")

    async def restart(self) -> None:
        self.restarts.append(self.now)
        self.moves = self.mended
        if not self.mended:
            raise OSError("the port is in use")


def watchdog(*fakes: Fake, interval: float = 10.0, stall_after: float = 30.0, end_after: float = 300.0) -> Watchdog:
    made = Watchdog(interval, stall_after, end_after, Metrics())
    made.watch(*(fake.part for fake in fakes))
    return made


async def look(made: Watchdog, now: float, *fakes: Fake) -> None:
    for fake in fakes:
        fake.now = now
    await made.look(now)


async def test_a_live_component_is_not_restarted():
    fake = Fake()
    made = watchdog(fake)
    for now in range(0, 1000, 10):
        await look(made, now, fake)
    assert (fake.restarts, made.states(), made.still(1000)) == ([], {"gate": "moves"}, [])


async def test_a_stalled_component_is_restarted_alone():
    still, other = Fake("still"), Fake("other")
    made = watchdog(still, other)
    still.moves = False
    for now in range(100, 140, 10):
        await look(made, now, still, other)
        if now < 130:
            assert made.still(now) == []
    assert (still.restarts, other.restarts) == ([130], [])
    assert made.states() == {"still": "it was stopped", "other": "moves"}  # until it has made progress
    await look(made, 140, still, other)
    assert made.states() == {"still": "moves", "other": "moves"}


async def test_one_failed_check_restarts_nothing():
    fake = Fake()
    made = watchdog(fake)
    for now in range(0, 500, 10):
        fake.moves = bool(now % 20)
        await look(made, now, fake)
    assert fake.restarts == []


async def test_after_a_long_pause_of_the_machine_nothing_is_restarted():
    fake = Fake()
    made = watchdog(fake)
    await look(made, 0, fake)
    fake.moves = False
    await look(made, 100_000, fake)
    assert fake.restarts == []


async def test_unsuccessful_restarts_back_off():
    fake = Fake(mended=False)
    made = watchdog(fake, interval=1)
    fake.moves = False
    for now in range(5000):
        await look(made, now, fake)
    gaps = [later - earlier for earlier, later in zip(fake.restarts, fake.restarts[1:], strict=False)]
    assert gaps == [30, 60, 120, 240, 480, *[600] * (len(gaps) - 5)]
    assert made.still(5000) == ["gate: it was stopped"]


async def test_restarts_continue_after_a_month_without_success():
    fake = Fake(mended=False)
    made = watchdog(fake)
    fake.moves = False
    for now in range(0, 30 * 86_400, 600):
        await look(made, now, fake)
    # 2 ** 1024 seconds would exceed the range of floating-point numbers.
    assert len(fake.restarts) > 1024


async def test_nothing_is_restarted_without_descriptors():
    async def prove() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    fake = Fake()
    fake.part.prove = prove
    made = watchdog(fake)
    for now in range(0, 500, 10):
        await look(made, now, fake)
    assert (fake.restarts, made.still(500)) == ([], [])
    assert made.states() == {"gate": "not known: the process is out of file descriptors"}


async def test_a_check_that_never_ends_counts_as_failed():
    async def forever() -> None:
        await asyncio.Event().wait()

    made = watchdog(interval=0.01)
    made.watch(Component("stuck", forever))
    await made.look(0)
    assert made.states() == {"stuck": "no answer within 0.01 s"}


@pytest.mark.parametrize("end_after", [0, 300])
async def test_a_component_that_cannot_be_restarted_ends_the_gateway(end_after):
    fake = Fake("engine", alone=False)
    made = watchdog(fake, end_after=end_after)
    fake.moves = False
    for now in range(0, 300, 10):
        await look(made, now, fake)
    assert not made.lost.done()
    await look(made, 300, fake)
    assert made.lost.done() == bool(end_after)
    if end_after:
        assert made.lost.result() == "engine has not moved for 300 s: it was stopped"


async def test_heartbeats_are_sent_until_the_gateway_is_lost():
    fake, received = Fake("engine", alone=False), []
    made = Watchdog(10, 30, 50, Metrics(), received.append)
    made.watch(fake.part)
    await look(made, 0, fake)
    fake.moves = False
    for now in range(10, 100, 10):
        await look(made, now, fake)
    assert received == [""] + ["engine: it was stopped"] * 5


@given(st.lists(st.tuples(st.floats(0.1, 100), st.booleans()), max_size=60))
def test_nothing_is_restarted_that_moved_within_the_time(steps):
    asyncio.run(_look(steps))


async def _look(steps: list[tuple[float, bool]]) -> None:
    fake = Fake()
    made = watchdog(fake)
    now, failing = 0.0, None
    for pause, moves in steps:
        now += pause
        fake.moves = moves
        before = len(fake.restarts)
        await look(made, now, fake)
        failing = None if moves else now if failing is None else failing
        due = failing is not None and now - failing >= 30
        assert (made.still(now) != []) == due
        if not due:
            assert len(fake.restarts) == before
