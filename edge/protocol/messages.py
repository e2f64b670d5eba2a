"""Messages of the SPARQL 1.1 Subscribe Language in JSON (seed draft; SEPA paper, Listings 1-4)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring as quoted
from json.encoder import encode_basestring_ascii as ascii_quoted
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from edge.protocol.due_time import When, read_when
from edge.protocol.errors import InvalidRequest
from edge.protocol.json_faults import json_fault
from edge.protocol.timers import DEFAULT_LISTED, MAX_LISTED, TimerState


def _as_list(value: object) -> object:
    """Convert a single string to a list: graph members are arrays or one string."""
    return [value] if isinstance(value, str) else value


def _unicode(value: str) -> str:
    """Reject unpaired surrogates. JSON can escape them, but they are not characters and have no UTF-8 encoding."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a surrogate pair, which is not Unicode text") from None
    return value


Text = Annotated[str, AfterValidator(_unicode)]
"""A string with a UTF-8 encoding."""


def _duration(value: object) -> object:
    if not isinstance(value, str):
        # Not a TypeError: pydantic turns only ValueError and AssertionError into a ValidationError.
        raise ValueError('must be a duration as a string, such as "PT30S", "PT1.5S", "P1DT12H" or "P2W"')  # noqa: TRY004
    return value


Duration = Annotated[Text, BeforeValidator(_duration)]
"""An ISO 8601 duration."""

GraphUris = Annotated[list[Text] | None, BeforeValidator(_as_list)]


MAX_ALIAS: Final = 1024
"""Maximum length of an alias in characters. Each subscription stores its alias and each notification contains it."""
MAX_ENCODED_ALIAS: Final = 40 * 1024
"""Maximum length of an alias that contains the client's alias and the address for the response."""
_MAX_AUTHORIZATION: Final = 16 * 1024
"""Maximum length of a token in characters; each subscription stores its token."""
_MAX_NAME: Final = 1024
"""Maximum length of a spuid and of a client name in characters."""

_MAX_QUERY_NAME: Final = 2_100
"""Maximum length of the name of a registered query in characters: it can be an IRI."""

Name = Annotated[Text, Field(max_length=_MAX_NAME)]
"""An identifier."""
QueryName = Annotated[Text, Field(max_length=_MAX_QUERY_NAME)]
"""The name of a registered query."""


class _Message(BaseModel):
    """Common members of all messages. Unknown members are ignored: existing clients send some."""

    # Strict: pydantic would convert "1" to a number and "yes" to true, and hide mistakes of clients.
    model_config = ConfigDict(extra="ignore", strict=True)

    alias: Text | None = None
    authorization: Annotated[Text, Field(max_length=_MAX_AUTHORIZATION)] | None = None


class SubscribeMessage(_Message):
    """Subscribe request: `{"subscribe": {...}}`."""

    kind: ClassVar = "subscribe"

    sparql: Text
    default_graph_uri: GraphUris = Field(default=None, alias="default-graph-uri")
    named_graph_uri: GraphUris = Field(default=None, alias="named-graph-uri")
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Milliseconds after which the client does not need the response; the gate may stop then."""
    resume: bool = False
    """Whether the subscription survives the loss of its connection for a while."""
    spuid: Name | None = None
    """Suspended subscription to resume."""
    sequence: int | None = Field(default=None, ge=0)
    """The last sequence number that the client received of it."""

    @model_validator(mode="after")
    def _check_resumed(self) -> Self:
        if (self.spuid is None) != (self.sequence is None):
            raise ValueError('"spuid" and "sequence" are given together, to resume a subscription, or not at all')
        return self


class UnsubscribeMessage(_Message):
    """Unsubscribe request: `{"unsubscribe": {"spuid": ".."}}`. With an alias, errors contain it."""

    kind: ClassVar = "unsubscribe"

    spuid: Name


class UpdateMessage(_Message):
    """Update request over the socket: `{"update": {...}}`."""

    kind: ClassVar = "update"

    sparql: Text
    using_graph_uri: GraphUris = Field(default=None, alias="using-graph-uri")
    using_named_graph_uri: GraphUris = Field(default=None, alias="using-named-graph-uri")
    delay: Duration | None = None
    """Delay before it runs."""
    at: int | Text | None = None
    """Time at which it runs: xsd:dateTime, or microseconds since 1970."""
    id: Text | None = None
    """Id to query, cancel and replace it while it is pending."""

    @model_validator(mode="after")
    def _check_when(self) -> Self:
        # Computed for its errors: they must be those of this message, with its alias.
        _ = self.when
        return self

    @property
    def when(self) -> When | None:
        """Time at which it runs; None: now."""
        return read_when(self.delay, self.at, self.id)


class QueryMessage(_Message):
    """Query request over the socket: `{"query": {...}}`."""

    kind: ClassVar = "query"

    sparql: Text
    default_graph_uri: GraphUris = Field(default=None, alias="default-graph-uri")
    named_graph_uri: GraphUris = Field(default=None, alias="named-graph-uri")


class TimersMessage(_Message):
    """Request for the list of delayed updates: `{"timers": {}}`."""

    kind: ClassVar = "timers"

    state: TimerState | None = None
    limit: int = Field(default=DEFAULT_LISTED, ge=1, le=MAX_LISTED)


class TimerMessage(_Message):
    """Request for the state of a delayed update: `{"timer": {"id": ".."}}`."""

    kind: ClassVar = "timer"

    id: Name
    client: Name | None = None
    """Owner of the delayed update, if it is another client; requires permission to administer."""


class CancelMessage(_Message):
    """Request to cancel a delayed update: `{"cancel": {"id": ".."}}`."""

    kind: ClassVar = "cancel"

    id: Name
    client: Name | None = None


class FollowMessage(_Message):
    """Request for the reports of a registered query, over MQTT: `{"follow": {"query": ".."}}`."""

    kind: ClassVar = "follow"

    query: QueryName
    after: int | None = Field(default=None, ge=0)
    """Number of the last report that the client has received; None: the next report is the first."""
    of: str | None = None
    """Identifier of the query of this report, from the answer `following`."""


class UnfollowMessage(_Message):
    """Request to end this: `{"unfollow": {"query": ".."}}`."""

    kind: ClassVar = "unfollow"

    query: QueryName


Message = (
    SubscribeMessage | UnsubscribeMessage | UpdateMessage | QueryMessage | TimersMessage | TimerMessage | CancelMessage
)

Follow = FollowMessage | UnfollowMessage
"""Messages for reports, which only some gates understand."""

_Kind = TypeVar("_Kind", bound=_Message)
_MESSAGES: Final[dict[str, type[Message]]] = {message.kind: message for message in get_args(Message)}
_WITH_FOLLOW: Final[dict[str, type[Message | Follow]]] = {
    **_MESSAGES,
    **{message.kind: message for message in get_args(Follow)},
}

# Only strings without escape sequences: those would need decoding before they equal the client's alias.
_ALIAS = re.compile(r'"alias"\s*:\s*"([^"\\\x00-\x1f]*)"')


class _GivenTwice(ValueError):
    """An object has two members with this name. JSON parsers disagree on which one counts (RFC 8259, section 4)."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _GivenTwice(next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1))
    return members


_decoded = json.JSONDecoder(object_pairs_hook=_members).decode


def parse_message(text: str | bytes, max_alias: int = MAX_ALIAS) -> Message:
    """Parse a JSON message from a client. Raises `InvalidRequest`, with the alias if it could be read.

    `max_alias`: maximum length of the alias; a gate that adds data to the alias allows more.
    """
    return _parsed(text, _MESSAGES, max_alias)


def parse_with_follow(text: str, max_alias: int = MAX_ALIAS) -> Message | Follow:
    """Parse a message as `parse_message` does, for a gate that understands `Follow`."""
    return _parsed(text, _WITH_FOLLOW, max_alias)


def may_follow(text: str) -> bool:
    """Return whether a text can be a message of `Follow`. Most texts cannot, and are parsed once only."""
    return '"follow"' in text or '"unfollow"' in text


def _parsed(text: str | bytes, messages: Mapping[str, type[_Kind]], max_alias: int) -> _Kind:
    try:
        # As in `json.loads`, bytes may be UTF-8, UTF-16 or UTF-32, and may begin with a byte order mark.
        message: Any = _decoded(text if isinstance(text, str) else text.decode(json.detect_encoding(text)))
    except _GivenTwice as error:
        raise InvalidRequest(f'Member "{error}" is given twice; give it once', alias=_salvaged_alias(text)) from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The message", error), alias=_salvaged_alias(text)) from None
    if not isinstance(message, dict):
        raise InvalidRequest('The message must be a JSON object such as {"subscribe":{"sparql":"SELECT ..."}}')
    kinds = [kind for kind in messages if kind in message]
    if len(kinds) != 1:
        raise InvalidRequest(
            f"The message must have exactly one of the members {', '.join(map(json.dumps, messages))}",
            alias=_only_alias(message),
        )
    kind, body = kinds[0], message[kinds[0]]
    if not isinstance(body, dict):
        raise InvalidRequest(f'"{kind}" must be a JSON object', alias=_alias_of(message))
    # Some clients put the token next to the request instead of into it.
    if "authorization" not in body and isinstance(message.get("authorization"), str):
        body = {**body, "authorization": message["authorization"]}
    alias = body.get("alias")
    if isinstance(alias, str) and len(alias) > max_alias:
        # No alias in the error: the response must not be larger than the request.
        raise InvalidRequest(f'"{kind}": member "alias" has {len(alias)} characters; give it {MAX_ALIAS} at most')
    try:
        return messages[kind].model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        member = ".".join(str(part) for part in first["loc"])
        where = f'"{kind}": member "{member}"' if member else f'"{kind}"'
        reason = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"{where}: {reason}", alias=_alias_of(body)) from None


def notification_message(
    spuid: str, alias: str | None, sequence: int, added: str, removed: str, merged: int = 1
) -> str:
    """Format a notification as JSON. `added` and `removed` are SPARQL results in JSON, shared by all subscribers.

    `merged`: number of notifications that it combines.
    """
    named = "" if alias is None else f'"alias":{ascii_quoted(alias)},'
    several = "" if merged == 1 else f'"merged":{merged},'
    return (
        f'{{"notification":{{"spuid":{quoted(spuid)},{named}"sequence":{sequence},{several}'
        f'"addedResults":{added},"removedResults":{removed}}}}}'
    )


def updated_message(alias: str | None, added: int, removed: int, stored: int = 0) -> str:
    """Format the response to an update: the numbers of added, removed and (for the history) stored items."""
    named = {} if alias is None else {"alias": alias}
    more = {"stored": stored} if stored else {}
    return json.dumps({"updated": {**named, "added": added, "removed": removed, **more}})


def scheduled_message(alias: str | None, scheduled: Mapping[str, object]) -> str:
    """Format the response to a delayed update: its id, and when it will run."""
    named = {} if alias is None else {"alias": alias}
    return json.dumps({"scheduled": {**named, **scheduled}})


def result_message(alias: str | None, result: str) -> str:
    """Format the response to a query. `result` is an object of the SPARQL results format in JSON."""
    named = "" if alias is None else f'"alias":{json.dumps(alias)},'
    # The text of the result is inserted without its opening bracket, and not parsed again: it may have megabytes.
    return f'{{"result":{{{named}{result[1:]}}}'


def timers_message(alias: str | None, timers: Sequence[Mapping[str, object]]) -> str:
    """Format a list of delayed updates."""
    named = {} if alias is None else {"alias": alias}
    return json.dumps({"timers": timers, **named})


def timer_message(alias: str | None, timer: Mapping[str, object]) -> str:
    """Format one delayed update."""
    named = {} if alias is None else {"alias": alias}
    return json.dumps({"timer": {**named, **timer}})


def cancelled_message(alias: str | None, name: str) -> str:
    """Format the response to a cancel request."""
    named = {} if alias is None else {"alias": alias}
    return json.dumps({"cancelled": {**named, "id": name}})


def unsubscribed_message(spuid: str, alias: str | None) -> str:
    """Format the response to an unsubscribe request."""
    body = {"spuid": spuid} if alias is None else {"spuid": spuid, "alias": alias}
    return json.dumps({"unsubscribed": body})


def _alias_of(body: dict[str, Any]) -> str | None:
    alias = body.get("alias")
    # The message is not valid, so the type and the length of this member are unknown.
    return alias if isinstance(alias, str) and len(alias) <= MAX_ENCODED_ALIAS else None


def _only_alias(message: dict[str, Any]) -> str | None:
    """Return the alias of a message of unknown kind, if it contains exactly one."""
    found = {_alias_of(body) for body in (message, *message.values()) if isinstance(body, dict)} - {None}
    # With two aliases, the error could reach the wrong request of the client.
    return found.pop() if len(found) == 1 else None


def _salvaged_alias(text: str | bytes) -> str | None:
    """Return the alias of a message that is not valid JSON, if exactly one can be found."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    found = _ALIAS.findall(text)
    return found[0] if len(found) == 1 and len(found[0]) <= MAX_ENCODED_ALIAS else None
