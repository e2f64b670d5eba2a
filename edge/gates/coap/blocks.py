"""Blockwise transfer of requests and responses (RFC 7959), within bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Final

from aiocoap import Code, Message
from aiocoap.numbers.optionnumbers import OptionNumber

from edge.compat.aiocoap import block_of
from edge.engine.admission.byte_quota import ByteQuota
from edge.gates.coap.formats import incomplete
from edge.gates.coap.requests import peer
from edge.gates.coap.transfers import BlockTransfer, Transfers
from edge.gates.rate_limit import incoming, outgoing
from edge.protocol.errors import NotReady, TooLarge

_PARTS: Final = (OptionNumber.BLOCK1, OptionNumber.BLOCK2, OptionNumber.OBSERVE)


class Blocks:
    """Blockwise transfers of all clients. When they exceed the limit, the oldest is dropped and has to start again.

    Requests are charged to the client's account for incoming data, responses to that for outgoing data.

    A client requests the blocks of a notification in the same way as those of a GET response (RFC 7959, section 3.4).
    Therefore only one transfer at a time can exist for a client and resource.
    """

    def __init__(self, max_body: int, max_kept: int, quota: ByteQuota) -> None:
        """Limits in bytes: of one request, and of all stored transfers."""
        self._max_body = max_body
        self._requests = Transfers(max_kept, quota)
        self._answers = Transfers(max_kept, quota)

    def close(self) -> None:
        """Drop all transfers."""
        self._requests.close()
        self._answers.close()

    def whole(self, request: Message) -> Message | None:
        """Add a block. Returns None when the request has its complete body, else the response to this block.

        Raises `TooLarge`, `TooManyRequests`.
        """
        block = request.opt.block1
        if (0 if block is None else block.start) + len(request.payload) > self._max_body:
            raise TooLarge(f"The body is longer than {self._max_body} bytes, the limit coap.max_message; send less")
        if block is None:
            return None
        key = _key(request)
        # Block 0 begins a new body, even if an earlier one of this client is incomplete.
        stored = None if block.block_number == 0 else self._requests.take(key)
        before = b"" if stored is None else stored.content
        # Blocks arrive in order (RFC 7959, section 2.5), so the stored length is the expected offset.
        if len(before) != block.start or (block.more and len(request.payload) != block.size):
            return incomplete(request, "Blocks before this one are missing; send the body again from the first block")
        if block.more:
            self._requests.put(key, BlockTransfer(before + request.payload), incoming(peer(request)))
            return Message(code=Code.CONTINUE, block1=block)
        request.payload = before + request.payload
        return None

    def part(self, request: Message) -> Message | None:
        """Return a further block of a response; None: the request does not ask for one."""
        block = request.opt.block2
        if block is None or block.block_number == 0:
            return None
        transfer = self._answers.use(_key(request))
        if transfer is None:
            return incomplete(request, "This transfer has expired; request it again from the first block")
        answer = Message(code=Code(transfer.content[0]))
        answer.payload = answer.opt.decode(transfer.content[1:])
        if block.start >= len(answer.payload):
            return incomplete(request, "The block does not exist; request the transfer again from the first block")
        answer = _cut(answer, request, block.block_number)
        transfer.went(block.start, len(answer.payload))
        return answer

    def first(self, request: Message, answer: Message) -> Message:
        """Return a short response, or the first block of a long one and store the rest. Raises `NotReady`,
        `TooManyRequests`.
        """
        answer.opt.block1 = request.opt.block1
        limit = request.remote.maximum_payload_size
        if request.opt.block2 is not None:
            # The client may ask for smaller blocks than the transport allows.
            limit = min(limit, request.opt.block2.size)
        if len(answer.payload) <= limit:
            return answer
        notifies = answer.opt.observe is not None
        if not notifies:
            self._check_free(request)
        # By the ETag the client notices that blocks belong to different representations (RFC 7959, section 2.4).
        answer.opt.etag = hashlib.blake2b(answer.payload, digest_size=8).digest()
        # Both options belong to the first response only.
        stored = answer.copy(observe=None, block1=None)
        content = bytes([stored.code]) + stored.opt.encode() + b"\xff" + stored.payload
        transfer = BlockTransfer(content, len(stored.payload), notifies=notifies)
        self._answers.put(_key(request), transfer, outgoing(peer(request)))
        cut = _cut(answer, request, 0)
        transfer.went(0, len(cut.payload))
        return cut

    def transfer(self, request: Message) -> BlockTransfer | None:
        """Return the stored transfer of the last long response to this request, or of the last long notification."""
        return self._answers.find(_key(request))

    def _check_free(self, request: Message) -> None:
        before = self.transfer(request)
        if before is not None and before.notifies and before.moves:
            raise NotReady("A blockwise notification of this resource is in transfer; receive it first, then try again")


def _cut(answer: Message, request: Message, number: int) -> Message:
    remote = request.remote
    exponent = remote.maximum_block_size_exp if request.opt.block2 is None else request.opt.block2.size_exponent
    return block_of(answer, number, exponent, remote.maximum_payload_size)


def _key(request: Message) -> Hashable:
    """Return the key of a blockwise exchange: client, code and options."""
    return request.remote.blockwise_key, request.get_cache_key(_PARTS)
