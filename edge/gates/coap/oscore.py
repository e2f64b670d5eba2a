"""OSCORE security context (RFC 8613): decryption of requests, encryption of responses, and replay protection.

The import takes 5 MB of memory, so it happens when a client first uses a context.
"""

from __future__ import annotations

import secrets
from typing import Final

from aiocoap import Code, Message
from aiocoap.error import UnparsableMessage
from aiocoap.oscore import (
    DEFAULT_ALGORITHM,
    DEFAULT_HASHFUNCTION,
    DEFAULT_WINDOWSIZE,
    DecodeError,
    ProtectionInvalid,
    ReplayError,
    ReplayErrorWithEcho,
    ReplayWindow,
    RequestIdentifiers,
    algorithms,
    hashfunctions,
)

from edge.compat.aiocoap_oscore import StoredContext
from edge.gates.coap.contexts import SecurityContexts, SharedKeys
from edge.gates.coap.formats import diagnosed

_STEP: Final = 1024
"""Sequence numbers reserved at once: one write to disk for this many notifications."""
_ECHO: Final = 8
"""Bytes of an Echo value."""

_OBSERVE_CANCEL: Final = 1
_SUCCESS: Final = 1 << 1
"""Bit of No-Response that suppresses 2.xx responses (RFC 7967)."""


class SecurityContext(StoredContext):
    """The library's context, with sequence numbers from the data directory.

    The replay window is held in memory only. After a start, each client's first request gets an Echo challenge
    (appendix B.1.2). Recorded requests are therefore rejected, without a write to disk for each request.
    """

    id_context = None
    alg_aead = algorithms[DEFAULT_ALGORITHM]
    hashfun = hashfunctions[DEFAULT_HASHFUNCTION]

    def __init__(self, keys: SharedKeys, contexts: SecurityContexts) -> None:
        self._contexts = contexts
        self.sender_id = keys.gateway_id
        self.recipient_id = keys.kid
        self.derive_keys(keys.salt, keys.secret)
        self.echo_recovery = secrets.token_bytes(_ECHO)
        self.recipient_replay_window = ReplayWindow(DEFAULT_WINDOWSIZE, _nothing)
        self.sender_sequence_number = 0
        self._reserved = 0

    def new_sequence_number(self) -> int:
        """Return a number that was never used before. Raises `InvalidClient`, `StorageFailed`, `ContextUnavailable`."""
        # Reserved on disk before they are used: the reuse of a number would break the encryption (RFC 8613, appendix
        # B.1.1).
        if self.sender_sequence_number == self._reserved:
            self.sender_sequence_number = self._contexts.reserve(self.recipient_id, _STEP)
            self._reserved = self.sender_sequence_number + _STEP
        number: int = super().new_sequence_number()
        return number

    def open(self, request: Message) -> tuple[Message, RequestIdentifiers | None]:
        """Return the decrypted request, and the identifiers for its responses.

        If it cannot be decrypted, return the response (RFC 8613, section 8.2) and None. Raises as
        `new_sequence_number` does.
        """
        try:
            opened, identifiers = self.unprotect(request)
        except ReplayErrorWithEcho as error:
            return error.to_message(), None
        except ReplayError:
            return diagnosed(Code.UNAUTHORIZED, "Replay detected"), None
        except DecodeError:
            return diagnosed(Code.BAD_OPTION, "Failed to decode COSE"), None
        except (ProtectionInvalid, UnparsableMessage):
            return diagnosed(Code.BAD_REQUEST, "Decryption failed"), None
        if request.opt.observe == identifiers.observe == _OBSERVE_CANCEL:
            opened.opt.observe = _OBSERVE_CANCEL  # the library keeps only the value 0
        return opened, identifiers

    def seal(self, answer: Message, identifiers: RequestIdentifiers, *, last: bool) -> Message:
        """Encrypt a response or notification. Raises as `new_sequence_number` does."""
        unwanted = (answer.opt.no_response or 0) >> (answer.code.class_ - 1) & 1
        number = answer.opt.observe
        answer = answer.copy(no_response=None, observe=None if last else 0)
        sealed, _ = self.protect(answer, identifiers)
        sealed.opt.observe = None if last else number
        sealed.opt.no_response = _SUCCESS if unwanted else None  # the outer code is always one of success
        return sealed


def _nothing() -> None:
    pass
