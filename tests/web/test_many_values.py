"""5,000 values on the Overview: found, grouped, changed and scrolled, with a bounded amount of work at a time."""

from __future__ import annotations

from house import LIVE
from test_overview import change

from tests.support.browser import Browser

PLACES, DEVICES, OF_DEVICE = 50, 500, 10
PROPERTIES = ["temperature", "humidity", "power", "battery", "linkquality"]
"""The last two are diagnostics, which are folded away."""
ELEMENTS = 4_000
"""Most elements of the page. All 5,000 values would be 60,000."""
AT_ONCE = 2_400
"""Most elements that are added before the browser may draw and take what the user does."""
WATCH = """{
  globalThis.added = [];  // elements, of each rendering
  globalThis.changed = 0;  // texts
  const count = (node) => node.nodeType === Node.ELEMENT_NODE ? 1 + node.querySelectorAll('*').length : 0;
  new MutationObserver((all) => {
    added.push(all.flatMap((each) => [...each.addedNodes]).reduce((sum, node) => sum + count(node), 0));
    changed += all.filter(({ type }) => type === 'characterData').length;
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
GROUPS = "document.querySelectorAll('.place').length"


def value(device: int, number: int) -> str:
    """An observation as RDF."""
    iri, kind = f"urn:d{device}:v{number}", PROPERTIES[number % len(PROPERTIES)]
    return (
        f'<{iri}> a sosa:Observation ; rdfs:label "{kind} {number}" ; sosa:hasResult <{iri}/r> ; '
        f"sosa:hasFeatureOfInterest <urn:place:room_{device % PLACES}> ; sosa:madeBySensor <urn:dev:device_{device}> ; "
        f"sosa:observedProperty <urn:p:{kind}> . "
        f"<{iri}/r> a qudt:QuantityValue ; qudt:numericValue {number + 50} ; qudt:unit unit:Percent ."
    )


async def choose(page: Browser, control: str, chosen: str, event: str) -> None:
    """Let a user choose or enter something, and forget the work before."""
    await page.evaluate(
        f"added.length = 0; {{ const control = document.getElementById({control!r}); control.value = {chosen!r};"
        f" control.dispatchEvent(new Event({event!r})); }}"
    )


async def check_work(page: Browser) -> None:
    assert await page.evaluate("Math.max(0, ...added)") <= AT_ONCE
    assert await page.evaluate("document.querySelectorAll('*').length") <= ELEMENTS


async def test_5000_values_are_found_grouped_changed_and_scrolled(served, browser):
    for begin in range(0, DEVICES, 100):
        values = [value(device, each) for device in range(begin, begin + 100) for each in range(OF_DEVICE)]
        served.update(f"INSERT DATA {{ {' '.join(values)} }}")
    await browser.size(1280, 900)
    await browser.open(served.url)
    summary = "document.getElementById('summary')?.textContent"
    await browser.wait_for(f"{LIVE} && {summary} === '5,000 values in 50 places' && {GROUPS} === {PLACES}")
    await browser.evaluate(WATCH)

    for grouping, groups in (("device", DEVICES), ("kind", len(PROPERTIES)), ("device", DEVICES), ("place", PLACES)):
        await choose(browser, "grouping", grouping, "change")
        await browser.wait_for(f"{GROUPS} === {groups}")
        await check_work(browser)
    # Devices 77, 177 to 477 are in the same place.
    await choose(browser, "search", "device 77 temperature", "input")
    await browser.wait_for(
        f"{summary} === '10 values in 1 place' && document.querySelectorAll('.observation').length === 10"
    )
    await choose(browser, "search", "", "input")
    await browser.wait_for(f"{GROUPS} === {PLACES} && document.querySelectorAll('.observation').length > 20")
    await check_work(browser)

    # A reading changes the texts of its tile, and no list.
    await browser.evaluate("added.length = changed = 0")
    served.update(" ; ".join(change(f"urn:d{device}:v0", "77") for device in (0, 100, 499)))
    shown = "document.querySelector('[data-id=\"urn:d0:v0\"] .value').textContent"
    await browser.wait_for(f"{shown} === '77'")
    assert await browser.evaluate("added.reduce((sum, each) => sum + each, 0)") == 0
    assert await browser.evaluate("changed") <= 20

    places = "[...document.querySelectorAll('.place')]"
    last = f"{places}.at(-1).querySelectorAll('.observation').length"
    assert await browser.evaluate(last) == 0
    await browser.evaluate("scrollTo(0, document.body.scrollHeight)")
    await browser.wait_for(f"{last} > 0 && {places}[0].querySelectorAll('.observation').length === 0")
    assert await browser.evaluate("document.querySelectorAll('*').length") <= ELEMENTS
    assert await browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.problems() == []
