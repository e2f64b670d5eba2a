"""Data of block-wise transfers counts in the byte quota of its client."""

from __future__ import annotations

import pytest
from aiocoap import FETCH, POST, Code
from coap_client import ALL, CoapClient, Datagrams, body

from edge.engine.requests import UpdateRequest
from edge.gates.coap import transfers
from edge.gates.rate_limit import RateLimit
from edge.gates.settings import LimitSettings
from tests.support.settings import unchecked
from tests.support.waiting import eventually

BLOCK = 1024


def rate_limit(limit: int) -> RateLimit:
    return RateLimit(unchecked(LimitSettings, max_client_bytes=limit, max_total_bytes=4 * limit))


async def send(client: Datagrams, number: int, query: str = "a") -> Code:
    answer = await client.ask(
        POST, "/update", b" " * BLOCK, block1=(number, True, 6), uri_query=[f"alias={query}"], content_format=0
    )
    return answer.code


async def test_an_incomplete_body_counts_until_it_expires(serving, monkeypatch):
    limits = rate_limit(100_000)
    async with serving(rate_limit=limits) as gate:
        client = Datagrams(gate.port)
        for number in range(20):
            assert await send(client, number) == Code.CONTINUE
        assert limits.bytes.total == pytest.approx(20 * BLOCK, abs=2000)
        monkeypatch.setattr(transfers, "_LIFETIME", 0.0)
        assert await send(client, 20) == Code.CONTINUE
        await eventually(lambda: not limits.bytes.total, "an empty account")


async def test_more_than_the_limit_is_refused_and_given_back(serving):
    limits = rate_limit(30_000)
    async with serving(rate_limit=limits) as gate:
        client, other = Datagrams(gate.port), Datagrams(gate.port)
        number = 0
        while (code := await send(client, number)) == Code.CONTINUE:
            number += 1
            assert number < 100
        assert code == Code.TOO_MANY_REQUESTS
        assert number == pytest.approx(28, abs=2)
        assert limits.bytes.total == 0, "what was refused is not kept"
        assert await send(other, 0) == Code.CONTINUE
        for each in range(100):  # any number of incomplete bodies
            if (code := await send(client, 0, f"{each}")) != Code.CONTINUE:
                break
        assert code == Code.TOO_MANY_REQUESTS
        assert limits.bytes.total < 40_000
    assert limits.bytes.total == 0


async def test_a_blockwise_response_counts_until_it_expires(serving, monkeypatch):
    limits = rate_limit(100_000)
    async with serving(rate_limit=limits) as gate, CoapClient(gate.url) as client:
        await client.update("INSERT DATA { <urn:s> <urn:p> '" + "x" * 20_000 + "' }")
        raw = Datagrams(gate.port)
        assert (await raw.ask(FETCH, "/query", ALL, content_format=0)).code == Code.CONTENT
        assert limits.bytes.total == pytest.approx(20_000, abs=2500)
        monkeypatch.setattr(transfers, "_LIFETIME", 0.0)
        await raw.ask(FETCH, "/query", ALL, content_format=0, uri_query=["alias=again"])
        await eventually(lambda: not limits.bytes.total, "an empty account")


async def test_an_answer_or_notification_that_would_be_too_much_is_refused(serving):
    limits = rate_limit(20_000)
    async with serving(rate_limit=limits) as gate, CoapClient(gate.url) as client:
        path = await client.subscribe()
        observation = await client.observe(path)
        assert body(await observation.message())["sequence"] == 0
        for number in range(3):
            await client.update(f"INSERT DATA {{ <urn:s> <urn:{number}> '{'x' * 9000}' }}")
            assert body(await observation.message())["sequence"] == number + 1
        answer = await client.ask(FETCH, "/query", ALL)
        assert answer.code == Code.TOO_MANY_REQUESTS
        assert "limits.max_client_bytes" in body(answer)["error_description"]
        gate.engine.update([UpdateRequest(f"INSERT DATA {{ <urn:s> <urn:p> '{'x' * 25_000}' }}")])
        assert (await observation.message()).code == Code.TOO_MANY_REQUESTS
    assert limits.bytes.total == 0
