"""Sampling: selects the readings to store, by the rules of their mapping and the last stored value.

The last stored values are held in memory only. After a restart, the first reading of each observation is stored in
any case.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from edge.mapping.reading import Reading
from edge.mapping.store import ComparedReading
from edge.outbox.observation import Cells, ObservationContext

_MOST: Final = 100_000
"""Number of observations whose last value is remembered. For others, the next reading is stored in any case."""


class Note(NamedTuple):
    """An observation to store, and the stored one before it."""

    context: ObservationContext
    cells: Cells
    before: ComparedReading | None
    historical: bool = False


class Sampler:
    """Selects readings to store. Not thread-safe: the owner holds a lock."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._last: dict[str, ComparedReading] = {}

    def note(self, reading: Reading, time: datetime) -> Note | None:
        """Return the note to store for a reading of this time (aware); None: it is not stored.

        From now on the reading counts as stored, until `give_up`. A past reading that came late is always stored, and
        the ones after it are not compared with it.
        """
        store = reading.store
        if store is None:
            return None
        micros = (time - _BEGINNING) // _MICROSECOND
        said = ComparedReading(reading.value, reading.datatype, reading.unit, micros)
        before = self._last.get(reading.observation)
        if not reading.historical and not store.wants(said, before):
            return None
        if not reading.historical and (store.change or store.at_most_every is not None):
            self._remember(reading.observation, said)
        context = ObservationContext(
            series=reading.observation,
            topic=reading.topic,
            feature=reading.location,
            property=reading.property,
            sensor=reading.sensor,
            unit=reading.unit,
            datatype=reading.datatype,
        )
        return Note(context, Cells(micros, reading.value), before, reading.historical)

    def give_up(self, note: object) -> None:
        """Take back a note that was not stored."""
        assert isinstance(note, Note)  # noqa: S101
        if note.historical:
            return
        series = note.context.series or ""
        said = self._last.pop(series, None)
        if said is not None and note.before is not None and said.time == note.cells.time:
            self._last[series] = note.before

    def _remember(self, observation: str, said: ComparedReading) -> None:
        self._last.pop(observation, None)
        if len(self._last) >= self._most:
            del self._last[next(iter(self._last))]  # the one that was stored the longest time ago
        self._last[observation] = said


_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
