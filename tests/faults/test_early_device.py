"""A device that connects during the start of the gateway: it is served as soon as it is accepted."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.faults.bare_mqtt import BareDevice
from tests.support.processes import free_port


async def test_the_first_request_of_a_device_that_connects_during_the_start_is_answered(gateway):
    port = free_port()

    async def knock() -> BareDevice:
        while True:
            with suppress(ConnectionRefusedError):
                return await BareDevice.connect("early", port)
            await asyncio.sleep(0.001)

    knocking = asyncio.create_task(knock())
    await asyncio.to_thread(gateway(EDGE__MQTT__PORT=str(port)).start)
    device = await knocking
    assert (await device.subscribe("SELECT ?s { ?s <urn:is> 1 }"))["sequence"] == 0
    device.vanish()
