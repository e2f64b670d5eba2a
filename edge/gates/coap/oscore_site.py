"""OSCORE layer in front of the CoAP site: decrypts requests and encrypts responses (RFC 8613)."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from aiocoap import Code, Message
from aiocoap.error import RenderableError
from aiocoap.interfaces import Resource
from aiocoap.numbers.optionnumbers import OptionNumber
from aiocoap.pipe import Pipe

from edge.gates.coap.blocks import Blocks
from edge.gates.coap.contexts import ContextGuard
from edge.gates.coap.formats import BadOption, diagnosed, refused
from edge.gates.coap.requests import check_options
from edge.gates.coap.transport import Peer
from edge.gates.sessions import Sessions
from edge.protocol.errors import MethodNotAllowed, MissingAuthorization, TooManyRequests

if TYPE_CHECKING:
    from edge.gates.coap.oscore import SecurityContext

_PIV: Final = 0b0000_0111
_KID: Final = 0b0000_1000
_KID_CONTEXT: Final = 0b0001_0000
_RESERVED: Final = 0b1110_0000
"""Bits of the option's first byte (RFC 8613, section 6.1): length of the Partial IV, and flags."""
_LONGEST_PIV: Final = 5

_OPEN: Final = (".well-known", "core")
"""Resource without access control."""

_log = logging.getLogger(__name__)


class OscoreSite(Resource):  # type: ignore[misc]  # the library has no types
    """Decrypts requests and passes them to the site, whose responses are encrypted."""

    def __init__(self, site: Resource, sessions: Sessions, guard: ContextGuard, blocks: Blocks, *, plain: bool) -> None:
        """`blocks`: for blockwise encrypted messages; `plain`: whether unprotected requests with tokens are accepted
        too.
        """
        super().__init__()
        self._site = site
        self._sessions = sessions
        self._guard = guard
        self._blocks = blocks
        self._plain = plain
        self._active: dict[bytes, SecurityContext] = {}

    async def render(self, request: Message) -> Message:
        """Not used: all requests go through `render_to_pipe`."""
        raise NotImplementedError

    async def needs_blockwise_assembly(self, request: Message) -> bool:
        """Not used either."""
        raise NotImplementedError

    async def render_to_pipe(self, pipe: Pipe) -> None:
        """Answer a request."""
        request, started = pipe.request, time.perf_counter()
        if request.opt.oscore is None and (self._plain or tuple(request.opt.uri_path) == _OPEN):
            await self._site.render_to_pipe(pipe)
            return
        try:
            opened = await self._open(pipe)
        except RenderableError:
            raise
        except Exception as failure:  # noqa: BLE001 - as in the site
            error = self._sessions.as_error(failure, None)
            opened = diagnosed(refused(request, error).code, error.description)
        if isinstance(opened, _Inside):
            await opened.serve(self._site)
            return
        if not opened.code.is_successful():
            self._sessions.answered("message", 100 * opened.code.class_ + opened.code % 32, started)
        opened.opt.block1 = request.opt.block1
        pipe.add_response(opened, is_last=True)

    async def _open(self, pipe: Pipe) -> _Inside | Message:
        """Return the decrypted request for the site, or the response if it is incomplete or cannot be decrypted."""
        request = pipe.request
        if request.opt.oscore is None:
            raise MissingAuthorization("Protect requests with OSCORE here; no token is read")
        check_options(request, OptionNumber.OSCORE)
        if request.code not in (Code.POST, Code.FETCH):
            raise MethodNotAllowed("A protected request is a POST or a FETCH")
        kid = _kid(request.opt.oscore)
        context = await self._context(kid)
        if context is None:
            return diagnosed(Code.UNAUTHORIZED, "Security context not found")
        if (response := self._blocks.part(request) or self._blocks.whole(request)) is not None:
            missing = response.code == Code.REQUEST_ENTITY_INCOMPLETE
            return diagnosed(response.code, "Blocks are missing") if missing else response
        opened, identifiers = context.open(request)
        if identifiers is None:
            return opened
        opened.remote = Peer(("oscore", kid), self._guard.authorization(kid), request.remote)
        return _Inside(opened, pipe, context, identifiers, self._blocks)

    async def _context(self, kid: bytes) -> SecurityContext | None:
        keys = self._guard.contexts.find(kid)
        if keys is None:
            self._active.pop(kid, None)
            return None
        if kid not in self._active:
            # The import takes half a second on a small machine.
            oscore = await asyncio.to_thread(importlib.import_module, "edge.gates.coap.oscore")
            # Another request may have created the context during the import. Two contexts would have two replay
            # windows.
            self._active.setdefault(kid, oscore.SecurityContext(keys, self._guard.contexts))
        return self._active[kid]


class _Inside:
    """Pipe of a decrypted request; encrypts the responses."""

    def __init__(
        self,
        request: Message,
        pipe: Pipe,
        context: SecurityContext,
        identifiers: Any,  # noqa: ANN401 - the library has no types
        blocks: Blocks,
    ) -> None:
        self.request = request
        self._pipe = pipe
        self._context = context
        self._identifiers = identifiers
        self._blocks = blocks

    async def serve(self, site: Resource) -> None:
        """Let the site answer."""
        try:
            await site.render_to_pipe(self)
        except RenderableError as error:
            self.add_response(error.to_message(), is_last=True)

    def add_response(self, message: Message, is_last: bool = False) -> None:
        """Encrypt and send a response or notification."""
        try:
            sealed = self._context.seal(message, self._identifiers, last=is_last)
        except Exception as failure:  # noqa: BLE001 - nothing may be sent unencrypted, and the observer must learn of the end
            _log.error("coap.not_protected", extra={"reason": str(failure)})
            self._pipe.add_response(diagnosed(Code.INTERNAL_SERVER_ERROR, "Not protected"), is_last=True)
            return
        try:
            first = self._blocks.first(self._pipe.request, sealed)
        except TooManyRequests as error:
            refusal = diagnosed(refused(self._pipe.request, error).code, error.description)
            self._pipe.add_response(refusal, is_last=True)
            return
        self._pipe.add_response(first, is_last)


def _kid(option: bytes) -> bytes:
    """Return the context id (kid) in an OSCORE option. Raises `BadOption`."""
    flags = option[0] if option else 0
    length = flags & _PIV
    # Requests have a Partial IV and a kid (RFC 8613, section 6.1).
    if flags & _RESERVED or not 0 < length <= _LONGEST_PIV or len(option) <= length or not flags & _KID:
        raise BadOption("This is not an OSCORE option of a request (RFC 8613, section 6.1)")
    if flags & _KID_CONTEXT:
        raise BadOption("Security contexts have no ID Context here; leave it out")
    return option[1 + length :]
