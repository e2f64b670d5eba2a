"""Private names of aiocoap's OSCORE implementation (RFC 8613). Checked with aiocoap 0.4.17.

The library's contexts store their sequence numbers in files of their own, and keep no inner Observe value for a
cancellation. The import takes 5 MB of memory, so this is a module of its own.
"""

from __future__ import annotations

from aiocoap import Message
from aiocoap.oscore import CanProtect, CanUnprotect, RequestIdentifiers, SecurityContextUtils


class StoredContext(CanProtect, CanUnprotect, SecurityContextUtils):  # type: ignore[misc]  # the library has no types
    """A context whose sequence numbers are stored before they are used."""

    def post_seqnoincrease(self) -> None:
        """Do nothing: the number is stored already."""

    def _post_decrypt_checks(
        self, aad: bytes, plaintext: bytes, protected_message: Message, request_id: RequestIdentifiers
    ) -> None:
        """Note the inner Observe value as `observe` of the request's identifiers."""
        inner = Message(code=plaintext[0])
        inner.opt.decode(plaintext[1:])
        request_id.observe = inner.opt.observe
