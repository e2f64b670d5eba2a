"""The gateway stops in the middle of a large slide."""

from __future__ import annotations

import threading
from contextlib import closing

import pyoxigraph as ox
import pytest
from test_stream_service import ELEMENT, OWNER, SECOND, START, Service

from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.errors import NotReady
from edge.streams import window_engine
from edge.streams.processor import AdvanceInProgress, NewElement, window_advance
from edge.streams.store import StreamStore
from tests.support.waiting import wait_for

SUBJECT, PREDICATE = ELEMENT[0].subject, ELEMENT[0].predicate


def test_the_end_of_a_slide_is_not_waited_for(tmp_path, monkeypatch):
    for module, name in ((window_engine, "_LARGEST_PIECE"), (window_advance, "_LARGEST_TURN")):
        monkeypatch.setattr(module, name, 1)
    elements = [NewElement((ox.Triple(SUBJECT, PREDICATE, ox.Literal(number)),)) for number in range(200)]
    live = open_engine(None, EngineSettings())
    service = Service(live, tmp_path)
    service.stream("rooms")
    service.register("q")
    service.call(lambda processor, now: processor.add("rooms", elements, OWNER, now))
    stopping = threading.Thread(target=service.close)

    def stops() -> bool:
        future = service.service.call(lambda _processor, _now: None)
        return future.done() and isinstance(future.exception(), NotReady)

    def stop(processor, _now):
        if not stopping.ident:
            assert processor.is_advancing
            stopping.start()
            wait_for(stops)
        raise AdvanceInProgress

    service.clock.now += 10 * SECOND
    waits = service.service.call(stop)
    with pytest.raises(NotReady, match="is stopping"):
        waits.result(20)
    stopping.join(20)

    with closing(StreamStore(tmp_path)) as store:
        assert store.time == START
    service.open()
    service.wait(0)
    wait_for(lambda: service.call(lambda processor, _now: not processor.is_advancing))
    assert service.call(lambda processor, _now: processor.find("q").number) == 1
    service.close()
    live.close()
