"""Whatever comes in by UDP, the gate answers the next request."""

import asyncio

from aiocoap import FETCH, Code, Message
from coap_client import Datagrams
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PATHS = st.sampled_from(["query", "update", "subscribe", "reading", ".well-known", "core", "x", ""])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "observe": st.integers(0, 2**24 - 1),
        "accept": st.sampled_from([0, 40, 50, 60, 65000]),
        "content_format": st.sampled_from([0, 41, 50, 60, 110, 112, 65000]),
        "block1": st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 6)),
        "block2": st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 6)),
        "uri_query": st.lists(st.text(max_size=50), max_size=3),
        "proxy_uri": st.just("coap://else.where/"),
        "no_response": st.integers(0, 31),
    },
)


@st.composite
def messages(draw):
    message = Message(
        code=Code(draw(st.integers(1, 7))),
        payload=draw(st.binary(max_size=200) | st.sampled_from([b"ASK {}", b"{", b"\xa1"])),
        _mtype=draw(st.integers(0, 3)),
        _mid=draw(st.integers(1000, 65535)),
        _token=draw(st.binary(max_size=8)),
    )
    message.opt.uri_path = draw(st.lists(PATHS, max_size=4))
    for name, value in draw(OPTIONS).items():
        setattr(message.opt, name, value)
    return message.encode()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(messages() | st.binary(max_size=300), min_size=1, max_size=20))
def test_nothing_stops_it(engine, datagrams):
    from edge.gates.coap import CoapGate
    from edge.gates.settings import CoapGateSettings
    from edge.metrics import Metrics

    metrics = Metrics()

    async def readings(topic, payload):
        return 1

    async def story():
        gate = CoapGate(engine, CoapGateSettings(port=0, max_pending_requests=1000), metrics, readings)
        device = Datagrams(await gate.start())
        other = Datagrams(device.socket.getpeername()[1])
        try:
            for datagram in datagrams:
                device.socket.send(datagram)
            answer = await other.ask(FETCH, "/query", b"ASK {}")
            assert answer.code == Code.CONTENT
        finally:
            device.close()
            other.close()
            await gate.stop()

    asyncio.run(story())
    assert metrics.registry.get_sample_value("edge_internal_errors_total") == 0
    assert metrics.registry.get_sample_value("edge_subscriptions", {"gate": "coap"}) in (0, None)
