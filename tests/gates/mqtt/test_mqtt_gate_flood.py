"""More messages than the event loop can process."""

import asyncio

import paho.mqtt.client as paho

from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.mqtt.connection import BrokerConnection


class Link:
    def start(self): ...

    def stop(self, timeout): ...

    def drop(self, reason): ...


class Owner:
    def __init__(self):
        self.payloads = []

    def up(self): ...

    def down(self): ...

    def received(self, message):
        self.payloads.append(message.payload)


async def test_qos_0_messages_do_not_accumulate_while_the_loop_is_busy():
    owner = Owner()
    wire = BrokerConnection(LoopDispatcher(asyncio.get_running_loop()), owner, ["a/+"], ("will", b""), lambda _: Link())
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    wire._subscribed(client, None, 1, [], None)
    for number in range(5000):
        message = paho.MQTTMessage(mid=number, topic=b"a/b")
        message.payload = str(number).encode()
        message.qos = int(number % 100 == 0)
        wire._message(client, None, message)
    while wire._arrived:  # noqa: ASYNC110 - the bridge tells nobody that it is empty
        await asyncio.sleep(0)
    first = [str(number).encode() for number in range(1000)]
    later = [str(number).encode() for number in range(1000, 5000, 100)]
    assert owner.payloads == first + later
