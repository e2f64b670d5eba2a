"""Tables of observations: written in the ingester's format, from lists, and generated."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from edge.outbox import observation
from edge.outbox.observation import DATE_TIME_STAMP, MONITOR, OWL_TIME, QUDT, SOSA, XSD, Cells, ObservationContext
from spark_offload.local_rows import local_frame
from spark_offload.table import NUMBERS, PARTITION, SCHEMA, make_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = "0123456789abcdef"
OTHER_EPOCH = "fedcba9876543210"
EX = "http://example.org/"
MIDNIGHT = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z in microseconds since 1970."""
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR


class Stored(NamedTuple):
    """An observation and its position."""

    context: ObservationContext
    cells: Cells
    seq: int
    epoch: str = EPOCH
    gateway: str = "box-1"

    def quads(self) -> Iterator[str]:
        return observation.quads(self.context, self.cells, self.epoch, self.seq)


def numbered(
    observations: Iterable[tuple[ObservationContext, Cells]], epoch: str = EPOCH, gateway: str = "box-1"
) -> list[Stored]:
    """Number the observations of one outbox, starting with its first."""
    return [Stored(context, cells, seq, epoch, gateway) for seq, (context, cells) in enumerate(observations, 1)]


def graph_of(stored: Iterable[Stored]) -> set[str]:
    """Return the quads of all observations, as lines of canonical N-Quads."""
    return {quad for one in stored for quad in one.quads()}


def frame(spark: SparkSession, stored: Sequence[Stored]) -> DataFrame:
    """Return the rows of the table as a data frame."""
    return local_frame(spark, [row(one) for one in stored], SCHEMA)


def write(spark: SparkSession, path: Path, stored: Sequence[Stored]) -> str:
    """Write a Delta table; return its path."""
    make_table(spark, str(path))
    frame(spark, stored).coalesce(1).write.format("delta").partitionBy(PARTITION).mode("append").save(str(path))
    return str(path)


def row(one: Stored) -> tuple[object, ...]:
    """Return a row of `spark_offload.table.SCHEMA`."""
    context, cells = one.context, one.cells
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=cells.time)
    reported: dict[str, object] = {
        "gateway": one.gateway,
        "epoch": one.epoch,
        "seq": one.seq,
        "ts": moment,
        "replayed": False,
        "date": moment.date(),
    }
    if cells.quads is not None:
        reported["quads"] = cells.quads
    else:
        reported |= {
            **context._asdict(),
            **{name: cell for name, cell in cells._asdict().items() if name not in {"time", "value", "quads"}},
            "value": number(cells.value, context.datatype),
            "value_text": cells.value,
            "time_datatype": None if context.time_datatype == DATE_TIME_STAMP else context.time_datatype,
        }
    return tuple(reported.get(name) for name in SCHEMA.names)


def number(text: str | None, datatype: str) -> float | None:
    """Return the value of a well-formed numeric literal."""
    lexical = NUMBERS.get(datatype)
    return float(text) if lexical and text is not None and re.fullmatch(lexical, text) else None


def readings(
    sensor: str, values: Iterable[object], *, start: int = MIDNIGHT, every: int = SECOND
) -> list[tuple[ObservationContext, Cells]]:
    """Return readings of one mapped sensor, with decimals now and then."""
    context = ObservationContext(
        series=f"{EX}observation/{sensor}",
        topic=f"home/{sensor}",
        feature=f"{EX}place/{sensor[0]}",
        property=f"{EX}temperature",
        sensor=f"{EX}sensor/{sensor}",
        unit="http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        datatype=XSD + "decimal",
    )
    return [(context, Cells(start + number * every, str(value))) for number, value in enumerate(values)]


# Hypothesis strategies: few names, so that they collide, and unusual texts.

TEXTS = st.sampled_from(
    ("", " ", "home/1", 'a"b', "a\\b", "tab\there", "line\nfeed", "\r", "\x00\x07\x1f\x7f", "é😀", "\ufffe", "'", "<x>")
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMERALS = st.sampled_from(("0", "1", "01", "+1", "-1", "1.0", "1.50", ".5", "20", "21.5", "22", "1e1", "1E0", "-0.0"))
DATATYPES = st.sampled_from(
    (*(XSD + name for name in ("decimal", "double", "integer", "string", "boolean", "float")), EX + "datatype")
)
TIMES = st.sampled_from(
    tuple(MIDNIGHT + step for step in (0, SECOND, 2 * SECOND, 120_000, 1, -1, HOUR, DAY, -DAY, DAY + 999_999))
)
TIME_TEXTS = st.none() | st.sampled_from(
    ("2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000Z", "yesterday", 'a"\n\\')
)


def _iris(kind: str, count: int = 2) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{EX}{kind}/{number}" for number in range(count)])


def _maybe(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    return st.one_of(strategy, strategy, strategy, st.none())


def contexts(series: st.SearchStrategy[str | None]) -> st.SearchStrategy[ObservationContext]:
    return st.builds(
        ObservationContext,
        series=series,
        topic=st.none() | TEXTS,
        feature=_maybe(_iris("place")),
        property=_maybe(_iris("property")),
        sensor=_maybe(_iris("sensor")),
        unit=_maybe(_iris("unit")),
        datatype=DATATYPES,
        time_datatype=st.sampled_from((DATE_TIME_STAMP, DATE_TIME_STAMP, XSD + "dateTime", XSD + "string")),
        graph=st.sampled_from((None, None, None, None, EX + "graph/0", EX + "graph/1")),
    )


VALUES = NUMERALS | NUMERALS | TEXTS
MAPPED = st.tuples(
    contexts(_iris("observation", 3)), st.tuples(TIMES, VALUES, TIME_TEXTS).map(lambda cells: Cells(*cells))
)
"""Observations that a mapping stored."""

EXPLICIT = st.tuples(
    contexts(st.none()),
    st.tuples(TIMES, VALUES, TIME_TEXTS, _iris("own"), _iris("own-result"), _iris("own-instant")).map(
        lambda cells: Cells(*cells)
    ),
)
"""Observations with IRIs that a client chose, and may have reused."""

ONCE = st.tuples(
    contexts(st.none()),
    st.tuples(TIMES, VALUES, TIME_TEXTS, st.uuids()).map(
        lambda cells: Cells(*cells[:3], *(f"{EX}{kind}/{cells[3]}" for kind in ("own", "own-result", "own-instant")))
    ),
)
"""Observations with unique IRIs that a client chose."""

_NODES = (
    st.sampled_from(("_:a", "_:b"))
    | _iris("own").map("<{}>".format)
    | st.builds("<{}observation/{}/{}-{}{}>".format, st.just(EX), st.integers(0, 2), st.just(EPOCH), st.integers(1, 5),
                st.sampled_from(("", "/result", "/instant")))
)  # fmt: skip
_LITERALS = (
    st.builds(observation.literal, VALUES, DATATYPES)
    | TEXTS.map(observation.literal).map("{}@en".format)
    | TIME_TEXTS.map(lambda text: observation.literal(text or "", DATE_TIME_STAMP))
)
_PREDICATES = st.sampled_from(
    (
        *(observation.RDF + "type", SOSA + "hasResult", SOSA + "madeBySensor", SOSA + "observedProperty"),
        *(QUDT + "numericValue", QUDT + "unit", OWL_TIME + "hasTime", OWL_TIME + "inXSDDateTimeStamp"),
        *(MONITOR + "hasMqttTopic", "http://www.w3.org/2000/01/rdf-schema#comment", EX + "quality"),
    )
)
_OBJECTS = (
    _NODES
    | _LITERALS
    | _iris("sensor").map("<{}>".format)
    | st.sampled_from((f"<{SOSA}Observation>", f"<{QUDT}QuantityValue>"))
)
_GRAPHS = st.sampled_from(("", "", f" <{EX}graph/0>", f" <{EX}graph/1>"))
QUADS = st.builds("{} <{}> {}{} .".format, _NODES, _PREDICATES, _OBJECTS, _GRAPHS)
ODD = st.tuples(
    st.just(ObservationContext()),
    st.builds(lambda time, lines: Cells(time, quads="\n".join(lines)), TIMES, st.lists(QUADS, min_size=1, max_size=4)),
)
"""Quads that are not an observation of either shape: of all kinds, also about the resources of the others."""


def histories(
    *kinds: st.SearchStrategy[tuple[ObservationContext, Cells]], size: int = 12
) -> st.SearchStrategy[list[Stored]]:
    """Return two outboxes of such observations."""
    outbox = st.lists(st.one_of(*kinds), max_size=size // 2)
    return st.builds(_two_outboxes, outbox, outbox)


def history(*kinds: tuple[st.SearchStrategy[tuple[ObservationContext, Cells]], int], number: int) -> list[Stored]:
    """Return this number of observations of each kind in two outboxes, determined by `number`."""
    drawn = [one for strategy, count in kinds for one in _drawn(strategy, count, number)]
    random.Random(number).shuffle(drawn)
    return _two_outboxes(drawn[::2], drawn[1::2])


def _two_outboxes(
    first: Iterable[tuple[ObservationContext, Cells]], second: Iterable[tuple[ObservationContext, Cells]]
) -> list[Stored]:
    return [*numbered(first), *numbered(second, OTHER_EPOCH, "box-2")]


def _drawn(
    strategy: st.SearchStrategy[tuple[ObservationContext, Cells]], count: int, number: int
) -> list[tuple[ObservationContext, Cells]]:
    drawn: list[list[tuple[ObservationContext, Cells]]] = []

    @seed(number)
    @settings(max_examples=5, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.lists(strategy, min_size=count, max_size=count))
    def draw(some: list[tuple[ObservationContext, Cells]]) -> None:
        drawn.append(some)

    draw()
    return drawn[-1]  # the first examples are the simplest
