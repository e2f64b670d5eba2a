"""Settings of RDF streams."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import field_validator

from edge.protocol.due_time import read_time
from edge.section import MIB, Section, key
from edge.streams.callback_hosts import CallbackHosts

FILE_NAME: Final = "streams.sqlite3"
"""File in the data directory that holds the streams."""


class StreamSettings(Section):
    """RDF streams: windows over timestamped graphs, and continuous queries on them."""

    enabled: bool = key(True, "Whether clients can register streams and queries on windows.", basic=True)
    max_streams: int = key(
        1_000,
        "Registered streams. Further ones get status 429. A client may have as many as it leaves for others.",
        minimum=1,
    )
    max_queries: int = key(10_000, "Registered queries, with a share for each client as above.", minimum=1)
    max_observers: int = key(1_000, "Observers of all queries, with a share for each client as above.", minimum=1)
    max_element: int = key(
        1 * MIB, "Size of the largest element, as N-Triples. Larger ones get status 413.", unit="bytes", minimum=1024
    )
    max_bytes: int = key(
        32 * MIB,
        "Elements in the windows of all queries, as N-Triples. Beyond it, further elements get status 429. They take "
        "about ten times as much memory.",
        unit="bytes",
        minimum=1 * MIB,
    )
    max_lateness: float = key(
        0.0,
        "How late an element may arrive after its own time. It then corrects the windows that were reported before. A "
        "stream can have another value.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    max_late: int = key(
        64 * 1024,
        "Elements of each stream that came later than its lateness, kept for GET /streams/ID?elements=late. Beyond it, "
        "the gateway drops the oldest. Of elements of more than a quarter of it, number and time are kept. 0: none.",
        unit="bytes",
        minimum=0,
        maximum=1 * MIB,
    )
    max_ahead: float = key(
        60.0,
        "How far the time of an element may lie in the future. Later ones get status 400.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    window_origin: str = key(
        "1970-01-01T00:00:00Z",
        "A time at which time windows without START end: an xsd:dateTime with a time zone. The other ends have a "
        "distance of multiples of the step. After a change, these windows of registered queries begin again: those on "
        "observations with the kept and recent values, others without content.",
    )
    max_reports: int = key(
        4 * MIB,
        "Reports that wait for the observers of a query, and for each client that follows it. Beyond it, the gateway "
        "merges them.",
        unit="bytes",
        minimum=64 * 1024,
    )
    max_recent_reports: int = key(
        8 * MIB,
        "Last reports of all queries with followers, in streams.sqlite3. A client whose connection was lost gets them "
        "when it follows the query again, also after a restart. Beyond it, the gateway drops the oldest. One query has "
        "at most a quarter, and no report of more than 64 KiB is kept. Each kept report is written to "
        "the disk. 0: none.",
        unit="bytes",
        minimum=0,
    )
    callback_hosts: tuple[str, ...] = key(
        (),
        "Hosts to which reports may be sent, in addition to public ones, which with security are the only others: "
        'names, "host:port", or networks such as "192.168.0.0/16"; "*" stands for all. Without security, all '
        "addresses are allowed. The same hosts are allowed for LOAD (engine.allow_load).",
    )

    @field_validator("window_origin", mode="before")
    @classmethod
    def _is_time(cls, value: object) -> object:
        # A TOML file can have a date-time without quotation marks.
        text = value.isoformat() if isinstance(value, datetime) else value
        if isinstance(text, str):
            if text.lstrip("-").isdigit():
                raise ValueError("the value must be a time with time zone such as 1970-01-01T00:00:00Z")
            try:
                read_time(text)
            except ValueError as error:
                raise ValueError(str(error).replace('"at"', "the value")) from None
        return text

    @property
    def origin(self) -> int:
        """The window origin in microseconds since 1970."""
        return read_time(self.window_origin)

    @field_validator("callback_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        CallbackHosts(hosts, security=True)
        return hosts
