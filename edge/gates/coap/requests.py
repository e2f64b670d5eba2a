"""Conversion of CoAP requests to protocol messages."""

from __future__ import annotations

from typing import Any, Final, Literal

from aiocoap import Code, Message
from aiocoap.numbers.optionnumbers import OptionNumber

from edge.gates.coap.formats import CBOR, JSON, TEXT, BadOption, format_of, read_object, read_text, unsupported
from edge.gates.coap.transport import Peer
from edge.protocol.errors import InvalidRequest

Primitive = Literal["query", "update", "subscribe"]

TOKEN: Final = OptionNumber(65000)
"""Option with the client's token: elective, experimental (RFC 7252, section 12.2). Parameters are limited to 255
bytes.
"""

_GRAPHS: Final = ("default-graph-uri", "named-graph-uri")
_USING: Final = ("using-graph-uri", "using-named-graph-uri")
_TEXTS: Final[dict[Primitive, tuple[str, ...]]] = {
    "query": ("alias",),
    "update": ("alias", "delay", "at", "id"),
    "subscribe": ("alias",),
}
_LISTS: Final[dict[Primitive, tuple[str, ...]]] = {"query": _GRAPHS, "update": _USING, "subscribe": _GRAPHS}
_NOT_HERE: Final[dict[Primitive, frozenset[str]]] = {
    "query": frozenset(),
    "update": frozenset(),
    "subscribe": frozenset({"resume", "spuid", "sequence"}),
}
"""Members that exist only over WebSocket."""

_UNDERSTOOD: Final = frozenset(
    {
        OptionNumber.URI_HOST,
        OptionNumber.URI_PORT,
        OptionNumber.URI_PATH,
        OptionNumber.URI_QUERY,
        OptionNumber.ACCEPT,
        OptionNumber.BLOCK1,
        OptionNumber.BLOCK2,
    }
)
"""Supported critical options."""


def check_options(request: Message, *others: OptionNumber) -> None:
    """Raise `BadOption` if a request has an unsupported critical option; `others` are supported too."""
    for option in request.opt.option_list():
        if option.number.is_critical() and option.number not in _UNDERSTOOD and option.number not in others:
            raise BadOption(f"The option {int(option.number)} is not understood here; leave it out")


def token(request: Message) -> str | None:
    """Return the client's credential: its token, or that of its OSCORE context."""
    if isinstance(request.remote, Peer):
        return request.remote.authorization
    options = request.opt.get_option(TOKEN)
    if not options:
        return None
    return bytes(options[0].value).decode(errors="replace")


def peer(request: Message) -> str:
    """Return the identity of the client for rate limits."""
    return f"coap:{request.remote.blockwise_key}"


def read_message(primitive: Primitive, request: Message) -> dict[str, Any]:
    """Return the message of a request: `{"query": {...}}`.

    Its members are parameters, or in the body: the text of the query or update, or an object. Raises
    `InvalidRequest`, `UnsupportedMediaType`, `TooLarge`.
    """
    text_parameter = "sparql" if primitive == "subscribe" else primitive
    members: dict[str, Any] = {}
    if request.code != Code.GET and request.payload:
        members = _body(request)
    for parameter in request.opt.uri_query:
        name, _, value = parameter.partition("=")
        if name == text_parameter:
            name = "sparql"
        elif name in _LISTS[primitive]:
            members.setdefault(name, [])
            if not isinstance(members[name], list):
                raise _duplicate(name)
            members[name].append(value)
            continue
        elif name not in _TEXTS[primitive]:
            known = ", ".join((text_parameter, *_TEXTS[primitive], *_LISTS[primitive]))
            raise InvalidRequest(f'Parameter "{name}" does not exist here; the parameters are {known}')
        if name in members:
            raise _duplicate(name)
        members[name] = value
    if "sparql" not in members:
        raise _no_text(primitive, members, text_parameter)
    for name in _NOT_HERE[primitive] & members.keys():
        raise InvalidRequest(
            f'"{name}" does not apply over CoAP: a subscription waits for its observer at its path, for '
            "coap.follow_within, and tells the whole result again; leave it out"
        )
    if (credential := token(request)) is not None:
        members["authorization"] = credential
    return {primitive: members}


def _body(request: Message) -> dict[str, Any]:
    sent = format_of(request)
    if sent == TEXT:
        text = read_text(request.payload)
        if text.lstrip().startswith("{"):
            raise InvalidRequest(f"This is not SPARQL; JSON needs the content format {JSON} (coap-client -t {JSON})")
        return {"sparql": text}
    if sent in (JSON, CBOR):
        return read_object(request)
    raise unsupported(request, TEXT, JSON, CBOR)


def _no_text(primitive: Primitive, members: dict[str, Any], parameter: str) -> InvalidRequest:
    if primitive in members:
        return InvalidRequest(
            'The member "sparql" is missing. The path already names the request: '
            f'send only the object inside "{primitive}"'
        )
    if members:
        return InvalidRequest(f'The text is missing: add the member "sparql", or the parameter "{parameter}"')
    return InvalidRequest(f'The text is missing: send it as the body, or as the parameter "{parameter}"')


def _duplicate(name: str) -> InvalidRequest:
    return InvalidRequest(f'"{name}" is given twice; give it once')
