"""Requests and answers that are longer than a datagram (RFC 7959), within bounds."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from aiocoap import Code, Message
from aiocoap.numbers.optionnumbers import OptionNumber

from edge.protocol.errors import TooLarge

_LIFETIME: Final = 93.0
"""Seconds until what is not asked for any more is forgotten: MAX_TRANSMIT_WAIT (RFC 7252, 4.8.2)."""

_PARTS: Final = (OptionNumber.BLOCK1, OptionNumber.BLOCK2, OptionNumber.OBSERVE)


class Blocks:
    """What is on its way in blocks, of all clients. Where it becomes too much the oldest goes, and is begun again."""

    def __init__(self, max_body: int, max_kept: int) -> None:
        """In bytes: one request, all that is kept."""
        self._max_body = max_body
        self._requests = _Kept(max_kept)
        self._answers = _Kept(max_kept)

    def whole(self, request: Message) -> Message | None:
        """None, and the request then has its whole body; or what to answer meanwhile. Raises `TooLarge`."""
        block = request.opt.block1
        if (0 if block is None else block.start) + len(request.payload) > self._max_body:
            raise TooLarge(f"The body is longer than {self._max_body} bytes, the limit coap.max_body; send less")
        if block is None:
            return None
        key = _key(request)
        before = b"" if block.block_number == 0 else self._requests.take(key)
        if before is None or len(before) != block.start or (block.more and len(request.payload) != block.size):
            return Message(code=Code.REQUEST_ENTITY_INCOMPLETE)
        if block.more:
            self._requests.put(key, before + request.payload)
            return Message(code=Code.CONTINUE, block1=block)
        request.payload = before + request.payload
        return None

    def part(self, request: Message) -> Message | None:
        """A further block of an answer; None: the request asks for none."""
        block = request.opt.block2
        if block is None or block.block_number == 0:
            return None
        key = _key(request)
        kept = self._answers.take(key)
        if kept is None:
            return Message(code=Code.REQUEST_ENTITY_INCOMPLETE)
        self._answers.put(key, kept)
        answer = Message(code=Code(kept[0]))
        answer.payload = answer.opt.decode(kept[1:])
        return _cut(answer, request, block.block_number)

    def first(self, request: Message, answer: Message) -> Message:
        """An answer, or its first block: the others can be asked for then."""
        answer.opt.block1 = request.opt.block1
        limit = request.remote.maximum_payload_size
        if request.opt.block2 is not None:
            limit = min(limit, request.opt.block2.size)
        if len(answer.payload) <= limit:
            return answer
        answer.opt.etag = hashlib.blake2b(answer.payload, digest_size=8).digest()
        kept = answer.copy(observe=None, block1=None)
        self._answers.put(_key(request), bytes([kept.code]) + kept.opt.encode() + b"\xff" + kept.payload)
        return _cut(answer, request, 0)


def _cut(answer: Message, request: Message, number: int) -> Message:
    remote = request.remote
    exponent = remote.maximum_block_size_exp if request.opt.block2 is None else request.opt.block2.size_exponent
    return answer._extract_block(number, exponent, remote.maximum_payload_size)


def _key(request: Message) -> Hashable:
    """What the blocks of one exchange have in common: client, code and options."""
    return request.remote.blockwise_key, request.get_cache_key(_PARTS)


class _Kept:
    """Bytes by key, the most recently used, up to a size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[Hashable, tuple[bytes, float]] = OrderedDict()

    def put(self, key: Hashable, payload: bytes) -> None:
        self.take(key)
        self._kept[key] = payload, time.monotonic()
        self._size += len(payload)
        while self._kept and (self._size > self._limit or self._oldest < time.monotonic() - _LIFETIME):
            self.take(next(iter(self._kept)))

    def take(self, key: Hashable) -> bytes | None:
        payload, _ = self._kept.pop(key, (None, 0.0))
        self._size -= 0 if payload is None else len(payload)
        return payload

    @property
    def _oldest(self) -> float:
        return next(iter(self._kept.values()))[1]
