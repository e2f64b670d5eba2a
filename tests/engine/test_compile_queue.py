"""Long texts are compiled in round-robin order of clients, and only a few ahead of the writer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from scheduler_harness import WAIT

from edge.engine.scheduling.compile_queue import CompileQueue
from tests.support.waiting import wait_for


class Texts:
    """A queue whose compilations block until the test releases them."""

    def __init__(self) -> None:
        self.queue = CompileQueue()
        self.begun: list[str] = []
        self.compiled: list[str] = []
        self.futures: dict[str, Future[Any]] = {}
        self.go_on = threading.Event()

    def put(self, source: str, name: str) -> None:
        def compile_() -> None:
            self.begun.append(name)
            assert self.go_on.wait(WAIT)
            self.compiled.append(name)

        self.futures[name] = Future()
        self.queue.put(source, "normal", compile_, self.futures[name])


@pytest.fixture
def texts() -> Iterator[Texts]:
    texts = Texts()
    yield texts
    texts.go_on.set()
    texts.queue.close()
    for future in texts.futures.values():
        if not future.done():
            future.set_result(None)
    texts.queue._pool.shutdown()


def test_one_text_of_a_client_is_compiled_at_a_time(texts):
    for number in range(5):
        texts.put("flood", f"flood {number}")
    wait_for(lambda: texts.begun == ["flood 0"])
    texts.put("other", "other")
    wait_for(lambda: texts.begun == ["flood 0", "other"])


def test_texts_of_a_client_keep_their_order_during_compilation(texts):
    names = [f"text {number}" for number in range(6)]
    for name in names:
        texts.put("client", name)
    texts.go_on.set()
    for number, name in enumerate(names):
        wait_for(lambda number=number: texts.compiled == names[: number + 2])
        texts.futures[name].set_result(None)
    wait_for(lambda: not texts.queue._ahead)


def test_a_client_has_one_compiled_text_however_many_others_have(texts):
    texts.go_on.set()
    for client in range(20):
        for number in range(3):
            texts.put(f"client {client}", f"{client} {number}")
    wait_for(
        lambda: not texts.queue._running and {name.split()[0] for name in texts.compiled} == set(map(str, range(20)))
    )
    assert len(texts.compiled) <= 20 + 8


def test_waiting_texts_are_compiled_after_the_end(texts):
    for number in range(5):
        texts.put("client", f"text {number}")
    texts.queue.close()
    texts.go_on.set()
    for number in range(5):
        wait_for(lambda number=number: f"text {number}" in texts.compiled)
        texts.futures[f"text {number}"].set_result(None)
