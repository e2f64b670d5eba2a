"""From CoAP requests to the messages of the protocol."""

from __future__ import annotations

from typing import Any, Final, Literal

from aiocoap import Code, Message
from aiocoap.numbers.optionnumbers import OptionNumber

from edge.gates.coap.formats import CBOR, JSON, TEXT, BadOption, format_of, read_object, read_text, unsupported
from edge.gates.coap.transport import Peer
from edge.protocol.errors import InvalidRequest

Primitive = Literal["query", "update", "subscribe"]

TOKEN: Final = OptionNumber(65000)
"""The option with the client's token: elective, for experiments (RFC 7252, 12.2). A parameter has 255 bytes at most."""

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
"""What there is over the WebSocket."""

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
"""Critical options."""


def check_options(request: Message, *others: OptionNumber) -> None:
    """Raises `BadOption` where a request has an option that must be understood and is not; `others` are, too."""
    for option in request.opt.option_list():
        if option.number.is_critical() and option.number not in _UNDERSTOOD and option.number not in others:
            raise BadOption(f"The option {int(option.number)} is not understood here; leave it out")


def token(request: Message) -> str | None:
    """Who the client is: by its token, or by the keys that protected the request."""
    if isinstance(request.remote, Peer):
        return request.remote.authorization
    options = request.opt.get_option(TOKEN)
    if not options:
        return None
    return bytes(options[0].value).decode(errors="replace")


def peer(request: Message) -> str:
    """From where it comes, as limits count."""
    return f"coap:{request.remote.blockwise_key}"


def read_message(primitive: Primitive, request: Message) -> dict[str, Any]:
    """The message of a request: `{"query": {...}}`.

    Its members come as parameters, and in the body: the text of the query or update, or an object. Raises
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
                raise _twice(name)
            members[name].append(value)
            continue
        elif name not in _TEXTS[primitive]:
            known = ", ".join((text_parameter, *_TEXTS[primitive], *_LISTS[primitive]))
            raise InvalidRequest(f'There is no parameter "{name}" here; the parameters are {known}')
        if name in members:
            raise _twice(name)
        members[name] = value
    if "sparql" not in members:
        raise _no_text(primitive, members, text_parameter)
    for name in _NOT_HERE[primitive] & members.keys():
        raise InvalidRequest(
            f'"{name}" does not apply over CoAP: a subscription waits for its observer at its path, for '
            "coap.follow_within, and tells the whole result again; leave it out"
        )
    if (said := token(request)) is not None:
        members["authorization"] = said
    return {primitive: members}


def _body(request: Message) -> dict[str, Any]:
    sent = format_of(request)
    if sent == TEXT:
        text = read_text(request.payload)
        if text.lstrip().startswith("{"):
            raise InvalidRequest(f"This is no SPARQL; JSON needs the content format {JSON} (coap-client -t {JSON})")
        return {"sparql": text}
    if sent in (JSON, CBOR):
        return read_object(request)
    raise unsupported(request, TEXT, JSON, CBOR)


def _no_text(primitive: Primitive, members: dict[str, Any], parameter: str) -> InvalidRequest:
    if primitive in members:
        return InvalidRequest(
            f'The member "sparql" is missing; the path says already that this is "{primitive}", so send what is inside'
        )
    if members:
        return InvalidRequest(f'There is no text: the member "sparql" is missing, or the parameter "{parameter}"')
    return InvalidRequest(f'There is no text: send it as the body, or as the parameter "{parameter}"')


def _twice(name: str) -> InvalidRequest:
    return InvalidRequest(f'"{name}" is given twice; give it once')
