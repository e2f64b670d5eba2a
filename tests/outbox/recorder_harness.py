"""An engine with an outbox in a directory, and the outbox's content as the shipper sees it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyoxigraph as ox

from edge.engine.journal.journal import Journal
from edge.engine.journal.sqlite_schema import FILE_NAME
from edge.engine.requests import QueryRequest, Solutions, UpdateOutcome, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.outbox.observation import Cells, ObservationContext, quads
from edge.outbox.outbox import Outbox
from edge.outbox.recorder import Recorder
from edge.outbox.segment import cells
from edge.outbox.settings import OutboxSettings
from edge.protocol.access import ANYBODY, Access
from tests.support.settings import unchecked
from tests.support.waiting import PATIENCE

WAIT = PATIENCE
"""Seconds after which a test gives up."""


class Stored(NamedTuple):
    seq: int
    context: ObservationContext
    cells: Cells


class Harness:
    """A running engine with an outbox."""

    def __init__(self, directory: Path, outbox: OutboxSettings | None = None, **engine: object) -> None:
        made: list[Recorder] = []

        def ledger(journal: Journal) -> Recorder:
            self.journal = journal
            made.append(Recorder(journal, outbox or OutboxSettings()))
            return made[0]

        settings = unchecked(EngineSettings, **engine)  # type: ignore[arg-type]
        self.engine = open_engine(directory, settings, ledger=ledger)
        self.storing = made[0]
        self.outbox = Outbox(made[0], directory / FILE_NAME, self.engine.on_writer)

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.outbox.close()
        assert self.engine.close(WAIT)

    def update(self, *requests: UpdateRequest | str, access: Access = ANYBODY) -> list[UpdateOutcome]:
        made = [UpdateRequest(each, access=access) if isinstance(each, str) else each for each in requests]
        return self.engine.update(made).result(WAIT)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        result = self.engine.query(QueryRequest(query)).result(WAIT)
        assert isinstance(result, Solutions)
        return list(result.rows)

    def stored(self) -> list[Stored]:
        """Return all waiting observations."""
        rows = list(self.outbox.rows(1, 1_000_000))
        contexts = self.outbox.contexts({context for _, context, _ in rows})
        return [Stored(seq, contexts[context], cells(text)) for seq, context, text in rows]

    def values(self) -> list[str | None]:
        """Return the values of all waiting observations, or their quads."""
        return [each.cells.value or each.cells.quads for each in self.stored()]

    def history(self) -> set[ox.Quad]:
        """Return the quads of all waiting observations."""
        lines = [line for seq, *found in self.stored() for line in quads(*found, self.outbox.epoch, seq)]
        return set(ox.parse("\n".join(lines), ox.RdfFormat.N_QUADS))

    def disk_full(self, *, full: bool) -> None:
        """Set whether the file cannot grow."""
        pages = 1 if full else 1_000_000_000
        self.engine.on_writer(lambda: self.journal._connection.execute(f"PRAGMA max_page_count = {pages}")).result(WAIT)


def note(value: object, time: int = 5, series: str = "urn:o:1") -> tuple[ObservationContext, Cells]:
    """Return the stored form of a reading."""
    return ObservationContext(series=series), Cells(time, str(value))


def storing(*values: object, sparql: str = "INSERT DATA {}", **others: object) -> UpdateRequest:
    """Return an update that stores readings."""
    notes: Sequence[object] = [note(value) for value in values]
    return UpdateRequest(sparql, notes=notes, **others)  # type: ignore[arg-type]
