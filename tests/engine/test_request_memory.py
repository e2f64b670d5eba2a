"""The memory of an answered request is free at once, without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.scheduling.work import Task, Work
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.due_time import After
from edge.protocol.errors import TooManyRequests
from tests.support.waiting import wait_for

LONG = f"INSERT DATA {{ <urn:a> <urn:b> '{'x' * 100_000}' }}"
"""Compiled on the compile thread."""
DAY = After(86_400_000_000)


@pytest.fixture
def engine() -> Iterator[Any]:
    engine = open_engine(None, EngineSettings(max_timer_bytes=150_000))
    engine.update([UpdateRequest(LONG)]).result()
    gc.collect()
    gc.disable()
    yield engine
    gc.enable()
    engine.close()


def left() -> list[str]:
    return [type(each).__name__ for each in gc.get_objects() if isinstance(each, Work | Task)]


def is_free() -> bool:
    """Wait until the writer has released a request, which it does shortly after the answer."""
    wait_for(lambda: left() == [], "the request to be released")
    return True


def test_executed_update_frees_its_text(engine):
    engine.update([UpdateRequest(LONG)]).result()
    assert is_free()


def test_scheduled_update_frees_its_text(engine):
    engine.schedule(UpdateRequest(LONG), DAY, "one").result()
    assert is_free()


def test_refused_delayed_update_frees_its_text(engine):
    engine.schedule(UpdateRequest(LONG), DAY, "one").result()
    with pytest.raises(TooManyRequests):
        engine.schedule(UpdateRequest(LONG), DAY, "two").result()
    assert is_free()


@pytest.mark.parametrize("more", ["", f" # {'x' * 10_000}"], ids=["short", "long"])
def test_subscription_frees_its_request(engine, more):
    subscription = engine.subscribe(QueryRequest(f"SELECT ?o {{ ?s <urn:b> ?o }}{more}"), lambda _: None).result()
    assert is_free()
    engine.unsubscribe(subscription.spuid).result()
    assert is_free()
