"""The page System in a real browser: examination, log, backup and settings."""

from __future__ import annotations

import json
import re
import string
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from house import LIVE, House, names, press

from edge.doctor.all_checks import CHECKS
from edge.doctor.texts import TEXTS
from edge.mapping.fault_reasons import REASONS, TYPES
from tests.sparkplug import tahu
from tests.sparkplug.edge_node import EdgeNode
from tests.support.browser import Browser
from tests.support.waiting import eventually

EXAMINATION = 120.0
"""Limit of the gateway for an examination (s). It runs at a low priority."""


async def open_page(page: Browser) -> None:
    await page.evaluate("location.hash = '#/system'")
    await page.wait_for("document.querySelector('#log li') !== null")


async def test_an_examination_lists_findings_with_their_remedies(house, page):
    endpoint = house.process.data_dir / "clients.sqlite3"
    endpoint.touch()
    endpoint.chmod(0o644)
    try:
        await open_page(page)
        await press(page, "#doctor button", "Examine")
        await page.wait_for("document.querySelectorAll('#doctor li').length > 10", EXAMINATION)
        assert f"process {house.process.pid}" in await page.evaluate(names("#doctor li"))
        assert "Remedy: " in await page.evaluate(names("#doctor li"))
        # Problems come first.
        states = (await page.evaluate(names("#doctor .mark"))).split("|")
        assert states == sorted(states, key=["problem", "warning", "not checked", "fine"].index)
        await speak(page, "de")
        await press(page, "#doctor button", "Untersuchen")
        await page.wait_for("document.querySelectorAll('#doctor li').length > 10", EXAMINATION)
        assert f"läuft (Prozess {house.process.pid})" in await page.evaluate(names("#doctor li"))
        checks = set((await page.evaluate(names("#doctor li b"))).split("|"))
        assert {"Uhr", "Platte", "Starts"} <= checks
        assert not checks & set(CHECKS)
        assert "Abhilfe: chmod go= " in await page.evaluate(names("#doctor li"))
        await press(page, "#doctor button", "Beheben, was gefahrlos geht")
        await page.wait_for(f"{names('#doctor li')}.includes('clients.sqlite3: nur für den Besitzer')")
        assert endpoint.stat().st_mode & 0o077 == 0
        assert await page.violations() == []
    finally:
        endpoint.unlink()


async def test_an_edge_node_shows_its_adapter_and_its_state(house, page):
    def fill(payload: Any) -> None:
        tahu.metric(payload, 180.25, name="Inputs/Temperature", unit="°C")
        tahu.metric(payload, b"\x01", tahu.BYTES, name="Camera")

    node = EdgeNode(int(house.endpoints["mqtt"].rpartition(":")[2]), "Plant", "Line 1", fill=fill)
    try:
        node.connect()
        node.births()
        await eventually(lambda: house.get("/health")["sparkplug"] == {"Plant/Line 1": "connected"})
        await open_page(page)
        await page.wait_for(f"{names('#sources dd')}.includes('born')")
        shown = await page.evaluate("document.querySelector('#sources p').textContent")
        assert "is the primary host sepa-edge:" in shown
        assert "receives the messages" in shown
        assert "1 metric is known" in shown
        assert "Plant/Line 1: Camera: its datatype is Bytes, of which" in await page.evaluate(names("main .problem"))
        await page.wait_for("document.querySelector('#sources a') !== null")
        await page.evaluate("document.querySelector('#sources a').click()")
        await page.wait_for("document.getElementById('about')?.textContent.startsWith('Sparkplug B: born')")
        node.lose_connection()
        await eventually(lambda: house.get("/health")["sparkplug"] == {"Plant/Line 1": "disconnected"})
        await open_page(page)
        await speak(page, "de")
        await page.wait_for(f"{names('#sources dd')}.includes('gestorben')")
        text = "Plant/Line 1: Camera: Der Datentyp ist Bytes, aus dem keine Beobachtung wird"
        await page.wait_for(f"{names('main .problem')}.includes('{text}')")
    finally:
        node.close()


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


async def speak(page: Browser, language: str) -> None:
    """Open the page *System* again, with another language of the browser."""
    await page.language(language)
    await page.command("Page.reload")
    await page.wait_for(f"document.documentElement?.lang === '{language}'")
    await page.wait_for("document.querySelector('#log li') !== null")


@pytest.mark.parametrize("language", ["de", "it"])
async def test_each_finding_of_the_doctor_has_its_texts_in_each_language(page, language):
    found = json.loads(
        await page.evaluate(f"import('/texts/findings/{language}.js').then((all) => JSON.stringify(all.FINDINGS))")
    )
    assert list(found) == list(TEXTS)
    for code, english in TEXTS.items():
        texts = [*found[code], *[""] * (len(english) - len(found[code]))]
        for text, original in zip(texts, english, strict=True):
            assert bool(text) is bool(original), code
            assert placeholders(text) == placeholders(original), code


@pytest.mark.parametrize("language", ["de", "it"])
async def test_each_reason_of_a_fault_has_its_text_in_each_language(page, language):
    found = json.loads(
        await page.evaluate(f"import('/texts/faults/{language}.js').then((all) => JSON.stringify(all.REASONS))")
    )
    assert set(found) == {*REASONS, *(f"type_{code}" for code in TYPES.values())}
    for code, english in REASONS.items():
        assert set(re.findall(r"\{(\w+)\}", found[code])) == set(re.findall(r"\{(\w+)\}", english)), code


async def test_faults_of_a_mapping_file_are_in_the_language_of_the_page(house, page):
    file = house.process.data_dir / "mappings" / "faulty.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        '[[mapping]]\nname = "box"\ntopik = "box/1"\nobservation = "urn:o"\nunit = "Celcius"\npath = "a["\nmin = "x"\n'
        + "".join(f'[[mapping]]\ntopic = "box/{each}"\nobservation = "urn:o"\nmin = "y"\n' for each in range(20))
    )
    try:
        await page.language("de")
        await page.evaluate("location.hash = '#/mapping/faulty'")
        await page.command("Page.reload")
        shown = "document.getElementById('preview')?.textContent ?? ''"
        await page.wait_for(f"({shown}).includes('Meinten Sie \"topic\"? Erlaubt: ')")
        text = await page.evaluate(shown)
        assert 'Zeile 3, Zuordnung "box", topik: Der Schlüssel ist unbekannt.' in text
        assert 'unit: Das ist nicht verwendbar. "Celcius" ist keine Einheit.' in text
        assert "min: Der Wert ist nicht gültig. Der Wert muss eine Zahl sein." in text
        english = await page.evaluate(names("#preview .problem [lang=en]"))
        assert "a symbol or a unit code" in english
        assert "Celcius" not in english
        await eventually(lambda: house.get("/health")["mapping_faults"])
        for address, file_name in (("system", "faulty.toml: "), ("new", "")):  # there, its link is above
            await page.evaluate(f"location.hash = '#/{address}'")
            listed = "[...document.querySelectorAll('main .problem')].map((each) => each.textContent).join('|')"
            await page.wait_for(f"({listed}).includes('topik')")
            text = f"|{await page.evaluate(listed)}"
            assert f'|{file_name}Zeile 3, Zuordnung "box", topik: Der Schlüssel ist unbekannt.' in text
            assert "min: Der Wert ist nicht gültig. Der Wert muss eine Zahl sein." in text
            assert "key is unknown" not in text
            assert ("|faulty.toml: 4 weitere Fehler" in text) == (address == "system")
    finally:
        file.unlink()


async def test_the_log_is_filtered_by_text_and_level(page):
    await open_page(page)
    search = "document.querySelector('#log input')"
    await page.evaluate(f"{search}.value = 'gateway.READY'; {search}.dispatchEvent(new Event('input'))")
    await page.wait_for(f"{names('#log li b')} === 'gateway.ready'")
    level = "document.querySelector('#log select')"
    await page.evaluate(f"{level}.value = 'error'; {level}.dispatchEvent(new Event('change'))")
    await page.wait_for(f"{names('#log p')}.includes('No line matches.')")


async def test_a_backup_is_downloaded(page, tmp_path):
    await page.command(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), browserContextId=page.context
    )
    await open_page(page)
    await press(page, "#backup button", "Download a backup")

    def downloaded() -> list[Path]:
        return list(tmp_path.glob("sepa-edge-*.tar.gz"))

    await eventually(lambda: bool(downloaded()))
    with tarfile.open(fileobj=BytesIO(downloaded()[0].read_bytes())) as archive:
        assert any(name.endswith("edge.sqlite3") for name in archive.getnames())


async def test_observations_are_shipped_now(house, page):
    text = (
        "PREFIX sosa: <http://www.w3.org/ns/sosa/> INSERT DATA { <urn:o> a sosa:Observation ; sosa:hasSimpleResult 1 }"
    )
    house.update(text, "/history")
    await open_page(page)
    await page.wait_for(f"{names('#shipping dd')}.startsWith('ships|')")
    await press(page, "#shipping button", "Ship now")
    await page.wait_for(f"{names('#shipping [role=status]')}.includes('shipped.')")
    assert await page.evaluate(names("#shipping .problem")) == "||"


async def test_settings_that_differ_are_shown_first(page):
    await open_page(page)
    await page.evaluate("document.querySelector('#settings summary').click()")
    await page.wait_for("document.querySelector('#settings pre')?.textContent.includes('EDGE__HTTP__PORT')")
    assert "query_timeout" not in await page.evaluate(names("#settings pre"))
    await page.evaluate("document.querySelector('#settings input').click()")
    await page.wait_for("document.querySelector('#settings pre').textContent.includes('query_timeout')")


async def test_a_backup_is_restored(browser, tmp_path):
    # Another variable than a setting: a fork of this process would repeat the command of the tests.
    house = House(tmp_path / "data", PYTHONUNBUFFERED="1")
    try:
        house.update("INSERT DATA { <urn:kept> a <http://www.w3.org/ns/sosa/Observation> }")
        file = tmp_path / "backup.tar.gz"
        file.write_bytes(backup_of(house))
        house.update("DELETE WHERE { <urn:kept> ?p ?o }")
        await browser.open(f"{house.url}/#/system")
        await browser.wait_for("document.querySelector('#backup summary') !== null")
        await browser.evaluate("globalThis.confirm = () => true; document.querySelector('#backup summary').click()")
        await browser.wait_for("document.querySelector('#backup input') !== null")
        document = await browser.command("DOM.getDocument")
        node = await browser.command("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="#backup input")
        await browser.command("DOM.setFileInputFiles", nodeId=node["nodeId"], files=[str(file)])
        button = "document.querySelector('#backup button.danger')"
        await browser.evaluate(f"{button}.focus()")
        await press(browser, "#backup button", "Restore and restart")
        await browser.wait_for(f"{names('#backup [role=status]')}.startsWith('The gateway runs with the state of')", 60)
        assert house.ask("<urn:kept> ?p ?o")
        await browser.wait_for(LIVE)
        assert await browser.evaluate("document.querySelector('#backup input').files.length") == 0
        assert await browser.evaluate(f"document.activeElement === {button}")
    finally:
        house.process.stop()


def backup_of(house: House) -> bytes:
    return httpx.get(f"{house.url}/api/backup", timeout=60).content


async def test_an_update_of_the_system_is_sent_and_started(browser, tmp_path):
    system = tmp_path / "rauc"
    (system / "incoming").mkdir(parents=True)
    request = system / "incoming/request"
    house = House(tmp_path / "data", EDGE__APPLIANCE__UPDATE_DIRECTORY=str(system))
    status = f"{names('#update [role=status]')}"
    try:
        file = tmp_path / "sepa-edge_2.0_amd64.raucb"
        file.write_bytes(b"a signed system")
        await browser.open(f"{house.url}/#/system")
        await browser.wait_for("document.querySelector('#update input') !== null")
        await browser.evaluate("globalThis.confirm = () => true")
        document = await browser.command("DOM.getDocument")
        node = await browser.command("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="#update input")
        await browser.command("DOM.setFileInputFiles", nodeId=node["nodeId"], files=[str(file)])
        await press(browser, "#update button", "Send and install")
        await browser.wait_for(f"{status}.startsWith('The update waits')")
        assert (system / "incoming/update.raucb").read_bytes() == b"a signed system"
        # The test is the system now.
        (system / "state").write_text(json.dumps({"state": "installing", "percent": 40, "message": "<b>Copying</b>"}))
        request.unlink()
        await browser.wait_for(f"{status} === 'Installing: 40 %. <b>Copying</b>'")
        assert await browser.evaluate("document.querySelector('#update form button').disabled")
        assert await browser.violations() == []
        (system / "state").write_text(json.dumps({"state": "failed", "message": "signature verification failed"}))
        await browser.wait_for(f"{status} === 'The update was not installed: signature verification failed'")
        (system / "state").write_text(json.dumps({"state": "installed", "version": "2.0"}))
        await browser.wait_for(f"{status}.startsWith('2.0 is installed.')")
        await press(browser, "#update button", "Restart into the update")
        await browser.wait_for(f"{names('#update button')}.includes('The box restarts…')")
        await eventually(lambda: request.exists() and request.read_text() == "restart")
    finally:
        house.process.stop()


async def test_the_rates_of_the_engine_are_a_table_and_stay_while_the_application_is_open(page):
    await page.evaluate("location.hash = '#/engine'")
    await page.wait_for("document.querySelector('.chart canvas') !== null")
    await press(page, "summary", "Values as a table")
    columns = names(".panel:has(.chart) thead th")
    await page.wait_for(f"{columns} === 'Time|Updates a second|Notifications a second|Waiting updates'")
    assert await page.evaluate("document.querySelectorAll('.panel:has(.chart) tbody tr').length") >= 1
    assert await page.violations() == []
    await page.evaluate("location.hash = '#/'")
    await page.wait_for("document.getElementById('search') !== null")
    await page.evaluate("location.hash = '#/engine'")
    # With the first answer: without the earlier ones there would be no chart yet.
    await page.wait_for("document.querySelector('.figures') !== null")
    assert await page.evaluate("document.querySelector('.chart') !== null")


async def test_the_state_of_the_gateway_is_in_the_language_of_the_browser(house, browser):
    await browser.language("de")
    await browser.open(f"{house.url}/#/system")
    await browser.wait_for(f"{LIVE} && document.querySelector('main dl') !== null")
    facts = names("main dl:first-of-type dd")
    await browser.wait_for(f"{facts}.includes('überträgt')")
    assert "in diesem Datenverzeichnis lief noch nichts" in await browser.evaluate(facts)


@pytest.mark.parametrize(("language", "text"), [("de", "Nicht gefunden: "), ("it", "Non trovato: "), ("en", "")])
async def test_errors_of_the_gateway_are_in_the_language_of_the_browser(house, browser, language, text):
    await browser.language(language)
    await browser.open(f"{house.url}/#/mapping/nowhere")
    expected = f'{text}The gateway has no mapping file "nowhere"; /api/mappings lists them'
    await browser.wait_for(f"{names('#problem .problem:not(:empty)')} === {expected!r}")
