"""The tour on a new gateway: from nothing to the first mapped device, in the browser that users have."""

from __future__ import annotations

import pytest
from house import LIVE, House, names, press

STEP = "document.querySelector('#tour [aria-current=step] h3')?.textContent"


@pytest.fixture(scope="module")
def chromium(desktop_chromium):
    return desktop_chromium


@pytest.fixture
async def new(browser, tmp_path):
    """A gateway that has only the observations of its own machine, and its page."""
    house = House(tmp_path / "data", EDGE__HOST__ENABLED="true")
    try:
        await browser.open(f"{house.url}/")
        await browser.wait_for(f"{LIVE} && document.getElementById('tour') !== null")
        yield house, browser
        assert browser.problems() == []
    finally:
        house.process.stop()


async def test_the_tour_leads_to_the_first_mapped_device(new):
    house, page = new
    await page.wait_for(f"{STEP} === 'Connect a device'")
    await page.wait_for(f"{names('#tour code')} === {house.endpoints['mqtt']!r}")
    assert await page.violations() == []
    house.publish([("hall/sensor", {"temperature": 21.5})])
    await page.wait_for(f"{STEP} === 'Say what its values mean'")
    await page.evaluate("document.querySelector('#tour li li a').click()")
    await page.wait_for("document.querySelectorAll('#preview li').length > 0")
    await page.evaluate("document.querySelector('#save').click()")
    await page.wait_for("document.querySelector('#saved') !== null")
    house.publish([("hall/sensor", {"temperature": 22.5})])
    await page.evaluate("location.hash = '#/'")
    await page.wait_for(f"{STEP}?.startsWith('Watch it')")
    await press(page, "#tour button", "Close the tour")
    await page.wait_for("document.getElementById('tour') === null && document.querySelector('.observation') !== null")
    await page.command("Page.reload")
    await page.wait_for(f"{LIVE} && document.querySelector('.observation') !== null")
    assert await page.evaluate("document.getElementById('tour') === null")


async def test_the_tour_can_be_skipped_for_good(new):
    _, page = new
    await press(page, "#tour button", "Skip the tour")
    await page.wait_for("document.getElementById('tour') === null")
    await page.command("Page.reload")
    await page.wait_for(f"{LIVE} && document.querySelector('.observation') !== null")
    assert await page.evaluate("document.getElementById('tour') === null")
