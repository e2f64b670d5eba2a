"""Interface of the HTTP gate to the rest of the gateway: its state, its components and its documents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edge.gates.http.clients import ClientManagement
from edge.gates.http.documents import Documents
from edge.gates.http.event_stream import EventStream
from edge.gates.http.maintenance import Maintenance
from edge.gates.http.mappings import MappingDocuments
from edge.gates.http.profiles import ReadProfile
from edge.gates.http.rules import RuleDocuments
from edge.gates.http.streams import Streams
from edge.gates.http.system_updates import SystemUpdates
from edge.protocol.access import Access
from edge.protocol.series import SeriesExtent, SeriesRequest, SeriesResult


async def _nothing_shipped() -> object:
    return {}


class RecentValues(EventStream, Protocol):
    """The recent values of observations. Its methods may take long, and any thread may call them."""

    def series(self, request: SeriesRequest, access: Access, timeout: float) -> Sequence[SeriesResult]:
        """Return the requested series that the client may read, within `timeout` seconds. Raises `EdgeError`."""

    def available(self, access: Access, timeout: float) -> Sequence[SeriesExtent]:
        """Return all series that the client may read, within `timeout` seconds. Raises `EdgeError`."""


@dataclass(frozen=True, slots=True)
class Views:
    """Data of the rest of the gateway that the HTTP gate serves. The functions are called for each request; they must
    be fast.
    """

    ready: Callable[[], bool] = lambda: True
    """Whether the engine accepts requests."""
    fault: Callable[[], str] = str
    """Problems of a gateway that accepts requests; empty without problems."""
    health: Callable[[], Mapping[str, object]] = dict
    """Members of the response of `/health` in addition to `status`, for administrators."""
    open_health: Callable[[], Mapping[str, object]] = dict
    """The same members for other clients."""
    enrolment: Callable[[str, str], Mapping[str, str]] | None = None
    """State of the operator's enrolment code, for unauthenticated clients, by the addresses of both ends."""
    endpoints: Callable[[], Mapping[str, str]] = dict
    """URLs by name, as in endpoints.json: `http`, `ws`, `mqtt`."""
    unmapped: Callable[[], object] = list
    """Topics without a matching mapping, as JSON."""
    unmapped_topic: Callable[[str], object | None] = lambda _: None
    """One of them with its last payload; None if it has a mapping, or had no message."""
    maintenance: Maintenance | None = None
    """Log, settings and administration commands; None if the gate runs alone."""
    system_updates: SystemUpdates | None = None
    """Updates of an image's system; None if the gate runs alone."""
    profiles: ReadProfile | None = None
    """Reader of the profiles of applications; None if the gate runs alone."""
    queries: Callable[[], Documents | None] = lambda: None
    """The continuous queries; None while the gateway starts."""
    clients: Callable[[], ClientManagement | None] = lambda: None
    """The clients; None without security."""
    mappings: Callable[[], MappingDocuments | None] = lambda: None
    """The mapping files; None while the gateway starts."""
    settable: Callable[[Sequence[str]], Mapping[str, Mapping[str, object]]] = lambda _: {}
    """How the values of observations can be set at their devices, by IRI."""
    rules: Callable[[], RuleDocuments | None] = lambda: None
    """The rules; None while the gateway starts."""
    bad_values: Callable[[], object] = list
    """Values that could not be parsed, with the reason, as JSON."""
    outbox: Callable[[], object] = dict
    """State of the outbox, as JSON."""
    recent: RecentValues | None = None
    """The recent values; None if the gateway keeps none."""
    streams: Callable[[], Streams | None] = lambda: None
    """The RDF streams; None without them."""
    features: Sequence[str] = ()
    """Features of the endpoint, by their names in the vocabulary of service descriptions."""
    ship: Callable[[], Awaitable[object]] = _nothing_shipped
    """Ship the outbox now. Returns the result as JSON. May take long. Raises `EdgeError`."""
