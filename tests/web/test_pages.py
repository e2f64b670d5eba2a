"""Each page's main tasks in a real browser, with a gateway as a process."""

from __future__ import annotations

import json
import os
import signal

import pytest
from house import KITCHEN, LIVE, SIZES, UNREACHABLE, House, device_address, names, press

from tests.support.browser import Browser
from tests.support.waiting import eventually

SOSA, QUDT, TIME = "http://www.w3.org/ns/sosa/", "http://qudt.org/1.1/schema/qudt#", "http://www.w3.org/2006/time#"
PAGES = {
    "overview": ("#/", "document.querySelectorAll('.observation').length >= 5"),
    "device": (
        device_address(KITCHEN, f"{KITCHEN}/temperature"),
        "document.querySelector('.chart canvas') && document.querySelectorAll('.observation').length === 5",
    ),
    "new device": ("#/new", "document.querySelectorAll('#topics li').length > 0"),
    "mapping of a topic": ("#/new/garage%2Fcustom", "document.querySelectorAll('#preview li').length > 0"),
    "mapping file": ("#/mapping/", "document.querySelectorAll('#preview li').length > 0"),
    "console": ("#/console", "document.getElementById('run') !== null"),
    "automation": ("#/automation", "document.getElementById('over') !== null"),
    "engine": ("#/engine", "document.querySelector('.chart canvas') !== null"),
    "access": ("#/access", "document.querySelector('.note') !== null"),
    "system": ("#/system", "document.body.innerText.includes('garage/custom')"),
}


@pytest.mark.timeout(300)  # ten pages
@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_every_page_is_accessible_and_fits_the_screen(page, width, height):
    found = {}
    for name in reversed(PAGES):  # the Overview is open: visit it again at the end
        await page.size(width, height)
        await visit(page, *PAGES[name])
        await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        for dark in (False, True):
            await page.size(width, height, dark=dark)
            fits = await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            found[name, dark] = [*await page.violations(), *([] if fits else ["wider than the screen"])]
    assert found == {(name, dark): [] for name in PAGES for dark in (False, True)}


async def visit(page: Browser, address: str, shown: str) -> None:
    """Go to a page by its link. Wait until nothing of the previous page is left, and the condition is true."""
    await page.evaluate("for (const each of document.getElementById('page').children) each.previous = true")
    await page.evaluate(f"location.hash = {address!r}")
    replaced = "[...document.getElementById('page').children].every(each => !each.previous)"
    await page.wait_for(f"{replaced} && {shown}")


async def test_values_are_found_by_place_device_and_kind(page):
    await page.evaluate("document.getElementById('search').value = 'kitchen temp'")
    await page.evaluate("document.getElementById('search').dispatchEvent(new Event('input'))")
    await page.wait_for("document.querySelectorAll('.observation').length === 1")
    assert await page.evaluate(names(".value")) == "21.5"
    assert await page.evaluate("document.getElementById('announcer').textContent") == "1 value found"
    await page.evaluate("document.getElementById('search').value = 'nowhere'")
    await page.evaluate("document.getElementById('search').dispatchEvent(new Event('input'))")
    await page.wait_for("document.getElementById('places').textContent === 'No value matches.'")


async def choose(page: Browser, control: str, value: str) -> None:
    await page.evaluate(f"document.getElementById({control!r}).value = {value!r}")
    await page.evaluate(f"document.getElementById({control!r}).dispatchEvent(new Event('change'))")


async def test_values_are_grouped_by_what_the_user_chose_last(page):
    await page.wait_for(f"{names('.place h2')} === 'attic|front door|kitchen sensor|plug1'")
    await choose(page, "grouping", "kind")
    await page.wait_for(f"{names('.place h2')}.includes('Temperature')")
    assert "2 values" not in await page.evaluate("document.querySelector('[data-place$=temperature]').textContent")
    await page.wait_for("document.querySelectorAll('[data-place$=temperature] .observation').length === 2")
    await page.command("Page.reload")
    await page.wait_for(f"{names('.place h2')}.includes('Temperature')")
    await choose(page, "grouping", "device")
    await page.wait_for(f"{names('.place h2')}.includes('kitchen sensor')")


async def test_what_a_device_says_about_itself_is_folded_away(page):
    kitchen = "document.querySelector('[data-place$=kitchen_sensor]')"
    assert "Linkquality" not in await page.evaluate(f"{kitchen}.textContent")
    assert "3 diagnostic values" in await page.evaluate(f"{kitchen}.textContent")
    await page.evaluate(f"{kitchen}.querySelector('summary').click()")
    await page.wait_for(f"{kitchen}.textContent.includes('Linkquality')")


async def test_names_of_values_do_not_repeat_the_name_of_their_group(page):
    call = "import('/model/names.js').then(({ labelAt }) => [labelAt('State of lamp', 'State'),"
    call += " labelAt('Temperature of Kitchen', 'Kitchen'), labelAt('Kitchen temperature', 'kitchen'),"
    call += " labelAt('wind_avg of Acme-W 5', 'Acme-W/5'), labelAt('Power of plug (ENERGY)', 'plug'),"
    call += " labelAt('light_level', 'attic'), labelAt('Level (north)', 'Level (north)')].join('|'))"
    expected = "Lamp|Temperature|Temperature|Wind avg|Power (ENERGY)|light level|Level (north)"
    assert await page.evaluate(call) == expected


async def test_a_device_with_an_identifier_has_the_name_of_its_mapping(house, page):
    bench = "urn:sepa-edge:lorawan:0102030405060708"
    house.update(
        "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>"
        f" PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> INSERT DATA {{"
        f" <{bench}> a sosa:Sensor ; rdfs:label 'bench 12' ."
        f" <{bench}/battery_ok> a sosa:Observation ; rdfs:label 'battery_ok of bench 12' ;"
        f" sosa:madeBySensor <{bench}> ;"
        " sosa:observedProperty <urn:sepa-edge:property:battery_ok> ;"
        " sosa:hasFeatureOfInterest <urn:sepa-edge:place:0102030405060708> ;"
        " sosa:hasResult [ a qudt:QuantityValue ; qudt:numericValue 0 ] }"
    )
    card = "document.querySelector('[data-place$=\"place:0102030405060708\"]')"
    await page.wait_for(f"{card}?.querySelector('h2').textContent === 'bench 12'")
    await page.wait_for(f"{card}.querySelector('.mark')?.textContent.startsWith('bench 12: ')")
    house.update(
        f"DELETE {{ ?q ?p ?o }} WHERE {{ <{bench}/battery_ok> <{SOSA}hasResult> ?q . ?q ?p ?o }} ;"
        f" DELETE WHERE {{ <{bench}/battery_ok> ?p ?o }} ; DELETE WHERE {{ <{bench}> ?p ?o }}"
    )
    await page.wait_for(f"{card} === null")


async def test_true_and_false_are_words(page):
    await page.wait_for(f"{names('[data-place$=front_door] .value')} === 'Open'")
    await page.wait_for(f"{names('[data-place$=plug1] .value')}.includes('On')")


async def test_devices_that_need_attention_are_marked(page):
    await page.wait_for(f"{names('.mark')} === 'front door: offline|kitchen sensor: battery 7 %'")
    await page.evaluate("document.getElementById('troubles').click()")
    await page.wait_for(f"{names('.place h2')} === 'front door|kitchen sensor'")


async def test_the_strip_tells_what_needs_attention(page):
    await page.wait_for(f"{names('.chip')}.includes('Broker connected')")
    await page.wait_for(f"{names('.chip')}.includes('1 unmapped topic')")


async def test_a_value_shows_its_last_day(page):
    curve = "document.querySelector('[data-place$=attic] .sparkline path')"
    await page.wait_for(f"{curve}?.getAttribute('d').split('L').length > 10")


async def open_table(page: Browser) -> None:
    await page.evaluate("document.querySelector('[data-place$=attic] .observation a').click()")
    await page.wait_for("document.querySelector('.chart .u-over') !== null")
    await press(page, "summary", "Values as a table")
    await page.wait_for(f"{ROWS} > 20")


ROWS = "document.querySelectorAll('tbody tr').length"


async def test_a_tile_leads_to_the_chart_of_its_value(page):
    await open_table(page)
    assert "°C" in await page.evaluate(names("tbody td"))
    await press(page, ".bar button", "6 hours")
    await page.wait_for(f"{ROWS} < 10 && {ROWS} > 3")


async def test_a_part_of_the_chart_is_zoomed_by_dragging(page):
    await open_table(page)
    area = "document.querySelector('.u-over').getBoundingClientRect()"
    x, y, width, height = await page.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({area})")
    for kind, part in (("mousePressed", 0.4), ("mouseMoved", 0.6), ("mouseReleased", 0.6)):
        at = {"x": x + width * part, "y": y + height / 2}
        await page.command("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **at)
    await page.wait_for(f"{ROWS} < 10 && {ROWS} > 2")
    await press(page, ".bar button", "Zoom out")
    await page.wait_for(f"{ROWS} > 20")


async def drag_with_a_finger(page: Browser, begin: tuple[float, float], end: tuple[float, float]) -> None:
    """Move a finger over the chart; the places are parts of its width and height."""
    area = "document.querySelector('.u-over').getBoundingClientRect()"
    await page.evaluate("document.querySelector('.u-over').scrollIntoView({block: 'center'})")
    x, y, width, height = await page.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({area})")
    for kind, part in (("touchStart", 0), *(("touchMove", part / 8) for part in range(1, 9)), ("touchEnd", None)):
        across, down = (one + (other - one) * (part or 0) for one, other in zip(begin, end, strict=True))
        points = [] if part is None else [{"x": x + width * across, "y": y + height * down}]
        await page.command("Input.dispatchTouchEvent", type=kind, touchPoints=points)


async def test_a_finger_zooms_with_a_horizontal_drag_and_scrolls_with_a_vertical_one(page):
    await page.size(*SIZES[1])
    await page.command("Emulation.setTouchEmulationEnabled", enabled=True)
    await open_table(page)
    await drag_with_a_finger(page, (0.5, 0.9), (0.5, 0.1))
    await page.wait_for("scrollY > 0")
    assert await page.evaluate(f"{ROWS} > 20 && document.querySelector('.u-select').clientWidth === 0")
    await drag_with_a_finger(page, (0.4, 0.5), (0.6, 0.5))
    await page.wait_for(f"{ROWS} < 10 && {ROWS} > 2")
    await press(page, ".bar button", "Zoom out")
    await page.wait_for(f"{ROWS} > 20")


async def test_buttons_zoom_the_chart_and_move_it(page):
    await open_table(page)
    times = "[...document.querySelectorAll('tbody tr')].map(row => Date.parse(row.cells[0].textContent))"
    count = "[...document.querySelectorAll('.bar [aria-disabled=true]')].map(each => each.textContent).join('|')"
    assert await page.evaluate(count) == "Later|Zoom out"
    await press(page, ".bar button", "Zoom in")
    await page.wait_for(f"{ROWS} < 15 && {ROWS} > 8")
    assert " to " in await page.evaluate("document.getElementById('announcer').textContent")
    newest = await page.evaluate(f"Math.max(...{times})")
    await press(page, ".bar button", "Earlier")
    await page.wait_for(f"Math.max(...{times}) < {newest}")
    await press(page, ".bar button", "Later")
    await page.wait_for(f"Math.max(...{times}) === {newest}")
    await press(page, ".bar button", "Zoom out")
    await page.wait_for(f"{ROWS} > 20 && {count} === 'Later|Zoom out'")


async def test_back_and_forward_return_to_the_same_place_of_a_page(page):
    await page.size(390, 400)
    # What appears later above the visible area would move it, and the browser would scroll.
    await page.wait_for("document.querySelectorAll('.chip').length > 1 && document.getElementById('troubles') !== null")
    await page.evaluate("scrollTo(0, 300)")
    await page.evaluate("document.querySelector('[data-place$=kitchen_sensor] .observation a').click()")
    await page.wait_for("document.querySelector('.chart canvas') !== null && scrollY === 0")
    await page.evaluate("scrollTo(0, 100); history.back()")
    await page.wait_for("document.getElementById('search') !== null && scrollY === 300")
    await page.evaluate("history.forward()")
    await page.wait_for("document.querySelector('.chart canvas') !== null && scrollY === 100")
    await page.evaluate("document.querySelector('.path a').click()")
    await page.wait_for("document.getElementById('search') !== null && scrollY === 0")


async def open_device(page: Browser, device: str, name: str) -> None:
    await page.evaluate(f"location.hash = {device_address(device)!r}")
    await page.wait_for(f"document.querySelector('h1')?.textContent === {name!r}")
    await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")


async def test_a_device_is_renamed_and_gets_its_old_name_back(house, page):
    await open_device(page, KITCHEN, "kitchen sensor")

    async def rename(name: str, shown: str) -> None:
        await page.evaluate(f"document.getElementById('device-name').value = {name!r}")
        await page.evaluate("document.querySelector('#device-name + button').click()")
        await page.wait_for(f"document.querySelector('h1').textContent === {shown!r}")

    await rename('Above the "stove" \\ ’', 'Above the "stove" \\ ’')
    assert house.ask(f"<{KITCHEN}> a <http://www.w3.org/ns/sosa/Platform>")
    assert await page.evaluate("document.querySelector('.path span').textContent") == 'Above the "stove" \\ ’'
    await rename("", "kitchen sensor")
    assert not house.ask(f"<{KITCHEN}> <http://www.w3.org/2000/01/rdf-schema#label> ?name")


async def test_the_rdf_of_a_device_is_shown(page):
    await open_device(page, KITCHEN, "kitchen sensor")
    await page.wait_for("document.getElementById('turtle')?.textContent.includes('observedProperty')")
    assert "inXSDDateTimeStamp" in await page.evaluate("document.getElementById('turtle').textContent")


OLD = "urn:sepa-edge:zigbee2mqtt:old"
AGED = f"""DELETE {{ ?i <{TIME}inXSDDateTimeStamp> ?time }}
INSERT {{ ?i <{TIME}inXSDDateTimeStamp> "2024-01-01T00:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTimeStamp> }}
WHERE {{ ?o <{SOSA}hasResult> ?r . ?r <{TIME}hasTime> ?i . ?i <{TIME}inXSDDateTimeStamp> ?time
  FILTER(STRSTARTS(STR(?o), "{OLD}/") && ?o != <{OLD}/temperature>) }}"""


async def test_a_forgotten_device_leaves_nothing_in_the_graph(house, page):
    others = {f"\u202evalue{number}": number for number in range(11)}
    house.publish([("zigbee2mqtt/old", {"temperature": 5, "humidity": 50, **others})])
    old = '?s ?p ?o FILTER(CONTAINS(STR(?s), "zigbee2mqtt:old"))'
    await eventually(lambda: house.ask(old))
    await open_device(page, OLD, "old")
    # A value of an earlier mapping: the device has not sent it for days.
    assert await page.evaluate("document.getElementById('forget-old')") is None
    # The other one has messages of its own: perhaps it has not changed.
    house.update(
        f"INSERT DATA {{ <{OLD}/alarm> a <{SOSA}Observation> ; <{SOSA}madeBySensor> <{OLD}> ; "
        f"<http://mml.arces.unibo.it/monitor#hasMqttTopic> 'old/alarm' ; <{SOSA}hasResult> <{OLD}/alarm/r> . "
        f"<{OLD}/alarm/r> a <{QUDT}QuantityValue> ; <{QUDT}numericValue> false ; <{TIME}hasTime> <{OLD}/alarm/i> . "
        f"<{OLD}/alarm/i> a <{TIME}Instant> ; <{TIME}inXSDDateTimeStamp> '2024-01-01T00:00:00Z' }}"
    )
    house.update(AGED)
    await page.wait_for("document.getElementById('forget-old')?.closest('details').textContent.includes('12 values')")
    await page.evaluate("document.getElementById('forget-old').closest('details').open = true")
    sentence = await page.evaluate(
        """[...document.getElementById('forget-old').previousElementSibling.childNodes]
        .map((node) => node.nodeName === 'BDI' ? '<>' : node.textContent).join('')"""
    )
    assert sentence.startswith("For a month, the messages of the device have not had these: " + ", ".join(10 * ["<>"]))
    assert "<> and 2 more. After a change" in sentence
    await page.evaluate("document.getElementById('forget-old').click()")
    await page.wait_for("document.getElementById('forget-old') === null")
    assert [house.ask(f"<{OLD}/{name}> ?p ?o") for name in ("temperature", "humidity")] == [True, False]
    await page.evaluate("document.getElementById('device-name').value = 'Renamed'")
    await page.evaluate("document.querySelector('#device-name + button').click()")
    await page.wait_for("document.querySelector('h1').textContent === 'Renamed'")
    await page.evaluate("document.getElementById('forget').click()")
    titles = names(".place h2")
    await page.wait_for(
        f"location.hash === '#/' && {titles}.length > 0 && !{titles}.includes('Renamed') && !{titles}.includes('old')"
    )
    assert not house.ask(old)
    assert not house.ask(f"?r a <{QUDT}QuantityValue> FILTER NOT EXISTS {{ ?o <{SOSA}hasResult> ?r }}")
    assert not house.ask(f"?i a <{TIME}Instant> FILTER NOT EXISTS {{ ?r <{TIME}hasTime> ?i }}")
    assert house.ask(f"?s <{SOSA}hasResult> ?r")


HOSTILE = {
    "markup": ('"<script>alert(1)</script>"', "<img src=x onerror=alert(1)>", "<script>alert(1)</script>"),
    "endless": (f'"{"x" * 100_000}"', "y" * 100_000, "x" * 100_000),
    "right-to-left": ('"\u202eabc"', "\u202egnp.exe \u2066", "\u202eabc"),
    "reversed": ('"b"', "\u202egnp.exe", "b"),
    "too many digits": ("123456789012345678901234567890", "big", "123456789012345678901234567890"),
    "too large": ("1e400", "infinite", "INF"),
    "no number": ('"NaN"^^<http://www.w3.org/2001/XMLSchema#double>', "nan", "NaN"),
    "nothing": ('""', "empty", ""),
}


FORWARD = """(() => {
  const details = document.getElementById('forget').closest('details'), text = details.querySelector('p').lastChild;
  details.open = true;
  const left = (at) => {
    const range = document.createRange();
    range.setStart(text, at);
    range.setEnd(text, at + 1);
    return range.getBoundingClientRect().left;
  };
  return left(text.length - 2) < left(text.length - 1);
})()"""
"""Whether the last letters of the sentence above the button "Delete from the graph" run from left to right."""


async def test_no_value_or_label_breaks_the_pages(house: House, page):
    page.expect("status of 404")  # of the history of a value that was never recorded
    found = {name: await problems_with(house, page, *case) for name, case in HOSTILE.items()}
    assert found == {name: [] for name in HOSTILE}


async def problems_with(house: House, page: Browser, value: str, label: str, shown: str) -> list[str]:
    """Show an observation on the Overview and on its own page. Return what is wrong there."""
    names_, place = json.dumps(label), f"urn:place:{'z' * 3000}"
    await page.size(*SIZES[0])
    await page.evaluate("location.hash = '#/'")
    house.update(
        f"DELETE WHERE {{ <urn:hostile> ?p ?o }} ; DELETE WHERE {{ <urn:hostile:r> ?p ?o }} ; INSERT DATA {{ "
        f"<urn:hostile> a <{SOSA}Observation> ; <{SOSA}hasResult> <urn:hostile:r> ; <{SOSA}hasFeatureOfInterest> "
        f"<{place}> ; <http://www.w3.org/2000/01/rdf-schema#label> {names_} . "
        f"<urn:hostile:r> a <{QUDT}QuantityValue> ; <{QUDT}numericValue> {value} }}"
    )
    tile = "document.querySelector('[data-id=\"urn:hostile\"]')"
    await page.wait_for(f"{tile}?.querySelector('.value').textContent === {shown!r}")
    fits = "document.documentElement.scrollWidth <= innerWidth"
    good = {"the Overview is not wider than the screen": await page.evaluate(fits)}
    await page.evaluate(f"{tile}.querySelector('a').click()")
    await page.wait_for("document.querySelector('.note, .chart') !== null")
    good["the device's page is not wider than the screen"] = await page.evaluate(fits)
    elements = await page.evaluate("document.querySelectorAll('main script, main img').length")
    good["no text became an element"] = elements == 0
    good["the sentence around the name keeps its direction"] = await page.evaluate(FORWARD)
    await page.size(*SIZES[1])
    good["the device's page is not wider than a phone"] = await page.evaluate(fits)
    house.update("DELETE WHERE { <urn:hostile> ?p ?o } ; DELETE WHERE { <urn:hostile:r> ?p ?o }")
    return [f"not so: {promise}" for promise, kept in good.items() if not kept]


async def test_the_page_continues_after_a_crash_of_the_gateway(house, page):
    house.process.kill()
    await page.wait_for("document.getElementById('state').dataset.state === 'lost'")
    assert await page.evaluate("document.querySelectorAll('.observation').length") >= 5
    house.process.start()
    await page.wait_for(LIVE)
    house.publish([("zigbee2mqtt/kitchen_sensor", {"temperature": 22.5})])
    await page.wait_for(f"{names('[data-place$=kitchen_sensor] .value')}.includes('22.5')")
    house.furnish()  # the last seconds of the recent values are lost, and the other tests expect some
    await eventually(lambda: house.shows(f"{KITCHEN}/temperature", "21.5"))
    page.expect(*UNREACHABLE)


@pytest.mark.parametrize(("language", "text"), [("de-AT", "Übersicht"), ("it", "Panoramica"), ("fr", "Overview")])
async def test_the_language_is_that_of_the_browser(house, browser, language, text):
    await browser.language(language)
    await browser.open(f"{house.url}/")
    await browser.wait_for(f"document.querySelector('nav [aria-current]')?.textContent === {text!r}")
    assert await browser.evaluate("document.documentElement.lang") == {"fr": "en"}.get(language, language[:2])


@pytest.mark.parametrize("language", ["de", "it"])
async def test_the_choices_of_the_overview_are_readable_on_a_phone(house, browser, language):
    await browser.language(language)
    await browser.size(*SIZES[1])
    await browser.open(f"{house.url}/")
    await browser.wait_for("document.querySelectorAll('#controls select').length === 2")
    widths = await browser.evaluate("[...document.querySelectorAll('#controls select')].map(each => each.clientWidth)")
    assert min(widths) >= 110
    assert await browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_devices_with_slashes_in_their_names_are_different_devices(house, page):
    house.publish([("zigbee2mqtt/living/lamp", {"power": 5}), ("zigbee2mqtt/living/heater", {"power": 1000})])
    await choose(page, "grouping", "device")
    await page.wait_for(f"{names('.place h2')}.includes('living/heater|living/lamp')")
    await page.evaluate(f"location.hash = {device_address('urn:sepa-edge:zigbee2mqtt:living/lamp')!r}")
    await page.wait_for("document.querySelector('h1')?.textContent === 'living/lamp'")
    assert await page.evaluate("document.querySelectorAll('.observation').length") == 1


async def test_a_value_that_changed_its_type_has_the_chart_of_the_newest_values(house, page):
    changer = "urn:sepa-edge:zigbee2mqtt:changer"
    for value, text in ((1, "1"), ("open", "open"), (True, "true"), (7, "7")):
        # One after the other: a broker keeps the order of one publisher, and each publish is a connection of its own.
        house.publish([("zigbee2mqtt/changer", {"value": value})])
        await eventually(lambda text=text: house.shows(f"{changer}/value", text))
    await page.evaluate(f"location.hash = {device_address(changer)!r}")
    await page.wait_for("document.querySelector('.chart canvas') !== null")
    await press(page, "summary", "Values as a table")
    await page.wait_for(f"{names('tbody td')}.split('|')[1] === '7'")


async def test_blank_nodes_are_shown_without_what_sparql_cannot_do(house, page):
    house.update(
        f"INSERT DATA {{ _:o a <{SOSA}Observation> ; <{SOSA}hasResult> [ a <{QUDT}QuantityValue> ; "
        f"<{QUDT}numericValue> 3 ] ; <{SOSA}hasFeatureOfInterest> <urn:place:nameless> }}"
    )
    await page.wait_for("document.querySelector('[data-place$=nameless] .observation') !== null")
    await page.evaluate("document.querySelector('[data-place$=nameless] .observation a').click()")
    await page.wait_for("document.querySelector('.path') !== null")
    assert await page.evaluate("document.getElementById('forget')") is None
    house.update(f"DELETE WHERE {{ ?o <{SOSA}hasFeatureOfInterest> <urn:place:nameless> ; ?p ?v }}")
    page.expect("status of 404")


async def test_a_gateway_that_hangs_is_not_live(house, page):
    os.kill(house.process.pid, signal.SIGSTOP)
    try:
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await page.wait_for("document.getElementById('state').dataset.state === 'lost'", seconds=30)
        assert await page.evaluate("document.getElementById('strip')") is None
    finally:
        os.kill(house.process.pid, signal.SIGCONT)
    await page.wait_for(LIVE, seconds=40)
    page.expect(*UNREACHABLE)


async def labels_of(page: Browser, unit: str, numbers: list[float], step: float) -> list[str]:
    """The labels of numbers on an axis."""
    call = f"numberLabels({json.dumps(numbers)}, {unit!r}, {step})"
    return (await page.evaluate(f"import('/parts/axis.js').then(({{ numberLabels }}) => {call})")) or []


async def test_labels_on_an_axis_are_readable_and_differ_from_each_other(page):
    assert await labels_of(page, "B", [23_290_000_000, 23_300_000_000], 1e7) == ["23.29 GB", "23.3 GB"]
    assert await labels_of(page, "B", [0, 500], 500) == ["0 B", "500 B"]
    assert await labels_of(page, "s", [180_000, 183_600], 3600) == ["50 h", "51 h"]
    assert await labels_of(page, "s", [180_000, 180_030], 30) == ["180,000 s", "180,030 s"]
    assert await labels_of(page, "°C", [-2.5, 0, 2.5], 2.5) == ["-2.5 °C", "0 °C", "2.5 °C"]
    assert await labels_of(page, "", [5.00001, 5.00002], 1e-5) == ["5.00001", "5.00002"]
    assert await labels_of(page, "", [1e300], 1e299) == ["1E300"]
    assert await labels_of(page, "ms", [1.712345e12, 1.712346e12], 1e6) == ["1.712345E12 ms", "1.712346E12 ms"]
    assert await labels_of(page, "%", [0], 0) == ["0 %"]


async def test_the_axis_of_a_chart_has_room_for_its_labels(house, page):
    memory = "urn:sepa-edge:device:memory"
    house.update(
        f"INSERT DATA {{ <{memory}> a <{SOSA}Observation> ; <{SOSA}hasResult> <{memory}:r> . "
        f"<{memory}:r> a <{QUDT}QuantityValue> ; <{QUDT}unit> <http://qudt.org/vocab/unit/BYTE> ; "
        f"<{QUDT}numericValue> 23300000000 }}"
    )
    await page.evaluate(f"location.hash = '#/value/' + encodeURIComponent({memory!r})")
    await page.evaluate(RECORD_LABELS)
    await page.wait_for("document.querySelector('.chart canvas') !== null && globalThis.labels?.length > 3")
    labels = await page.evaluate("globalThis.labels.map(({ text, left }) => [text, left])")
    shown = [(text, left) for text, left in labels if text.endswith("GB")]
    assert len(shown) > 1
    assert min(left for _, left in shown) >= 0
    await press(page, "summary", "Values as a table")
    await page.wait_for(f"{names('tbody td')}.includes('23.3 GB')")
    house.update(f"DELETE WHERE {{ <{memory}> ?p ?v }} ; DELETE WHERE {{ <{memory}:r> ?p ?v }}")


RECORD_LABELS = """{
  const draw = CanvasRenderingContext2D.prototype.fillText;
  globalThis.labels = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    const { e } = this.getTransform();
    globalThis.labels.push({ text, left: this.textAlign === "right" ? e + x - this.measureText(text).width : 0 });
    return draw.call(this, text, x, y, ...rest);
  };
}"""
"""Keeps each text that is drawn, with its left edge in pixels of the canvas."""


def recorded(house: House) -> set[str]:
    """The observations that have recent values."""
    return {each["observation"] for each in house.get("/api/series")["series"]}


CELLAR = "urn:sepa-edge:senml:cellar"


async def test_states_are_bands_in_the_tile_and_in_the_chart(house, page):
    times = [{"t": -3600 * hour} for hour in (20, 15, 10, 5)]
    door = [{"n": "door", "vb": state, **at} for state, at in zip((False, True, False, True), times, strict=True)]
    mode = [{"n": "mode", "vs": state, **at} for state, at in zip(("eco", "heat", "eco", "off"), times, strict=True)]
    house.publish([("senml/cellar", door + mode)])
    await eventually(lambda: recorded(house) >= {f"{CELLAR}/door", f"{CELLAR}/mode"})
    await page.command("Page.reload")
    bands = "[...document.querySelectorAll('[data-place$=cellar] .observation')].map(tile =>"
    bands += " [...tile.querySelectorAll('.sparkline path')].map(path => path.getAttribute('d').split('M').length - 1))"
    # When the door was closed and when it was open; each mode.
    await page.wait_for(f"JSON.stringify({bands}) === '[[2,2],[2,1,1]]'")
    fills = "[...document.querySelectorAll('[data-place$=cellar] path')].map(path => getComputedStyle(path).fill)"
    assert len(set(await page.evaluate(fills) or ())) == 4
    for name, labels in (("door", {"Open", "Closed"}), ("mode", {"eco", "heat", "off"})):
        await page.evaluate(f"{{ {RECORD_LABELS} }}")
        await page.evaluate(f"globalThis.labels = []; location.hash = {device_address(CELLAR, f'{CELLAR}/{name}')!r}")
        shown = (
            f"globalThis.labels.map(({{ text }}) => text).filter(text => {json.dumps(sorted(labels))}.includes(text))"
        )
        await page.wait_for(f"new Set({shown}).size === {len(labels)}")
        await page.evaluate("location.hash = '#/'")
        await page.wait_for("document.getElementById('search') !== null")


RECORD_BANDS = """globalThis.filled = [];
  const fillRect = CanvasRenderingContext2D.prototype.fillRect;
  CanvasRenderingContext2D.prototype.fillRect = function (x, y, width, height) {
    filled.push(this.fillStyle);
    return fillRect.call(this, x, y, width, height);
  };"""
"""Keeps the colour of each rectangle that is drawn."""


async def test_short_states_of_a_long_period_are_seen(house, page):
    """A motion sensor detected something for 20 s, 480 times in 23 hours: more than the rows of tile and chart."""
    begins = [-3600 * 23 + 172.5 * number for number in range(480)]
    moved = [{"n": "motion", "vb": state, "t": at + 20 * (not state)} for at in begins for state in (True, False)]
    for begin in range(0, len(moved), 240):
        house.publish([("senml/porch", moved[begin : begin + 240])])
    motion = "urn:sepa-edge:senml:porch/motion"
    await eventually(lambda: motion in recorded(house))
    period = {"observation": motion, "from": "-24h", "points": "all"}
    await eventually(lambda: len(house.get("/api/series", **period)["series"][0]["rows"]) == len(moved))
    await page.evaluate("globalThis.earlier = true")
    await page.command("Page.reload")
    await page.wait_for("globalThis.earlier === undefined")  # the reload returns before the page is another one
    heights = "[...document.querySelectorAll('[data-place$=porch] .sparkline path')].map(path =>"
    heights += " Math.max(0, ...[...path.getAttribute('d').matchAll(/v([0-9.]+)/g)].map(([, height]) => +height)))"
    await page.wait_for(f"{{ const [no, yes] = {heights}; no <= 2 && yes > 2 && yes < 10 }}")
    await page.evaluate(f"{{ {RECORD_BANDS} }}")
    await page.evaluate(f"location.hash = {device_address('urn:sepa-edge:senml:porch', motion)!r}")
    # Bands of both colours.
    await eventually(lambda: page.evaluate("filled.length > 400 && new Set(filled).size === 2"))


INTERVALS = [
    ({"value": False, "min": False, "max": True, "mean": 0.25}, 400, [[0, 400, True, 0.25], [400, 1000, False, 1]]),
    ({"value": True, "min": False, "max": True, "mean": 0.5}, 400, [[0, 400, True, 0.5], [400, 1000, True, 1]]),
    ({"value": True, "min": False, "max": True, "mean": 0.5}, 999.6, [[0, 1000, True, 0.5]]),  # rounded times
    ({"value": False, "min": False, "max": True, "mean": 0.5}, None, [[0, 1000, True, 0.5]]),
    ({"value": False, "min": False, "max": False, "mean": 0.0}, 400, [[0, 1000, False, 1]]),
    ({"value": True, "min": True, "max": True, "mean": 1.0}, 400, [[0, 1000, True, 1]]),
    ({"value": "eco", "samples": 9}, 400, [[0, 1000, "eco", 1]]),
]
"""Rows of an interval, its step, and the expected periods: from, to, value, share."""


async def test_an_interval_with_both_states_has_their_share(page):
    calls = ", ".join(
        f"periods({json.dumps([{'time': 0, **row}])}, 1000, {json.dumps(step)})" for row, step, _ in INTERVALS
    )
    found = await page.evaluate(f"import('/model/states.js').then(({{ periods }}) => [{calls}])")
    shares = [[[each["from"], each["to"], each["value"], each["share"]] for each in one] for one in found]
    assert list(zip(INTERVALS, shares, strict=True)) == [(case, case[2]) for case in INTERVALS]


async def test_a_named_state_has_the_same_colour_everywhere(page):
    names = "['eco', 'heat', 'off', '', 'zu warm ☀']"
    code = (
        f"import('/model/states.js').then(({{ colourOf }}) => [{names}, {names}.reverse()].map(e => e.map(colourOf)))"
    )
    one, other = await page.evaluate(code)
    assert one == other[::-1]
    assert all(each.startswith("--") for each in one)


STATES = [
    ([], 10, []),
    ([[0, True]], 10, [[0, 10, True]]),
    ([[0, True], [4, True], [6, False]], 10, [[0, 6, True], [6, 10, False]]),
    ([[0, "a"], [4, None], [6, "a"]], 10, [[0, 4, "a"], [6, 10, "a"]]),
    ([[0, "a"], [12, "b"]], 10, [[0, 12, "a"], [12, 12, "b"]]),
    ([[0, None]], 10, []),
]
"""Rows with time and value, the end, and the expected periods: from, to, value."""


async def test_a_state_is_valid_until_the_next_row(page):
    rows = [[{"time": time, "value": value} for time, value in rows] for rows, _, _ in STATES]
    calls = ", ".join(f"periods({json.dumps(one)}, {end})" for one, (_, end, _) in zip(rows, STATES, strict=True))
    found = await page.evaluate(f"import('/model/states.js').then(({{ periods }}) => [{calls}])")
    periods = [[[each["from"], each["to"], each["value"]] for each in one] for one in found]
    assert list(zip(STATES, periods, strict=True)) == [(case, case[2]) for case in STATES]
