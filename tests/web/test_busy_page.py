"""A page that has no time: inputs follow each other before it is drawn, or a script does not end."""

from __future__ import annotations

import pytest
from house import House, names
from test_rule_form import fill, open_form

from edge.bench.chromium import BrowserUnanswered

UPDATE = "document.querySelector('#rule .editor').shadowRoot.querySelector('.cm-content')"
BRIGHTNESS = "urn:sepa-edge:zigbee2mqtt:spot/brightness"
INPUTS = """(async () => {
  const field = document.querySelector('#set-value');
  for (const number of ['11', '22', '33']) {
    field.value = number;
    field.dispatchEvent(new Event('input', {bubbles: true}));
    await new Promise(queueMicrotask);  // it is rendered, and not drawn
  }
})()"""


async def test_the_last_of_three_inputs_before_a_frame_counts(house: House, page):
    house.publish([("zigbee2mqtt/spot", {"state": "OFF", "brightness": 1})])
    await page.wait_for(f"{names('.observation')}.includes('Brightness')")
    await open_form(page)
    await page.wait_for("document.getElementById('set')?.options.length > 1")
    await fill(page, "set", BRIGHTNESS)
    await page.wait_for(f"document.querySelector('#set-value') !== null && {UPDATE}.textContent.includes('brightness')")
    await page.evaluate(INPUTS)
    await page.wait_for(f"{UPDATE}.textContent.includes(' 33')")
    assert await page.evaluate("document.getElementById('set-value').value") == "33"


async def test_a_page_that_hangs_is_named(browser):
    with pytest.raises(
        BrowserUnanswered, match=r"for \(;;\);.*: its renderer is busy or hangs, and the browser answers"
    ):
        await browser.evaluate("for (;;);", within=0.5)
