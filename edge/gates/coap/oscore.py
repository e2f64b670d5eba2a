"""One OSCORE security context at work (RFC 8613): requests out of it, answers into it.

Importing it takes 5 MB of memory, so it is imported when a client first uses a context.
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
    CanProtect,
    CanUnprotect,
    DecodeError,
    ProtectionInvalid,
    ReplayError,
    ReplayErrorWithEcho,
    ReplayWindow,
    RequestIdentifiers,
    SecurityContextUtils,
    algorithms,
    hashfunctions,
)

from edge.gates.coap.contexts import Contexts, SharedKeys
from edge.gates.coap.formats import diagnosed

_STEP: Final = 1024
"""Sequence numbers that are had at a time: one write to disk for as many notifications."""
_ECHO: Final = 8
"""Bytes."""

_OBSERVE_CANCEL: Final = 1
_SUCCESS: Final = 1 << 1
"""Of No-Response: no answers 2.xx (RFC 7967)."""


class SecurityContext(CanProtect, CanUnprotect, SecurityContextUtils):  # type: ignore[misc]  # the library has no types
    """The library's, with sequence numbers out of the data directory.

    What has come is in memory only. After a start each client's first request is answered with a value to send back
    (Echo, appendix B.1.2), so nothing that was recorded before is taken, and nothing is written for what comes.
    """

    id_context = None
    alg_aead = algorithms[DEFAULT_ALGORITHM]
    hashfun = hashfunctions[DEFAULT_HASHFUNCTION]

    def __init__(self, keys: SharedKeys, contexts: Contexts) -> None:
        self._contexts = contexts
        self.sender_id = keys.gateway_id
        self.recipient_id = keys.kid
        self.derive_keys(keys.salt, keys.secret)
        self.echo_recovery = secrets.token_bytes(_ECHO)
        self.recipient_replay_window = ReplayWindow(DEFAULT_WINDOWSIZE, _nothing)
        self.sender_sequence_number = 0
        self._reserved = 0

    def new_sequence_number(self) -> int:
        """A number that was never used before. Raises `InvalidClient`, `StorageFailed`, `ContextUnavailable`."""
        if self.sender_sequence_number == self._reserved:
            self.sender_sequence_number = self._contexts.reserve(self.recipient_id, _STEP)
            self._reserved = self.sender_sequence_number + _STEP
        number: int = super().new_sequence_number()
        return number

    def open(self, request: Message) -> tuple[Message, RequestIdentifiers | None]:
        """A protected request as it was before, and what its answers need.

        Or None, and what to answer because it cannot be opened (RFC 8613, section 8.2). Raises what
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
            opened.opt.observe = _OBSERVE_CANCEL  # the library keeps 0 alone
        return opened, identifiers

    def seal(self, answer: Message, identifiers: RequestIdentifiers, *, last: bool) -> Message:
        """An answer, or a notification, as it leaves. Raises what `new_sequence_number` does."""
        unwanted = (answer.opt.no_response or 0) >> (answer.code.class_ - 1) & 1
        number = answer.opt.observe
        answer = answer.copy(no_response=None, observe=None if last else 0)
        sealed, _ = self.protect(answer, identifiers)
        sealed.opt.observe = None if last else number
        sealed.opt.no_response = _SUCCESS if unwanted else None  # the code that everybody sees is one of success
        return sealed

    def post_seqnoincrease(self) -> None:
        """It is stored already."""

    def _post_decrypt_checks(
        self, aad: bytes, plaintext: bytes, protected_message: Message, request_id: RequestIdentifiers
    ) -> None:
        inner = Message(code=plaintext[0])
        inner.opt.decode(plaintext[1:])
        request_id.observe = inner.opt.observe


def _nothing() -> None:
    pass
