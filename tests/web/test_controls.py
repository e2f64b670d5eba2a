"""Switches and sliders on the page of a device: the device gets the message, and the page shows what it reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from house import House, device_address, names
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.waiting import eventually

LAMP = "urn:sepa-edge:zigbee2mqtt:lamp"


@pytest.fixture
def lamp(house: House) -> Iterator[list[dict]]:
    """A lamp that obeys, and the commands that it got."""
    commands: list[dict] = []
    broker = urlsplit(house.endpoints["mqtt"])
    client = Client(CallbackAPIVersion.VERSION2)
    state = {"state": "OFF", "brightness": 10}

    def obey(client: Client, _: object, message: object) -> None:
        commands.append(json.loads(message.payload))
        state.update(commands[-1])
        client.publish("zigbee2mqtt/lamp", json.dumps(state), 1)

    client.on_message = obey
    client.on_connect = lambda client, *_: client.subscribe("zigbee2mqtt/lamp/set", 1)
    client.on_subscribe = lambda client, *_: client.publish("zigbee2mqtt/lamp", json.dumps(state), 1)
    client.connect(broker.hostname or "", broker.port or 0)
    client.loop_start()
    yield commands
    client.disconnect()
    client.loop_stop()


async def test_a_lamp_is_switched_and_dimmed(house: House, page, lamp):
    await page.wait_for(f"{names('.observation')}.includes('Brightness')")
    await page.evaluate(f"location.hash = {device_address(LAMP)!r}")
    await page.wait_for("document.querySelector('.control input[role=switch]') !== null")
    assert await page.evaluate("document.querySelector('[role=switch]').checked") is False
    await page.evaluate("document.querySelector('[role=switch]').click()")
    await eventually(lambda: lamp == [{"state": "ON"}])
    await page.wait_for(f"{names('.control b')} === 'On' && document.querySelector('[role=switch]').checked")
    await page.evaluate(
        "{ const slider = document.querySelector('[type=range]'); slider.value = 200;"
        " for (const type of ['input', 'change']) slider.dispatchEvent(new Event(type, {bubbles: true})); }"
    )
    await eventually(lambda: lamp[1:] == [{"brightness": 200}])
    await page.wait_for(f"{names('.control output')} === '200'")
    await eventually(lambda: not house.ask("?o <urn:sepa-edge:desired> ?v"))
    await page.wait_for("document.getAnimations().length === 0")  # a new value is coloured for a moment
    assert await page.violations() == []
    await page.size(390, 844, dark=True)
    assert await page.violations() == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_device_without_setters_has_no_controls(page):
    await page.evaluate(f"location.hash = {device_address('urn:sepa-edge:zigbee2mqtt:kitchen_sensor')!r}")
    await page.wait_for(
        "document.querySelectorAll('.observation').length >= 3 && document.querySelector('h1') !== null"
    )
    assert await page.evaluate("document.getElementById('controls-of-device')") is None


async def test_the_page_of_a_device_says_what_it_is(house: House, page):
    definition = {"vendor": "IKEA", "model": "LED1545G12"}
    device = {"friendly_name": "hall/bulb", "definition": definition, "software_build_id": "1.2.217"}
    house.publish([("zigbee2mqtt/hall/bulb", {"brightness": 9}), ("zigbee2mqtt/bridge/devices", [device])])
    await page.evaluate(f"location.hash = {device_address('urn:sepa-edge:zigbee2mqtt:hall/bulb')!r}")
    await page.wait_for(f"{names('#about')} === 'IKEA LED1545G12 · Firmware 1.2.217'")
    assert await page.evaluate("document.querySelectorAll('main .observation').length") == 1
    house.publish([("zigbee2mqtt/bridge/devices", [{**device, "software_build_id": "1.3"}])])
    await page.wait_for(f"{names('#about')}.endsWith('Firmware 1.3')")
    assert await page.violations() == []
