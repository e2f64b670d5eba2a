"""A client that exceeds its rate limit over CoAP gets the time of its next attempt: RFC 8516."""

import pytest
from aiocoap import FETCH, POST, Code
from coap_client import ALL, CoapClient, body

from edge.gates.rate_limit import RateLimit
from edge.gates.settings import LimitSettings


@pytest.mark.parametrize(("code", "path", "payload"), [(FETCH, "/query", ALL), (POST, "/reading/sensor", b"21")])
async def test_excess_requests_are_refused_with_the_time_to_wait(serving, code, path, payload):
    rate_limit = RateLimit(LimitSettings(rate=0.001, burst=1))
    async with serving(rate_limit=rate_limit) as gate, CoapClient(gate.url) as client:
        first = await client.ask(code, path, payload)
        assert first.code in (Code.CONTENT, Code.CHANGED)
        refused = await client.ask(code, path, payload)
        assert refused.code == Code.TOO_MANY_REQUESTS
        received = body(refused)
        assert (received["error"], received["status_code"]) == ("too_many_requests", 429)
        assert refused.opt.max_age == received["retry_after"] > 900
