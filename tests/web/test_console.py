"""The console in a real browser: queries, updates, live subscriptions, completion, errors at their place."""

from __future__ import annotations

import json

from house import KITCHEN, LIVE, UNREACHABLE, House, names, press
from locked import LOCKED, SHOWN, enter, member

from tests.support.browser import Browser

SHADOW = "document.querySelector('.editor')?.shadowRoot"
CONTENT = f"{SHADOW}?.querySelector('.cm-content')"
COMPLETIONS = f"[...{SHADOW}.querySelectorAll('.cm-completionLabel')].map(each => each.textContent)"
SOSA = "PREFIX sosa: <http://www.w3.org/ns/sosa/>"
ROWS = "document.querySelectorAll('tbody tr').length"


async def open_console(page: Browser, tab: str = "query") -> None:
    await page.evaluate("location.hash = '#/console'")
    await page.wait_for(f"{CONTENT} != null")
    await page.evaluate(f"document.getElementById('tab-{tab}').click()")
    await page.wait_for(f"document.getElementById('tab-{tab}').ariaSelected === 'true' && {CONTENT} != null")


async def type_text(page: Browser, text: str) -> None:
    """Replace the text of the editor, as a user does."""
    await page.evaluate(f"{CONTENT}.focus()")
    await key(page, "a", ctrl=True)
    await page.command("Input.insertText", text=text)
    await page.wait_for(f"{CONTENT}.textContent.length >= {len(text.replace(chr(10), ''))}")


async def key(page: Browser, name: str, *, ctrl: bool = False) -> None:
    code = {"Enter": 13, "a": 65, " ": 32, "ArrowRight": 39}[name]
    pressed = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 2 if ctrl else 0}
    for kind in ("rawKeyDown", "keyUp"):
        await page.command("Input.dispatchKeyEvent", type=kind, **pressed)


async def test_a_query_is_answered_as_table_chart_and_json(page):
    await open_console(page)
    await type_text(page, "SELECT ?x ?y { VALUES (?x ?y) { (1 2.5) (2 3.5) (3 1) } } ORDER BY ?x")
    await key(page, "Enter", ctrl=True)
    await page.wait_for(f"{ROWS} === 3")
    assert await page.evaluate(names("th")) == "x|y"
    assert (await page.evaluate("document.getElementById('announcer').textContent")).startswith("3 rows")
    await press(page, ".bar button", "Chart")
    await page.wait_for("document.querySelector('.chart canvas') !== null")
    assert await page.evaluate(names(".legend span")) == "x|y"
    await press(page, ".bar button", "JSON")
    await page.wait_for("document.getElementById('text')?.textContent.includes('bindings')")


async def test_other_forms_of_queries_are_answered(page):
    await open_console(page)
    await type_text(page, "ASK { }")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.querySelector('main').innerText.includes('true · ')")
    await type_text(page, f"CONSTRUCT {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o FILTER(?s = <{KITCHEN}/temperature>) }}")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.getElementById('text')?.textContent.includes('hasResult')")


async def test_terms_lead_to_the_pages_of_their_values(page):
    await open_console(page)
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for(f"{ROWS} > 5")
    await press(page, "tbody a", f"<{KITCHEN}/temperature>")
    await page.wait_for("document.getElementById('chosen')?.textContent.includes('emperature')")


async def test_an_error_is_marked_at_its_place(page):
    await open_console(page)
    await type_text(page, "SELECT * WHERE {\n  ?person foaf:name ?name\n}")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.getElementById('problem').textContent.includes('PREFIX foaf:')")
    fault = "document.querySelector('.editor').shadowRoot.querySelector('.fault')"
    assert await page.evaluate(f"{fault}.textContent") == "foaf:name"
    await page.evaluate("document.getElementById('explain').click()")
    await page.wait_for("document.getElementById('problem').textContent.includes('foaf')")
    page.expect("status of 400")  # the browser reports them, too


async def test_an_update_tells_what_it_changed(house, page):
    await open_console(page, "update")
    await type_text(page, "INSERT DATA { <urn:console> <urn:p> 1 , 2 }")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.getElementById('done')?.textContent.startsWith('2 added, 0 removed')")
    assert house.ask("<urn:console> <urn:p> 1")
    house.update("DELETE WHERE { <urn:console> ?p ?o }")


async def test_a_subscription_shows_added_and_removed_rows(house, page):
    house.update("INSERT DATA { <urn:lamp> <urn:state> 'on' }")
    await open_console(page, "subscribe")
    await type_text(page, "SELECT ?state { <urn:lamp> <urn:state> ?state }")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for(
        f"document.getElementById('live-state')?.textContent === 'Live' && {names('tbody td')} === 'on'"
    )
    house.update("DELETE DATA { <urn:lamp> <urn:state> 'on' } ; INSERT DATA { <urn:lamp> <urn:state> 'off' }")
    await page.wait_for(f"{names('tbody td')} === 'off'")
    assert "state on" in await page.evaluate(names(".removed"))
    assert "state off" in await page.evaluate(names(".added"))
    await page.evaluate("document.getElementById('end').click()")
    await page.wait_for("document.getElementById('live-state').textContent === 'Unsubscribed'")
    house.update("DELETE WHERE { <urn:lamp> ?p ?o }")


async def test_a_subscription_that_the_gateway_refuses_disturbs_nothing_else(page):
    await open_console(page, "subscribe")
    await type_text(page, "SELECT ?x { ?x ?y }")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.getElementById('live-state')?.textContent === 'Ended by the gateway'")
    assert await page.evaluate(
        "document.querySelector('[role=alert].problem:not(:empty)').textContent.includes('line 1')"
    )
    assert await page.evaluate(LIVE)


async def test_a_refused_subscription_has_its_kind_in_the_language_of_the_browser(house: House, browser):
    await browser.language("it")
    await browser.open(f"{house.url}/")
    await browser.wait_for(LIVE)
    await open_console(browser, "subscribe")
    await type_text(browser, "SELECT ?x { ?x ?y }")
    await browser.evaluate("document.getElementById('run').click()")
    shown = "document.querySelector('[role=alert].problem:not(:empty)')?.textContent"
    await browser.wait_for(f"{shown}?.startsWith('Il testo ha un errore di sintassi: ')")


async def test_a_subscription_continues_after_a_crash_of_the_gateway(house, page):
    await open_console(page, "subscribe")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for(f"document.getElementById('live-state')?.textContent === 'Live' && {ROWS} > 5")
    house.process.kill()
    await page.wait_for("document.getElementById('live-state').textContent === 'Connection lost'")
    house.process.start()
    await page.wait_for(f"document.getElementById('live-state').textContent === 'Live' && {ROWS} > 5")
    house.furnish()  # the last seconds of the recent values are lost, and the other tests expect some
    page.expect(*UNREACHABLE)


async def test_the_cost_of_a_subscription_is_explained(page):
    await open_console(page)
    await page.evaluate("document.getElementById('explain').click()")
    await page.wait_for("document.querySelector('#explanation .tree')?.textContent.includes('hasResult')")
    assert "incremental" in await page.evaluate("document.getElementById('explanation').textContent")
    assert await page.violations() == []


COMPLETED = [
    ("SELECT ?o { ?o sosa:hasRes", "sosa:hasResult", f"{SOSA}SELECT ?o {{ ?o sosa:hasResult"),
    ("SELECT ?o { ?o a sosa:Observat", "sosa:Observation", f"{SOSA}SELECT ?o {{ ?o a sosa:Observation"),
    ("PREFIX tim", "time:", "PREFIX time: <http://www.w3.org/2006/time#>"),
    ("SELEC", "SELECT", "SELECT "),
    ("SELECT ?observation { ?obs", "?observation", "SELECT ?observation { ?observation"),
]
"""A typed text, the completion that is offered first, and the beginning of the text with it."""


async def test_terms_of_the_graph_and_prefixes_are_completed(page):
    await open_console(page)
    for typed, offered, result in COMPLETED:
        await type_text(page, typed)
        await key(page, " ", ctrl=True)
        await page.wait_for(f"{COMPLETIONS}.includes({offered!r})")
        await page.wait_for(f"{COMPLETIONS}[0] === {offered!r}")
        # The editor ignores keys for a moment after it has opened the list, but not the mouse.
        await page.evaluate(
            f"{SHADOW}.querySelector('li').dispatchEvent(new MouseEvent('mousedown', {{bubbles: true}}))"
        )
        await page.wait_for(f"{CONTENT}.textContent.startsWith({result!r})")


async def test_the_tabs_are_reached_by_keyboard(page):
    await open_console(page)
    await page.evaluate("document.getElementById('tab-query').focus()")
    await key(page, "ArrowRight")
    await page.wait_for("document.activeElement.id === 'tab-update'")
    assert await page.evaluate(f"{CONTENT}.textContent.startsWith('INSERT DATA')")


async def test_the_browser_keeps_the_text(page):
    await open_console(page)
    await type_text(page, "ASK { <urn:kept> ?p ?o }")
    await page.command("Page.reload")
    await page.wait_for(f"{CONTENT} != null")
    assert await page.evaluate(f"{CONTENT}.textContent") == "ASK { <urn:kept> ?p ?o }"


async def test_hostile_terms_are_shown_as_text(house: House, page):
    text = json.dumps("<img src=x onerror=alert(1)>\u202e" + "x" * 100_000)
    await open_console(page)
    await type_text(page, "SELECT * { VALUES ?x { " + text[:2000] + '" } }')
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for(f"{ROWS} === 1")
    assert await page.evaluate("document.querySelectorAll('main img').length") == 0
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_query_is_published_over_mqtt_and_ended(house, page):
    await open_console(page, "subscribe")
    await page.evaluate(
        "[...document.querySelectorAll('summary')].find(e => e.textContent === 'Publish over MQTT').click()"
    )
    await page.wait_for("document.getElementById('publication') !== null")
    await page.evaluate("document.querySelector('#publication input').value = 'values'")
    await press(page, "#publication button", "Publish this query")
    await page.wait_for(f"{names('#publication li code')} === 'sepa/gateway/query/values'")
    assert house.get("/api/queries")[0]["name"] == "values"
    assert "numericValue" in (house.process.data_dir / "queries" / "values.rq").read_text()
    assert await page.violations() == []
    await page.evaluate("globalThis.confirm = () => true")
    await press(page, "#publication button", "End")
    await page.wait_for("document.querySelector('#publication li') === null")
    assert house.get("/api/queries") == []


async def test_a_published_query_is_replaced_or_ended_only_as_the_user_knows_it(house, page):
    kept = "SELECT ?kept { ?kept ?p ?o }"
    house.put("/api/queries/shared", kept, "application/sparql-query")
    await open_console(page, "subscribe")
    await page.evaluate(
        "[...document.querySelectorAll('summary')].find(e => e.textContent === 'Publish over MQTT').click()"
    )
    await page.wait_for(f"{names('#publication li b')} === 'shared'")
    await type_text(page, "SELECT ?mine { ?mine ?p ?o }")
    await page.evaluate("document.querySelector('#publication input').value = 'shared'")
    await press(page, "#publication button", "Publish this query")
    await page.wait_for(f"{names('#conflict h2')} === 'shared exists already'")
    assert house.read("/api/queries/shared") == kept
    await page.evaluate("document.getElementById('take').click()")
    await page.wait_for(f"{CONTENT}.textContent === {kept!r}")
    house.put("/api/queries/shared", kept.replace("kept", "newer"), "application/sparql-query")
    await page.evaluate("globalThis.confirm = () => true")
    await press(page, "#publication button", "End")
    await page.wait_for(f"{names('#conflict h2')} === 'Another client has changed shared'")
    assert await page.evaluate(names("#replace")) == "Delete it anyway"
    await press(page, "#publication button", "Show")  # now the user knows it
    await page.wait_for(f"{CONTENT}.textContent.includes('newer')")
    await type_text(page, kept.replace("kept", "more"))
    await press(page, "#publication button", "Publish this query")
    await page.wait_for(f"{names('#publication [role=status]')}.startsWith('shared is published')")
    assert "?more" in house.read("/api/queries/shared")
    house.delete("/api/queries/shared")
    page.expect("status of 412")


PROFILE = """
namespaces: {ex: "http://example.org/"}
updates:
  SWITCH:
    sparql: INSERT DATA { ?lamp ex:level ?level }
    forcedBindings:
      lamp: {type: uri, value: ex:hall}
      level: {type: literal, datatype: xsd:integer}
"""


async def test_a_query_ends_when_the_page_is_locked(gateway, locked_page):
    """Its rows are not for the next user, who can ask at once."""
    page = locked_page
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe", "query"))
    await page.wait_for(f"{LIVE} && {SHOWN}")
    await open_console(page)
    numbers = " ".join(map(str, range(200)))
    joins = " ".join(f"VALUES ?{name} {{ {numbers} }}" for name in "abcd")
    await type_text(page, f"SELECT (COUNT(*) AS ?n) {{ {joins} }}")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.getElementById('stop') !== null")
    await page.evaluate("document.getElementById('leave').click()")
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "another", "subscribe", "query"))
    await page.wait_for(f"{LIVE} && {CONTENT} != null")
    assert await page.evaluate("document.getElementById('stop')") is None
    await type_text(page, "ASK { }")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.querySelector('main').innerText.includes('true · ')")


async def test_the_entries_of_a_profile_become_forms(house, page, tmp_path):
    file = tmp_path / "lamps.yaml"
    file.write_text(PROFILE)
    await open_console(page, "update")
    await page.evaluate(
        "[...document.querySelectorAll('summary')].find(e => e.textContent === 'From a profile (JSAP)').click()"
    )
    await page.wait_for("document.querySelector('#profile input') !== null")
    document = await page.command("DOM.getDocument")
    node = await page.command("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="#profile input")
    await page.command("DOM.setFileInputFiles", nodeId=node["nodeId"], files=[str(file)])
    await page.wait_for("document.getElementById('value-level') !== null")
    assert await page.evaluate(names("#profile label small")) == "IRI|integer"
    assert await page.evaluate("document.getElementById('value-lamp').placeholder") == "http://example.org/hall"
    assert await page.violations() == []
    await page.evaluate("document.getElementById('value-level').value = '7'")
    await press(page, "#profile button", "Put into the editor")
    await page.wait_for(f"{CONTENT}.textContent.includes('http://example.org/hall')")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.getElementById('done') !== null")
    assert house.ask("<http://example.org/hall> <http://example.org/level> 7")
    house.update("DELETE WHERE { <http://example.org/hall> ?p ?o }")
