"""The overview of the application in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.gates.http import page as files
from edge.gates.settings import WsGateSettings
from edge.gates.ws import WsGate
from edge.mapping.unit_symbols import UNIT_CODES, unit_symbols
from edge.mapping.unit_symbols_js import javascript
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<img src=x onerror='document.title=1'><script>document.title=2</script>"


@pytest.fixture
async def page(served, browser):
    await browser.open(served.url)
    return browser


def observe(iri: str, value: str, *, label: str = "", place: str = "", unit: str = "", time: str = "") -> str:
    parts = [f"<{iri}> a sosa:Observation ; sosa:hasResult <{iri}/r> ."]
    parts.append(f"<{iri}/r> a qudt:QuantityValue ; qudt:numericValue {value} .")
    if label:
        parts.append(f'<{iri}> rdfs:label "{label}" .')
    if place:
        parts.append(f"<{iri}> sosa:hasFeatureOfInterest <{place}> .")
    if unit:
        parts.append(f"<{iri}/r> qudt:unit unit:{unit} .")
    if time:
        parts.append(
            f'<{iri}/r> time:hasTime <{iri}/t> . <{iri}/t> time:inXSDDateTimeStamp "{time}"^^xsd:dateTimeStamp .'
        )
    return "INSERT DATA { " + " ".join(parts) + " }"


def change(iri: str, value: str) -> str:
    return (
        f"DELETE {{ <{iri}/r> qudt:numericValue ?old }} INSERT {{ <{iri}/r> qudt:numericValue {value} }} "
        f"WHERE {{ <{iri}/r> qudt:numericValue ?old }}"
    )


LIVE = "document.getElementById('state')?.dataset.state === 'live'"


def text_of(selector: str) -> str:
    return f"document.querySelector({selector!r})?.textContent"


async def test_observations_appear_are_marked_if_they_change_and_go(served, page):
    await page.wait_for(LIVE)
    await page.wait_for("document.getElementById('tour') !== null")
    await page.evaluate("document.querySelector('#tour button').click()")
    await page.wait_for("document.getElementById('empty') !== null")
    served.update(
        observe("urn:k/t", "21.5", label="Temperature", place="http://ex.org/Living_room", unit="DegreeCelsius",
                time="2026-01-02T03:04:05Z")
    )  # fmt: skip
    await page.wait_for(f"{text_of('.place h2')} === 'Living room'")
    await page.wait_for(f"{text_of('.label')} === 'Temperature'")
    assert await page.evaluate(text_of(".value")) == "21.5"
    assert await page.evaluate(text_of(".unit")) == "°C"
    assert await page.evaluate("document.querySelector('.when').dateTime") == "2026-01-02T03:04:05.000Z"
    await page.evaluate(
        "marked = 0; new MutationObserver(() => { marked += document.querySelectorAll('.changed').length })"
        ".observe(document.body, { subtree: true, attributeFilter: ['class'] })"
    )
    assert await page.evaluate("document.getElementById('empty')") is None
    served.update(change("urn:k/t", "22.25"))
    await page.wait_for(f"{text_of('.value')} === '22.25'")
    await page.wait_for("marked === 1 && document.querySelector('.changed') === null")
    assert await page.evaluate("document.querySelectorAll('.observation').length") == 1
    served.update("DELETE WHERE { <urn:k/t> a ?c }")
    await page.wait_for("document.querySelectorAll('.place').length === 0 && document.getElementById('empty') !== null")
    assert page.problems() == []


async def test_observation_needs_only_a_value(served, page):
    served.update(observe("http://ex.org/sensors/attic", "7", unit="Furlong"))
    await page.wait_for(f"{text_of('.label')} === 'attic'")
    assert await page.evaluate(text_of(".place h2")) == "No place"
    assert await page.evaluate(text_of(".unit")) == "Furlong"


async def test_places_and_labels_are_sorted_and_grouped(served, page):
    for number in (2, 10, 1):
        served.update(observe(f"urn:o{number}", "1", label=f"Sensor {number}", place="http://ex.org/B"))
    served.update(observe("urn:a", "1", label="X", place="http://ex.org/A"))
    served.update(observe("urn:z", "1", label="Z"))
    await page.wait_for("document.querySelectorAll('.observation').length === 5")
    headings = "[...document.querySelectorAll('h2')].filter(h => h.closest('.place')).map(h => h.textContent).join()"
    assert await page.evaluate(headings) == "A,B,No place"
    labels = "[...document.querySelectorAll('[data-place$=B] .label')].map(l => l.textContent).join()"
    assert await page.evaluate(labels) == "Sensor 1,Sensor 2,Sensor 10"


async def test_a_new_group_moves_no_other_one(served, page):
    """Groups are drawn 20 at a time. The new one is the first of 41, so that two others move to another piece."""
    await page.size(1280, 6000)  # all tiles are visible
    for number in range(40):
        served.update(observe(f"urn:o{number}", "1", label="Sensor", place=f"http://ex.org/B{number}"))
    await page.wait_for(
        "document.querySelectorAll('.place').length === 40 && document.querySelectorAll('.observation').length === 40"
    )
    await page.evaluate(
        "globalThis.before = [...document.querySelectorAll('.place')];"
        " before[19].querySelector('.observation a').focus(); globalThis.focused = document.activeElement; 1"
    )
    served.update(observe("urn:a", "1", label="Sensor", place="http://ex.org/A"))
    await page.wait_for("document.querySelectorAll('.place').length === 41")
    assert await page.evaluate("before.filter(each => !each.isConnected).map(each => each.dataset.place)") == []
    assert await page.evaluate("document.activeElement === focused && focused.matches('.observation a')")


async def test_the_fault_of_a_degraded_gateway_has_its_kind(served, browser):
    served.faults.append("The broker does not start")
    await browser.language("de")
    await browser.open(served.url)
    chip = "document.querySelector('.chip')?.textContent"
    await browser.wait_for(f"{chip} === 'Das Gateway ist nicht bereit: The broker does not start'")
    browser.expect("status of 503")


async def test_places_with_the_same_name_show_their_difference(served, page):
    served.update(observe("urn:1", "1", label="One", place="http://ex.org/house/kitchen"))
    served.update(observe("urn:2", "2", label="Two", place="http://ex.org/shop/kitchen"))
    served.update(observe("urn:3", "3", label="Three", place="http://ex.org/shop/office"))
    await page.wait_for("document.querySelectorAll('.observation').length === 3")
    cards = (
        "[...document.querySelectorAll('.place')].map(card => [card.querySelector('h2').textContent, "
        "getComputedStyle(card.querySelector('h2'), '::after').content, card.querySelectorAll('li').length].join('|'))"
        ".join('  ')"
    )
    assert await page.evaluate(cards) == (
        'kitchen|"http://ex.org/house/kitchen"|1  kitchen|"http://ex.org/shop/kitchen"|1  office|none|1'
    )
    assert await page.evaluate(text_of("#summary")) == "3 values in 3 places"
    served.update("DELETE WHERE { <urn:2> a ?c }")
    await page.wait_for("document.querySelectorAll('.place').length === 2")
    assert await page.evaluate(cards) == "kitchen|none|1  office|none|1"


LABELS = [
    ("temperature of kitchen", "http://ex.org/kitchen", "Temperature"),
    ("Temperature at Kitchen_sensor", "http://ex.org/kitchen_sensor", "Temperature"),
    ("Server room temperature", "http://ex.org/Server_room", "Temperature"),
    ("Kitchen: humidity", "http://ex.org/kitchen", "Humidity"),
    ("kitchen", "http://ex.org/kitchen", "kitchen"),
    ("kitchenette temperature", "http://ex.org/kitchen", "kitchenette temperature"),
    ("Power of the oven", "http://ex.org/kitchen", "Power of the oven"),
]
"""Label and place of an observation, and the text that its tile shows."""


async def test_a_label_does_not_repeat_the_title_of_its_card(served, page):
    for number, (label, place, _) in enumerate(LABELS):
        served.update(observe(f"urn:o{number}", "1", label=label, place=place))
    await page.wait_for(f"document.querySelectorAll('.observation').length === {len(LABELS)}")
    found = await page.evaluate(
        "[...document.querySelectorAll('.observation .label')].map(each => [each.title, each.textContent])"
    )
    assert dict(found) == {label: shown for label, _, shown in LABELS}


async def test_every_unit_that_mappings_know_has_its_symbol(served, page):
    """The page has the engine's table: a unit code is shown as people write it, never as the end of an IRI."""
    units = sorted(set(UNIT_CODES.values()))
    await page.size(1280, 8000)  # tiles exist near the visible area only
    for number, unit in enumerate(units):
        served.update(observe(f"urn:o{number:03}", "1", label=f"{number:03}", place="http://ex.org/p").replace(
            "numericValue 1 .", f"numericValue 1 ; qudt:unit <{unit}> ."))  # fmt: skip
    await page.wait_for(f"document.querySelectorAll('.observation').length === {len(units)}")
    found = await page.evaluate("[...document.querySelectorAll('.unit')].map(unit => unit.textContent).join(' ')")
    symbols = unit_symbols()
    shown = [symbols[unit.rpartition("#")[2].rpartition("/")[2]] for unit in units]
    assert found.split(" ") == shown
    assert all(len(symbol) <= 7 for symbol in shown), "a symbol, not a name"
    assert page.problems() == []


def test_the_table_of_the_page_is_the_engines():
    assert (ROOT / "edge" / "web" / "units.js").read_text(encoding="utf-8") == javascript(), "out of date: make docs"


async def test_hostile_text_stays_text(served, page):
    served.update(observe("urn:evil", f'"{HOSTILE}"', label=HOSTILE, place="http://ex.org/%3Cb%3Ebold%3C%2Fb%3E"))
    await page.wait_for("document.querySelectorAll('.observation').length === 1")
    assert await page.evaluate(text_of(".label")) == HOSTILE
    assert await page.evaluate(text_of(".value")) == HOSTILE
    assert await page.evaluate("document.querySelectorAll('main img, main script, main b').length") == 0
    assert await page.evaluate("document.title") == "Overview · sepa-edge"


async def test_the_content_security_policy_blocks_injected_markup(page):
    await page.wait_for(LIVE)
    await page.evaluate("document.body.insertAdjacentHTML('beforeend', `<img src=x onerror='document.title=1'>`)")
    await eventually(lambda: any("Content Security Policy" in problem for problem in page.problems()))
    assert await page.evaluate("document.title") == "Overview · sepa-edge"


async def test_a_lost_connection_is_shown_and_comes_back(served, page):
    served.update(observe("urn:o", "1"))
    await page.wait_for(f"{LIVE} && {text_of('.value')} === '1'")
    await served.ws.stop()
    await page.wait_for("document.getElementById('state').dataset.state === 'lost'")
    assert await page.evaluate("document.getElementById('page').classList.contains('stale')")
    assert await page.evaluate(text_of(".value")) == "1"  # the last known value stays visible
    served.update(change("urn:o", "2"))
    restarted = WsGate(served.engine, WsGateSettings(port=served.ws_port), served.metrics)
    await restarted.start()
    try:
        await page.wait_for(f"{LIVE} && {text_of('.value')} === '2'")
    finally:
        await restarted.stop()


NOTE = f"{text_of('.note')} ?? ''"
CONSOLE = "document.getElementById('run') !== null"


async def test_a_page_that_did_not_load_is_loaded_again(served, page, monkeypatch):
    await page.wait_for(LIVE)
    with monkeypatch.context() as gone:
        gone.delitem(files.FILES, "/pages/console.js")
        await page.evaluate("location.hash = '#/console'")
        await page.wait_for(f"({NOTE}) === 'Loading failed. Try again'")
    await page.evaluate("document.querySelector('.note button').click()")
    await page.wait_for(CONSOLE)
    with monkeypatch.context() as gone:
        gone.delitem(files.FILES, "/pages/engine.js")
        await page.evaluate("location.hash = '#/engine'")
        for button in ("Try again", "Reload"):
            await page.wait_for(f"({NOTE}) === 'Loading failed. {button}'")
            await page.evaluate("document.querySelector('.note button').click()")
        await page.wait_for(f"({NOTE}) === 'Loading failed. Try again'")  # it was reloaded


UPDATED = {
    "/pages/console.js": 'import { gone } from "../model/text.js"; export const Page = gone;',
    "/pages/engine.js": "export function Page() { throw new Error('no text'); }",
    "/pages/system.js": "export function View() {}",
}
"""Modules that do not fit a page of another version."""


async def test_a_page_from_before_an_update_says_so_and_is_reloaded(served, page, monkeypatch):
    await page.wait_for(LIVE)
    content = files._content
    with monkeypatch.context() as update:
        update.setattr(files, "_version", lambda: "0123456789abcdef")
        update.setattr(files, "_content", lambda path: UPDATED.get(path, "").encode() or content(path))
        forget_files()
        for path in UPDATED:
            await page.evaluate(f"document.querySelector('.note')?.remove(); location.hash = '#{path[6:-3]}'")
            await page.wait_for(f"({NOTE}).startsWith('The gateway was updated.')")
        update.setattr(files, "_content", content)
        forget_files()
        await page.evaluate("window.before = true; location.hash = '#/console'")
        await page.wait_for(f"({NOTE}).startsWith('The gateway was updated.')")
        await page.evaluate("document.querySelector('.note button').click()")
        await page.wait_for(f"!window.before && {CONSOLE}")
    forget_files()


def forget_files() -> None:
    files._load.cache_clear()
    files._hash_of_import_map.cache_clear()


async def test_a_value_stays_live_after_its_unit_or_label_has_changed(served, page):
    served.update(observe("urn:o", "1", label="One", unit="Volt"))
    await page.wait_for(f"{text_of('.value')} === '1'")
    label = "<urn:o> rdfs:label"
    served.update(f'DELETE {{ {label} ?old }} INSERT {{ {label} "Two" }} WHERE {{ {label} ?old }}')
    await page.wait_for(f"{text_of('.label')} === 'Two'")
    served.update(change("urn:o", "2"))
    await page.wait_for(f"{text_of('.value')} === '2'")
    served.update("DELETE WHERE { <urn:o/r> qudt:unit ?u } ; INSERT DATA { <urn:o/r> qudt:unit unit:Ampere }")
    await page.wait_for(f"{text_of('.unit')} === 'A'")
    served.update(change("urn:o", "3"))
    await page.wait_for(f"{text_of('.value')} === '3'")


VALUES = [
    ('"1.10"', "1.10"),
    ('"00451"', "00451"),
    ('"0x10"', "0x10"),
    ("2024", "2,024"),
    ("0", "0"),
    ("-3.50", "-3.5"),
    ("12345678901234567890", "12345678901234567890"),
    ('"7"^^xsd:unsignedByte', "7"),
]
"""A value in SPARQL, and the text that its tile shows."""


async def test_numbers_are_formatted_and_texts_are_not(served, page):
    for number, (value, _) in enumerate(VALUES):
        served.update(observe(f"urn:o{number}", value))
    await page.wait_for(f"document.querySelectorAll('.observation').length === {len(VALUES)}")
    tiles = [f"[data-id='urn:o{number}'] .value" for number in range(len(VALUES))]
    found = [await page.evaluate(text_of(tile)) for tile in tiles]
    assert list(zip(VALUES, found, strict=True)) == [(case, case[1]) for case in VALUES]


async def test_a_search_shows_diagnostic_values(served, page):
    served.update(observe("urn:o", "80", label="battery of lamp", place="urn:place:lamp"))
    served.update("INSERT DATA { <urn:o> sosa:observedProperty <urn:p:battery> }")
    await page.wait_for("document.querySelector('.diagnostics') !== null")
    await page.wait_for("document.querySelectorAll('.observation').length === 0")
    await page.evaluate("document.getElementById('search').value = 'battery'")
    await page.evaluate("document.getElementById('search').dispatchEvent(new Event('input'))")
    await page.wait_for("document.querySelectorAll('.observation').length === 1")
