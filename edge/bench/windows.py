"""Windows over a stream: what an element costs in a long and in a short window, and with many queries."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyoxigraph as ox

from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, steps
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY, Access
from edge.protocol.results import Row
from edge.streams.processor import NewElement, Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

_SECOND: Final = 1_000_000
_STREAM: Final = "urn:bench:stream"
_VALUE: Final = ox.NamedNode("urn:bench:value")
_SENSORS: Final = 100
_RATE: Final = 10
"""Elements a second of the stream's time."""
_MEASURED: Final = 120
"""Seconds of the stream's time that are measured."""
_QUERIES: Final = 10_000
_WINDOW: Final = f"FROM NAMED WINDOW <urn:w> ON <{_STREAM}>"
_WHERE: Final = "WINDOW <urn:w> { ?sensor <urn:bench:value> ?value }"

_MEANINGS: Final = {
    "minute_us": "one element, mean of each sensor in [1 minute, step 1 minute], us",
    "hour_us": "the same in [1 hour, step 1 minute], us",
    "hour_to_minute": "the second / the first",
    "oxigraph_us": "the same result, evaluated again by Oxigraph at each step of an hour, us an element",
    "hour_to_oxigraph": "one element in the window of an hour / that",
    "element_bytes": "memory of an element in a window, bytes",
    "queries_us": f"one element, with {_QUERIES:,} queries for values above a limit of their own, us",
    "query_bytes": "memory of one of these queries, bytes",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure processors in this process, with simulated time. Each run has its own input."""
    hour = 600 if options.small else 3_600
    queries = 100 if options.small else _QUERIES
    found: dict[str, list[float]] = {name: [] for name in _MEANINGS}
    reports: list[float] = []
    _cost("PT10S", 10, 0)  # imports and caches, which the first measurement would pay for
    for turn in steps(range(options.runs), "windows"):
        minute_us, _ = _cost("PT1M", 60, turn)
        hour_us, made = _cost(f"PT{hour}S", hour, turn)
        reports.append(made)
        oxigraph_us = _oxigraph(hour, turn)
        queries_us, query_bytes = _many(queries, turn)
        figures = (minute_us, hour_us, hour_us / minute_us, oxigraph_us, hour_us / oxigraph_us)
        for name, figure in zip(_MEANINGS, (*figures, _memory(turn), queries_us, query_bytes), strict=True):
            found[name].append(figure)
    indicators: dict[str, Sequence[float]] = {
        "subscriptions": [queries] * options.runs,
        "updates": [_MEASURED * _RATE] * options.runs,
        "notifications": reports,
    }
    return ExperimentReport(
        "windows", options.mode, indicators, [Figure(name, _MEANINGS[name], found[name]) for name in _MEANINGS]
    )


class _NoGraph:
    """A live graph without triples."""

    def follow(
        self,
        sparql: str,
        access: Access,
        changed: Callable[[Sequence[Row], Sequence[Row]], None],
        failed: Callable[[str], None],
    ) -> tuple[Sequence[Row], Callable[[], None]]:
        return (), lambda: None


def _processor() -> Processor:
    settings = StreamSettings(max_bytes=512 * 1024 * 1024, max_queries=2 * _QUERIES)
    engine = EngineSettings()
    processor = Processor(settings, StreamStore(None), lambda: make_engine(engine), _NoGraph(), lambda access: access)
    processor.put_stream(_STREAM, None, ANYBODY)
    return processor


def _elements(begin: int, seconds: int, turn: int) -> Iterator[tuple[int, NewElement]]:
    """Yield the elements of a span of seconds, with their times in microseconds."""
    for number in range(begin * _RATE, (begin + seconds) * _RATE):
        at = number * _SECOND // _RATE
        sensor = ox.NamedNode(f"urn:bench:sensor{number % _SENSORS}")
        yield at, NewElement((ox.Triple(sensor, _VALUE, ox.Literal((number * 7 + turn) % 1_000)),), at)


def _feed(processor: Processor, begin: int, seconds: int, turn: int) -> int:
    """Add elements one at a time. Return the number of reports."""
    reports = 0
    for at, element in _elements(begin, seconds, turn):
        while not processor.advance(at):
            reports += len(processor.store_reports())
        processor.add(_STREAM, [element], ANYBODY, at)
        reports += len(processor.store_reports())
    return reports


def _cost(span: str, seconds: int, turn: int) -> tuple[float, int]:
    """Return the microseconds of processor time for an element when the window is full, and the number of reports."""
    processor = _processor()
    text = f"SELECT ?sensor (AVG(?value) AS ?mean) {_WINDOW} [RANGE {span} STEP PT1M] WHERE {{ {_WHERE} }}"
    processor.register("mean", f"REGISTER RSTREAM <urn:edge:stream:mean> AS {text} GROUP BY ?sensor", ANYBODY, 0)
    _feed(processor, 0, seconds, turn)
    began = time.process_time()
    reports = _feed(processor, seconds, _MEASURED, turn)
    spent = time.process_time() - began
    processor.close()
    return spent / (_MEASURED * _RATE) * 1e6, reports


def _oxigraph(seconds: int, turn: int) -> float:
    """Return the same for a store with the elements of the window that is queried at each step."""
    store = ox.Store()
    query = "SELECT ?sensor (AVG(?value) AS ?mean) { ?sensor <urn:bench:value> ?value } GROUP BY ?sensor"
    store.extend(quad for _, element in _elements(0, seconds, turn) for quad in _quads(element))
    began = time.process_time()
    leaving = _elements(0, _MEASURED, turn)
    for number, (_, element) in enumerate(_elements(seconds, _MEASURED, turn), 1):
        for quad in _quads(element):
            store.add(quad)
        for quad in _quads(next(leaving)[1]):
            store.remove(quad)
        if not number % (60 * _RATE):
            answer = store.query(query)
            assert isinstance(answer, ox.QuerySolutions)
            list(answer)
    return (time.process_time() - began) / (_MEASURED * _RATE) * 1e6


def _quads(element: NewElement) -> Iterator[ox.Quad]:
    return (ox.Quad(each.subject, each.predicate, each.object) for each in element.triples)


def _memory(turn: int) -> float:
    """Return the bytes of an element in a window."""
    processor = _processor()
    where = "WINDOW <urn:w> { ?sensor <urn:bench:none> ?value }"
    text = f"SELECT ?sensor ?value {_WINDOW} [RANGE PT1H] WHERE {{ {where} }}"
    processor.register("none", f"REGISTER RSTREAM <urn:edge:stream:none> AS {text}", ANYBODY, 0)
    tracemalloc.start()
    _feed(processor, 0, _MEASURED, turn)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    processor.close()
    return size / (_MEASURED * _RATE)


def _many(queries: int, turn: int) -> tuple[float, float]:
    """Return the cost of an element with many queries, and the bytes of a query."""
    processor = _processor()
    tracemalloc.start()
    for number in range(queries):
        limit = number * 1_000 // queries
        text = f"SELECT ?sensor {_WINDOW} [RANGE PT1M] WHERE {{ {_WHERE} FILTER(?value > {limit}.5) }}"
        processor.register(f"q{number}", f"REGISTER ISTREAM <urn:edge:stream:q{number}> AS {text}", ANYBODY, 0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    began = time.process_time()
    _feed(processor, 0, 60, turn)
    spent = time.process_time() - began
    processor.close()
    return spent / (60 * _RATE) * 1e6, size / queries
