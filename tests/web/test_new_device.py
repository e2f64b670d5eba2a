"""From an unmapped topic to a device, and mapping files in the editor, in a real browser."""

from __future__ import annotations

import json

import pytest
from house import HOLD, SIZES, House, meanwhile, names, press
from test_console import CONTENT, SHADOW, type_text

from tests.support.browser import Browser
from tests.support.waiting import eventually

PREVIEW = "[...document.querySelectorAll('#preview li b')].map(each => each.textContent).sort().join('|')"
BOX = {"temperature": 21.5, "door": {"open": True}, "firmware": "v1", "odd name": [3]}


async def enter(page: Browser, field: str, text: str) -> None:
    await page.evaluate(
        f"{{ const field = document.getElementById({field!r}); field.value = {text!r};"
        " field.dispatchEvent(new Event('input', {bubbles: true})); }"
    )


async def open_page(page: Browser, address: str, shown: str) -> None:
    await page.evaluate(f"location.hash = {address!r}")
    await page.wait_for(shown)


async def test_an_unknown_device_is_mapped_without_writing_code(house: House, page):
    house.publish([("shed/box", BOX)])
    await open_page(page, "#/new", "document.getElementById('topics')?.textContent.includes('shed/box')")
    await page.evaluate("document.querySelector('#topics a[href*=box]').click()")
    await page.wait_for(f"{PREVIEW} === 'Door open|Odd name 0|Temperature'")
    await enter(page, "device", 'Wäsche "box"')
    await enter(page, "place", "Shed 2")
    await page.evaluate("document.querySelectorAll('#values input[type=checkbox]')[3].click()")
    await page.wait_for(f"{PREVIEW} === 'Door open|Temperature'")
    assert "21.5" in await page.evaluate(names("#preview .value"))
    await page.wait_for("document.getElementById('file').value === 'wa-sche-box'")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('saved') !== null")
    house.publish([("shed/box", {**BOX, "temperature": 22.5})])
    await press(page, "#saved a", "Open the device")
    await page.wait_for("document.querySelector('h1')?.textContent === 'Wäsche \"box\"'")
    await page.wait_for(f"{names('.observation .value')} === 'Yes|22.5'")
    assert await page.evaluate(names(".path span")) == "Shed 2"
    assert house.ask("?o <http://www.w3.org/ns/sosa/observedProperty> <urn:sepa-edge:property:temperature>")


async def test_a_file_that_changes_during_the_question_is_not_replaced(house: House, page):
    text = '[[mapping]]\ntopic = "shed/bulb"\nobservation = "edge:bulb"\n'
    house.put("/api/mappings/bulb", text)
    house.publish([("yard/bulb", "ON")])
    await open_page(page, "#/new/yard%2Fbulb", f"{PREVIEW} === 'bulb'")
    newer = f'{text}label = "Theirs"\n'
    await page.evaluate(meanwhile("/api/mappings/bulb", newer))
    page.expect("status of 412")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for(f"{names('form.new .problem')}.includes('nothing was changed')")
    assert house.read("/api/mappings/bulb") == newer
    await page.evaluate("globalThis.confirm = () => true; document.getElementById('save').click()")
    await page.wait_for("document.getElementById('saved') !== null")
    assert "yard/bulb" in house.read("/api/mappings/bulb")
    house.delete("/api/mappings/bulb")


async def test_a_plain_value_is_mapped(house: House, page):
    house.publish([("shed/lamp", "ON")])
    await open_page(page, "#/new/shed%2Flamp", f"{PREVIEW} === 'lamp'")
    assert await page.evaluate(names("#preview .value")) == "Yes"
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('saved') !== null")
    house.publish([("shed/lamp", "OFF")])
    await eventually(lambda: house.shows("urn:sepa-edge:device:lamp/value", "false"))


async def test_the_preview_has_the_words_of_the_page(house: House, page):
    house.publish([("shed/gate", {"open": True})])
    await open_page(page, "#/new/shed%2Fgate", f"{PREVIEW} === 'Open'")
    assert await page.evaluate(names("#preview .value")) == "Open"


ODD = [
    ("shed/list", [{"n": "t", "u": "Cel", "v": 5}], "t"),
    ("shed/{brace}", {'va"l': 1, "x'y": {"z": 2}}, "Va\"l|X'y z"),
    ("shed/\u202e", {"<b>": 1}, "<b>"),
]
"""Topic and payload of a message, and the labels in its preview."""


async def test_odd_messages_are_mapped(house: House, page):
    for topic, payload, shown in ODD:
        house.publish([(topic, payload)])
        await page.evaluate(f"location.hash = '#/new/' + encodeURIComponent({topic!r})")
        await page.wait_for(f"{PREVIEW} === {shown!r}")
        assert await page.evaluate("document.querySelectorAll('main b b').length") == 0, topic
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), topic


async def test_a_mapping_file_is_edited_and_its_previous_version_restored(house: House, page):
    await open_page(page, "#/mapping/", NEW_FILE)
    await enter(page, "file", "edited")
    good = '[[mapping]]\ntopic = "shed/edited"\nobservation = "edge:edited"\nlabel = "First"\n'
    await type_text(page, good.replace("mapping", "mappings"))
    await page.wait_for(f"{SHADOW}.querySelector('.fault')?.textContent.includes('mappings')")
    assert "Did you mean" in await page.evaluate("document.getElementById('preview').textContent")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('problem').textContent.includes('mappings')")
    page.expect("status of 400")  # the refused file
    await type_text(page, good)
    await enter(page, "topic", "shed/edited")
    await page.wait_for(f"{PREVIEW} === 'First'")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('delete') !== null")  # the page of the new file
    await page.wait_for(f"{CONTENT}?.textContent.includes('First')")
    await type_text(page, good.replace("First", "Second"))
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('revert') !== null")
    await page.evaluate("document.getElementById('revert').click()")
    await page.wait_for(
        f"{CONTENT}.textContent.includes('First') && document.getElementById('save').disabled"
    )  # stored
    assert house.get("/api/mappings")[-1]["name"] is not None
    await page.evaluate("globalThis.confirm = () => true; document.getElementById('delete').click()")
    await page.wait_for("location.hash === '#/new'")
    await page.wait_for("document.getElementById('files')?.textContent.includes('edited') === false")


ASKED = "globalThis.asked = []; globalThis.confirm = question => { asked.push(question); return globalThis.answer; };"


async def test_what_is_written_while_a_file_is_being_saved_stays(house: House, page):
    text = '[[mapping]]\ntopic = "shed/slow"\nobservation = "edge:slow"\nlabel = "One"\n'
    await open_page(page, "#/mapping/", NEW_FILE)
    await page.evaluate(HOLD)
    await enter(page, "file", "slow")
    await type_text(page, text)
    for written in ("Two two", "Three three"):
        await page.evaluate("document.getElementById('save').click()")
        await page.wait_for("globalThis.goOn !== undefined")
        await page.wait_for("document.getElementById('save').ariaDisabled === 'true'")
        await page.evaluate(f"{{ {ASKED} document.getElementById('delete')?.click(); }}")
        assert await page.evaluate("asked.length") == 0
        await type_text(page, text.replace("One", written))
        await page.evaluate("{ globalThis.goOn(); delete globalThis.goOn; }")
        await page.wait_for("document.getElementById('delete') !== null")
        await page.wait_for("document.getElementById('save').disabled === false")
        assert written in await page.evaluate(f"{CONTENT}.textContent")
    await page.wait_for("document.getElementById('revert') !== null")  # the second text is stored
    stored = (await page.evaluate("fetch('/api/mappings/slow').then(answer => answer.text())")) or ""
    assert "Two two" in stored
    await page.evaluate("globalThis.confirm = () => true; document.getElementById('delete').click()")
    await page.wait_for("location.hash === '#/new'")


async def leave(page: Browser, how: str, answer: bool, title: str) -> None:
    """Go to another page, answer the question, and wait for the page that is shown then."""
    await page.evaluate(f"{ASKED} globalThis.answer = {json.dumps(answer)}; {how}")
    await page.wait_for(f"asked.length === 1 && document.querySelector('h1')?.textContent === {title!r}")


@pytest.mark.parametrize("how", ["location.hash = '#/system'", "history.back()"])
async def test_changes_that_are_not_saved_are_lost_only_after_a_question(house: House, page, how):
    await open_page(page, "#/automation", "document.getElementById('over') !== null")
    await open_page(page, "#/mapping/", NEW_FILE)
    await page.evaluate(f"{ASKED} location.hash = '#/automation'")  # nothing was changed
    await page.wait_for("document.getElementById('over') !== null && asked.length === 0")
    await page.evaluate("history.back()")
    await page.wait_for(f"document.querySelector('h1')?.textContent === 'New mapping file' && {CONTENT} != null")
    await type_text(page, "# mine")
    leaves = "{ const event = new Event('beforeunload', {cancelable: true}); !dispatchEvent(event); }"
    await page.wait_for(leaves)
    await leave(page, how, False, "New mapping file")
    await page.wait_for("location.hash === '#/mapping/'")
    assert "# mine" in await page.evaluate(f"{CONTENT}.textContent")
    await leave(page, how, True, "System" if "system" in how else "Automation")
    assert not await page.evaluate(leaves)


async def test_a_page_is_left_while_it_is_rendered(house: House, page):
    house.put("/api/mappings/late", '[[mapping]]\ntopic = "shed/late"\nobservation = "edge:late"\n')
    await open_page(page, "#/mapping/", NEW_FILE)  # its module is loaded
    await page.evaluate(
        "new MutationObserver((changes, observer) => {"
        " if (document.querySelector('h1')?.textContent !== 'late.toml') return;"
        " observer.disconnect(); history.pushState(null, '', '#/mapping/');"  # the event of a busy browser comes late
        "}).observe(document.getElementById('page'), {childList: true, subtree: true});"
        "location.hash = '#/mapping/late'"
    )
    await page.wait_for(f"location.hash === '#/mapping/' && {CONTENT} != null")
    await page.evaluate("dispatchEvent(new Event('hashchange'))")
    await page.wait_for(NEW_FILE)
    house.delete("/api/mappings/late")


async def test_the_forms_of_devices_and_rules_ask_before_changes_are_lost(house: House, page):
    house.publish([("shed/form", {"temperature": 1})])
    await open_page(page, "#/new/shed%2Fform", f"{PREVIEW} === 'Temperature'")
    await enter(page, "device", "Mine")
    await page.wait_for("document.getElementById('file').value === 'mine'")
    await leave(page, "location.hash = '#/system'", False, "shed/form")
    assert await page.evaluate("document.getElementById('device').value") == "Mine"
    await leave(page, "location.hash = '#/rule/'", True, "New rule")
    await page.wait_for("document.getElementById('label') !== null")
    await enter(page, "label", "Mine")
    await page.wait_for("document.getElementById('file').value === 'mine'")
    await leave(page, "location.hash = '#/system'", False, "New rule")
    await leave(page, "location.hash = '#/system'", True, "System")


NEW_FILE = f"{CONTENT} != null && document.getElementById('file') != null"
"""The page of a new file, which the page of an existing one does not fulfil."""
CONFLICT = names("#conflict h2")


@pytest.mark.parametrize("deleted", [False, True])
async def test_what_another_client_saved_is_replaced_only_on_request(house: House, page, deleted):
    text = '[[mapping]]\ntopic = "shed/both"\nobservation = "edge:both"\nlabel = "One"\n'
    house.put("/api/mappings/both", text)
    await open_page(page, "#/mapping/both", f"{CONTENT}?.textContent.includes('One')")
    if deleted:
        house.delete("/api/mappings/both")
        page.expect("status of 404")
    else:
        house.put("/api/mappings/both", text.replace("One", "Theirs"))
    page.expect("status of 412")
    await type_text(page, text.replace("One", "Mine"))
    await page.evaluate("document.getElementById('save').click()")
    changed = "deleted" if deleted else "changed"
    await page.wait_for(f"{CONFLICT} === 'Another client has {changed} both.toml'")
    assert await page.evaluate("document.activeElement.textContent") == f"Another client has {changed} both.toml"
    if not deleted:
        assert "Theirs" in house.read("/api/mappings/both")
        assert await page.evaluate(names("#conflict mark")) == 'label = "Theirs"|label = "Mine"'
        assert await page.violations() == []
        for width, height in reversed(SIZES):
            await page.size(width, height)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await page.evaluate("document.getElementById('replace').click()")
    await page.wait_for("document.getElementById('save').disabled && document.getElementById('conflict') === null")
    assert "Mine" in house.read("/api/mappings/both")
    await type_text(page, text.replace("One", "More"))  # the page has the entity tag of the saved text
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('save').disabled && document.getElementById('conflict') === null")
    assert "More" in house.read("/api/mappings/both")
    house.delete("/api/mappings/both")


async def test_the_text_of_another_client_is_taken_over(house: House, page):
    text = '[[mapping]]\ntopic = "shed/theirs"\nobservation = "edge:theirs"\nlabel = "One"\n'
    house.put("/api/mappings/theirs", text)
    await open_page(page, "#/mapping/theirs", f"{CONTENT}?.textContent.includes('One')")
    house.put("/api/mappings/theirs", text.replace("One", "Theirs"))
    page.expect("status of 412")
    await page.evaluate("globalThis.confirm = () => true; document.getElementById('delete').click()")
    await page.wait_for(f"{CONFLICT} === 'Another client has changed theirs.toml'")
    assert await page.evaluate(names("#conflict button")) == "Delete it anyway|Use the other text"
    await page.evaluate("document.getElementById('take').click()")
    await page.wait_for(f"{CONTENT}.textContent.includes('Theirs') && document.getElementById('conflict') === null")
    assert await page.evaluate(f"{SHADOW}.activeElement === {CONTENT}")
    assert "other client" in await page.evaluate("document.getElementById('announcer').textContent")
    await page.evaluate("document.getElementById('delete').click()")
    await page.wait_for("location.hash === '#/new'")
    assert all(each["name"] != "theirs" for each in house.get("/api/mappings"))


async def test_a_file_is_deleted_as_another_client_changed_it(house: House, page):
    text = '[[mapping]]\ntopic = "shed/gone"\nobservation = "edge:gone"\nlabel = "One"\n'
    house.put("/api/mappings/gone", text)
    await open_page(page, "#/mapping/gone", f"{CONTENT}?.textContent.includes('One')")
    house.put("/api/mappings/gone", text.replace("One", "Theirs"))
    page.expect("status of 412")
    await page.evaluate("globalThis.confirm = () => true; document.getElementById('delete').click()")
    await page.wait_for("document.getElementById('replace') !== null")
    await page.evaluate("document.getElementById('replace').click()")
    await page.wait_for("location.hash === '#/new'")
    assert all(each["name"] != "gone" for each in house.get("/api/mappings"))


LOSE_AN_ANSWER = (
    "const real = globalThis.fetch; globalThis.fetch = async (...call) => {"
    " if (call[1]?.method !== 'PUT') return real(...call);"
    " await real(...call); globalThis.fetch = real; throw new TypeError('lost'); }"
)


async def test_a_save_without_an_answer_can_be_repeated(house: House, page):
    text = '[[mapping]]\ntopic = "shed/again"\nobservation = "edge:again"\nlabel = "One"\n'
    house.put("/api/mappings/again", text)
    await open_page(page, "#/mapping/again", f"{CONTENT}?.textContent.includes('One')")
    await page.evaluate(f"{{ {LOSE_AN_ANSWER} }}")
    await type_text(page, text.replace("One", "Two two"))
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('problem').textContent !== ''")
    assert "Two two" in house.read("/api/mappings/again")
    page.expect("status of 412")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('save').disabled")
    await type_text(page, text.replace("One", "Three three"))
    await page.evaluate("document.getElementById('save').click(); document.getElementById('save').click()")
    await page.wait_for("document.getElementById('save').disabled")
    assert await page.evaluate("document.getElementById('conflict')") is None
    house.delete("/api/mappings/again")


async def test_the_question_about_a_name_is_not_for_another_name(house: House, page):
    text = '[[mapping]]\ntopic = "shed/first"\nobservation = "edge:first"\nlabel = "Theirs"\n'
    house.put("/api/mappings/first", text)
    await open_page(page, "#/mapping/", NEW_FILE)
    await enter(page, "file", "first")
    page.expect("status of 412")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for(f"{CONFLICT} === 'first.toml exists already'")
    await enter(page, "file", "second")
    await page.wait_for("document.getElementById('conflict') === null")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("location.hash === '#/mapping/second'")
    assert house.read("/api/mappings/first") == text
    await open_page(page, "#/mapping/", NEW_FILE)
    await enter(page, "file", "first")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("document.getElementById('take') !== null")
    await page.evaluate("document.getElementById('take').click()")
    await page.wait_for(f"location.hash === '#/mapping/first' && {CONTENT}?.textContent.includes('Theirs')")
    for name in ("first", "second"):
        house.delete(f"/api/mappings/{name}")


async def test_a_new_file_does_not_replace_one_of_the_same_name(house: House, page):
    text = '[[mapping]]\ntopic = "shed/taken"\nobservation = "edge:taken"\nlabel = "Theirs"\n'
    house.put("/api/mappings/taken", text)
    await open_page(page, "#/mapping/", NEW_FILE)
    await enter(page, "file", "taken")
    page.expect("status of 412")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for(f"{CONFLICT} === 'taken.toml exists already'")
    assert house.read("/api/mappings/taken") == text
    await page.evaluate("document.getElementById('replace').click()")
    await page.wait_for("location.hash === '#/mapping/taken'")
    await page.wait_for(f"document.getElementById('file') === null && {CONTENT} != null")  # it has read the file
    assert house.read("/api/mappings/taken") != text
    house.delete("/api/mappings/taken")


async def test_a_mapping_is_tested_with_the_newest_message_of_a_mapped_topic(house: House, page):
    text = '[[mapping]]\ntopic = "shed/{box}/next"\nobservation = "edge:next-{box}"\nlabel = "Next"\n'
    house.put("/api/mappings/next", text)
    await open_page(page, "#/mapping/next", f"{CONTENT}?.textContent.includes('Next')")
    await page.evaluate("document.getElementById('next').click()")
    await page.wait_for("document.getElementById('next').getAttribute('aria-pressed') === 'true'")
    done = "document.getElementById('topic').value === 'shed/one/next'"
    for _ in range(100):  # a message before the gateway watches the topic is not kept
        house.publish([("shed/one/next", "17.5")])
        if await page.evaluate(done):
            break
    await page.wait_for(f"{done} && document.getElementById('payload').value === '17.5'")
    await page.wait_for(f"{names('#preview .value')} === '17.5'")
    assert await page.evaluate("document.getElementById('next').getAttribute('aria-pressed')") == "false"
    house.delete("/api/mappings/next")


QUICK = """globalThis.waited = 0;
  const late = globalThis.setTimeout;
  globalThis.setTimeout = (work, delay, ...rest) => {
    if (delay === 1000) globalThis.waited += 1;
    return late(work, delay === 1000 ? 0 : delay, ...rest);
  };
  const ask = globalThis.fetch;
  globalThis.asked = 0;
  globalThis.fetch = (path, ...rest) => {
    if (`${path}`.includes("/api/newest-message")) globalThis.asked += 1;
    return ask(path, ...rest);
  };
  globalThis.hide = (hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  };"""
"""Let a second pass at once, count requests, and hide the page."""
SETTLED = "new Promise(done => { requestAnimationFrame(() => setTimeout(done, 0)) })"
"""The page has taken what was entered."""
WAITS = "document.getElementById('next').getAttribute('aria-pressed') === 'true'"


async def test_the_page_stops_waiting_for_a_message(house: House, page):
    await open_page(page, "#/mapping/", NEW_FILE)
    await enter(page, "topic", "shed/silent")
    await page.evaluate(SETTLED)
    await page.evaluate(f"{{ {QUICK} }} hide(true); document.getElementById('next').click()")
    await page.wait_for("globalThis.waited === 1")
    assert await page.evaluate(f"globalThis.asked === 1 && {WAITS}")  # nothing is asked in the background
    await page.evaluate("hide(false)")
    await page.wait_for(f"document.body.innerText.includes('No message arrived') && !({WAITS})")
    assert await page.evaluate("globalThis.asked") == 61


async def test_a_message_that_is_too_long_leaves_the_payload(house: House, page):
    await open_page(page, "#/mapping/", NEW_FILE)
    await enter(page, "topic", "shed/long")
    await enter(page, "payload", "19")
    await page.evaluate(SETTLED)
    await page.evaluate(f"{{ {QUICK} }} document.getElementById('next').click()")
    await page.wait_for("globalThis.waited > 0")  # the gateway watches the topic
    house.publish([("shed/long", "7" * 5000)])
    await page.wait_for("document.getElementById('long')?.textContent === 'The message is too long to be shown.'")
    assert await page.evaluate("document.getElementById('payload').value") == "19"
    assert await page.evaluate("document.getElementById('topic').value") == "shed/long"
    await enter(page, "topic", "shed/other")
    await page.wait_for("document.getElementById('long') === null")
