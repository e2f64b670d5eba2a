"""Sender of W3C Linked Data Notifications (Recommendation, 2 May 2017): discovery of an inbox, and delivery to it.

The inbox of a target is in its header `Link`, or in its RDF (section 3.1). It is discovered with the first report, and
again after an attempt that suggests that it has moved. Nothing of it is stored: a new process discovers it again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urldefrag

import pyoxigraph as ox

from edge.protocol.errors import EdgeError, InvalidRequest
from edge.protocol.parsed_quads import bounded, document_fault
from edge.streams.callback_hosts import CallbackHosts, CallbackTarget, target_of
from edge.streams.callback_request import CallbackClient, CallbackUnanswered, Document
from edge.streams.kept_notifications import KeptNotifications
from edge.streams.link_header import linked
from edge.streams.notification import JSON_LD, notification
from edge.streams.observer import OK, TRY_AGAIN, CallbackAnswer, StoredReport

T = TypeVar("T")

_INBOX: Final = "http://www.w3.org/ns/ldp#inbox"
_ACCEPT: Final = (
    f"{JSON_LD}, text/turtle, application/n-triples;q=0.9, application/rdf+xml;q=0.8, application/trig;q=0.7, "
    "application/n-quads;q=0.7, */*;q=0.1"
)
_LONGEST_STRINGS: Final = 10_000_000
"""Characters of the strings of a target in JSON-LD without abbreviations, which are in memory together."""
_URL: Final = "URL of the target"


class NoInbox(CallbackUnanswered):
    """The target has answered, and it has no inbox that can be used."""


class RunInThread(Protocol):
    """Calls a function in a thread."""

    def __call__(self, function: Callable[..., T], *arguments: object) -> Coroutine[Any, Any, T]:
        """Return the result of the function."""


class TargetInbox:
    """The inbox of a target, for one observer. Used in the thread of the event loop."""

    __slots__ = ("_client", "_encode", "_kept", "_read", "_target", "url")

    def __init__(
        self, target: str, client: CallbackClient, read: RunInThread, encode: RunInThread, kept: KeptNotifications
    ) -> None:
        """`target`: absolute URL. `read` is for documents, and `encode` for reports: both may be long. `kept`:
        notifications of all targets.
        """
        self._target = target
        self._client = client
        self._read = read
        self._encode = encode
        self._kept = kept
        self.url = ""
        """URL of the inbox; empty before it is discovered."""

    @property
    def destination(self) -> CallbackTarget:
        """Where the next request goes: to the inbox, or to the target if the inbox is not known."""
        return target_of(self.url or self._target)

    async def send(self, observer: str, query: str, headers: dict[str, str], report: StoredReport) -> CallbackAnswer:
        """Send a report as a notification to the inbox, which is known. Raises `CallbackUnanswered`."""
        body = self._kept.find(observer, report)
        if body is None:
            body = await self._encode(notification, headers["Idempotency-Key"], query, self._target, report)
        self._kept.keep(observer, report, body)
        try:
            answer = await self._client.post(self.destination, {**headers, "Content-Type": JSON_LD}, body)
        except CallbackUnanswered:
            self.url = ""
            raise
        # The inbox may have moved. It is discovered again before the next attempt.
        if answer.status in range(300, 500) and answer.status not in TRY_AGAIN:
            self.url = ""
        # Another inbox may take the place of one that is gone. If none does, it has refused the report.
        status = 404 if answer.status == 410 else answer.status
        return answer._replace(status=status, by="inbox")

    async def discover(self, user_agent: str) -> CallbackAnswer | None:
        """Discover the inbox. Returns the answer of the target if it is not a success. Raises `CallbackUnanswered`."""
        asked = {"Accept": _ACCEPT, "Accept-Encoding": "identity", "User-Agent": user_agent}
        found = ""

        def wants_body(document: Document) -> bool:
            nonlocal found
            found = linked_inbox(document.links, self._target)
            return not found and document.answer.status in OK

        # The header comes before the body, which may be large and is read only if the header names no inbox.
        document = await self._client.get(target_of(self._target), asked, wants_body)
        if document.answer.status not in OK:
            return document.answer._replace(by="target")
        if not found:
            found = await self._read(inbox_in, document, self._target)
        try:
            target_of(found, "URL of the inbox")
        except InvalidRequest as error:
            raise NoInbox(error.description) from None
        self.url = found
        return None


def check_target(url: str, hosts: CallbackHosts) -> None:
    """Check the URL of a target. Raises `InvalidRequest`, or `Forbidden` if its host is not allowed."""
    hosts.check(url, _URL)
    try:
        ox.NamedNode(url)
    except ValueError as error:
        raise InvalidRequest(f"the {_URL} is not an IRI: {error}. Percent-encode its characters") from None


def linked_inbox(links: tuple[str, ...], target: str) -> str:
    """Return the inbox in the headers `Link` of the answer of a target; empty if they have none."""
    document = urldefrag(target).url
    return linked(links, document, _INBOX, target)


def inbox_in(document: Document, target: str) -> str:
    """Return the inbox in the RDF of a target. Raises `NoInbox`."""
    form = ox.RdfFormat.from_media_type(document.content_type) if document.content_type else None
    if form is None or document.is_coded:
        what = "has a content coding" if document.is_coded else f"is not RDF ({document.content_type[:100]})"
        raise NoInbox(f"the target has no inbox: its answer has no Link to one, and {what}")
    subject, predicate = ox.NamedNode(target), ox.NamedNode(_INBOX)
    try:
        if fault := document_fault(document.body, form, urldefrag(target).url, _LONGEST_STRINGS):
            raise NoInbox(f"the target cannot be read: {fault}")
        for quad in bounded(ox.parse(document.body, format=form, base_iri=urldefrag(target).url)):
            if quad.predicate == predicate and quad.subject == subject and isinstance(quad.object, ox.NamedNode):
                return quad.object.value
    except (ValueError, SyntaxError) as error:
        # Without the text of the error, which quotes the document: the client may not read that itself.
        remote = "remote contexts" in str(error)
        reason = "has a remote context, which is not fetched" if remote else f"is not valid {form.name}"
        raise NoInbox(f"the target {reason}: send the header Link") from None
    except EdgeError as error:  # its terms are too long
        raise NoInbox(f"the target cannot be read: {error.description}") from None
    raise NoInbox(f"the target has no inbox: add a triple <{target}> <{_INBOX}> with its URL, or the header Link")
