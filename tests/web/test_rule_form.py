"""Rules in a real browser: made with the form, tried on recent values, switched off, edited and deleted."""

from __future__ import annotations

import pytest
from house import HOLD, House, meanwhile, names, press
from test_console import CONTENT, key, type_text

from tests.support.browser import Browser
from tests.support.waiting import eventually

ATTIC = "urn:sepa-edge:senml:attic/temperature"
DOOR = "urn:sepa-edge:zigbee2mqtt:front_door/contact"


async def fill(page: Browser, field: str, value: str) -> None:
    """Enter or choose a value in the form of a rule."""
    await page.wait_for(f"document.querySelector('#rule #{field}') !== null")
    await page.evaluate(
        f"{{ const field = document.querySelector('#rule #{field}'); field.value = {value!r};"
        " field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true})); }"
    )


async def open_form(page: Browser, name: str = "") -> None:
    await page.evaluate(f"location.hash = '#/rule/{name}'")
    await page.wait_for("document.getElementById('rule') !== null")


async def save(page: Browser) -> None:
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("location.hash === '#/automation' && document.querySelector('#rules') !== null")


@pytest.fixture
def no_rules(house: House):
    yield
    for each in house.get("/api/rules"):
        house.delete(f"/api/rules/{each['name']}")


async def test_a_rule_is_made_tried_and_seen_at_work(house: House, page, no_rules):
    await open_form(page)
    await fill(page, "observation", ATTIC)
    await fill(page, "number", "22")
    await fill(page, "label", "Hot <b>attic</b>")
    await page.evaluate("document.getElementById('try').click()")
    await page.wait_for("document.getElementById('verdict') !== null")
    assert "It would have begun 3 times." in await page.evaluate(names("#verdict"))
    assert await page.evaluate("document.querySelectorAll('#dry-run tbody tr').length") == 3
    await save(page)
    (listed,) = house.get("/api/rules")
    assert (listed["name"], listed["keys"]) == (
        "hot-b-attic-b",
        {"label": "Hot <b>attic</b>", "observation": ATTIC, "above": 22},
    )
    house.publish([("senml/attic", [{"n": "temperature", "u": "Cel", "v": 30}])])
    await page.wait_for(f"{names('#situations li b')} === 'Hot <b>attic</b>'")
    await page.wait_for(f"{names('#rules .mark')} === 'active'")
    await page.evaluate("location.hash = '#/'")
    await page.wait_for(f"{names('#strip .chip')}.includes('1 situation of a rule')")
    await page.evaluate("location.hash = '#/automation'")
    await page.wait_for("document.querySelector('#rules button') !== null")
    await press(page, "#rules button", "Switch off")
    await page.wait_for(f"{names('#rules .mark')} === 'off' && {names('#situations li b')} === ''")
    assert house.get("/api/rules")[0]["enabled"] is False
    await press(page, "#rules button", "Switch on")
    await page.wait_for(f"{names('#situations li b')} === 'Hot <b>attic</b>'")
    assert await page.evaluate("document.querySelectorAll('main b b').length") == 0
    assert await page.violations() == []


async def test_an_absence_with_updates_is_edited_and_reverted(house: House, page, no_rules):
    await open_form(page)
    await fill(page, "watched", "property")
    await fill(page, "property", "urn:sepa-edge:property:contact")
    await fill(page, "test", "silent")
    await fill(page, "silent", "2")
    await fill(page, "label", "No contact")
    await page.evaluate("document.querySelectorAll('#rule details')[0].open = true")
    await type_text(page, 'INSERT { ?observation <urn:silent> "since" } WHERE {}')
    await save(page)
    (listed,) = house.get("/api/rules")
    assert listed["keys"]["silent"] == "PT7200S"
    assert "<urn:silent>" in listed["keys"]["update"]
    await page.wait_for(f"{names('#rules .mark')} === 'waiting'")
    await open_form(page, "no-contact")
    assert await page.evaluate("[document.getElementById('silent').value, document.getElementById('test').value]") == [
        "2",
        "silent",
    ]
    assert "<urn:silent>" in await page.evaluate(f"{CONTENT}.textContent")
    await fill(page, "silent", "3")
    await save(page)
    await open_form(page, "no-contact")
    await page.wait_for("document.getElementById('revert') !== null")
    await page.evaluate("document.getElementById('revert').click()")
    await page.wait_for("document.getElementById('silent')?.value === '2'")
    await page.wait_for("document.getElementById('announcer').textContent.includes('restored')")  # it is stored
    await page.evaluate("globalThis.confirm = () => true; document.getElementById('delete').click()")
    await page.wait_for("location.hash === '#/automation'")
    assert house.get("/api/rules") == []


async def test_a_state_is_compared_with_its_own_words(house: House, page, no_rules):
    await open_form(page)
    await fill(page, "observation", DOOR)
    await page.wait_for("document.querySelector('#compared') !== null")
    assert "Open" in await page.evaluate(names("#compared option"))
    await fill(page, "compared", "false")
    await fill(page, "lasts", "10")
    await save(page)
    (listed,) = house.get("/api/rules")
    assert listed["keys"] == {"observation": DOOR, "equals": False, "for": "PT600S"}
    await page.wait_for(f"{names('#rules .mark')} === 'waiting'")
    await page.wait_for(f"{names('#pending li b')}.includes('sepa://rule/rule/')")


async def test_a_mistake_in_the_text_is_marked_at_its_line(house: House, page, no_rules):
    await open_form(page)
    await page.evaluate("document.getElementById('by-hand').open = true")
    editor = "document.querySelector('#by-hand .editor').shadowRoot"
    await page.evaluate(f"{editor}.querySelector('.cm-content').focus()")
    await key(page, "a", ctrl=True)
    await page.command("Input.insertText", text=f'label = "x"\nobservation = "{ATTIC}"\nabov = 3\n')
    await page.wait_for(f"{editor}.querySelector('.cm-content').textContent.includes('abov')")
    await page.evaluate("document.getElementById('try').click()")
    await page.wait_for(f"{editor}.querySelector('.fault')?.textContent.includes('abov')")
    assert "Did you mean above?" in await page.evaluate(names("#dry-run"))
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for(f"{names('#rule .problem')}.includes('Did you mean above?')")
    assert house.get("/api/rules") == []
    page.expect("status of 400")  # the refused rule


async def test_comments_of_a_rule_are_not_lost(house: House, page, no_rules):
    text = f'# why\nobservation = "{ATTIC}"\nabove = 90 # much\n'
    house.put("/api/rules/commented", text)
    await open_form(page, "commented")
    assert await page.evaluate("document.querySelector('#rule #observation')") is None
    assert "# why" in await page.evaluate(f"{CONTENT}.textContent")
    await page.evaluate("location.hash = '#/automation'")
    await page.wait_for("document.querySelector('#rules button') !== null")
    await press(page, "#rules button", "Switch off")
    await page.wait_for(f"{names('#rules .mark')} === 'off'")
    assert house.read("/api/rules/commented") == f"enabled = false\n{text}"


async def test_a_template_answers_with_a_value_that_is_set(house: House, page, no_rules):
    house.publish([("zigbee2mqtt/hall", {"occupancy": False}), ("zigbee2mqtt/spot", {"state": "OFF", "brightness": 1})])
    await page.wait_for(f"{names('.observation')}.includes('Brightness')")
    await open_form(page)
    await press(page, "#templates button", "Light while somebody is there")
    await page.wait_for("document.getElementById('set')?.options.length > 1")
    assert await page.evaluate("document.getElementById('observation').value") == (
        "urn:sepa-edge:zigbee2mqtt:hall/occupancy"
    )
    assert await page.evaluate("document.getElementById('end-lasts').value") == "2"
    await fill(page, "set", "urn:sepa-edge:zigbee2mqtt:spot/brightness")
    await fill(page, "set-value", "200")
    await fill(page, "end-set", "urn:sepa-edge:zigbee2mqtt:spot/state")
    assert await page.evaluate("document.getElementById('end-set-value').value") == "false"
    assert await page.violations() == []
    await save(page)
    (listed,) = house.get("/api/rules")
    assert listed["keys"]["equals"] is True
    assert "<urn:sepa-edge:zigbee2mqtt:spot/brightness> <urn:sepa-edge:desired> 200" in listed["keys"]["update"]
    assert "<urn:sepa-edge:zigbee2mqtt:spot/state> <urn:sepa-edge:desired> false" in listed["keys"]["end_update"]
    await open_form(page, listed["name"])
    await page.wait_for("document.getElementById('set-value')?.value === '200'")
    assert await page.evaluate("document.getElementById('templates')") is None
    with house.commands("zigbee2mqtt/spot/set") as commands:
        house.publish([("zigbee2mqtt/hall", {"occupancy": True})])
        await eventually(lambda: commands == [{"brightness": 200}])


FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Until what a click has changed is drawn."""


async def test_each_template_makes_a_rule_that_the_gateway_accepts(house: House, page, no_rules):
    await open_form(page)
    count = await page.evaluate("document.querySelectorAll('#templates button').length")
    for number in range(count):
        await page.evaluate(f"document.querySelectorAll('#templates button')[{number}].click(); {FRAMES}")
        # A template for a kind that no device has leaves the choice to the user.
        await page.evaluate(
            "{ const field = document.querySelector('#property, #observation'); if (!field.value) {"
            f" field.selectedIndex = 1; field.dispatchEvent(new Event('change', {{bubbles: true}})); }} }} {FRAMES}"
        )
        await page.evaluate(f"document.getElementById('try').click(); {FRAMES}")
        await page.wait_for("document.getElementById('verdict') !== null")
        assert await page.evaluate(names("#dry-run .problem")) == ""


async def test_what_is_written_while_a_rule_is_being_saved_stays(house: House, page, no_rules):
    await open_form(page)
    await fill(page, "observation", ATTIC)
    await fill(page, "number", "22")
    await fill(page, "label", "First")
    await page.evaluate(HOLD)
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for("globalThis.goOn !== undefined && document.getElementById('save').ariaDisabled === 'true'")
    await fill(page, "label", "Second")
    await page.evaluate("globalThis.goOn()")
    await page.wait_for("document.getElementById('save').ariaDisabled === 'false'")
    assert [each["keys"]["label"] for each in house.get("/api/rules")] == ["First"]
    assert await page.evaluate("document.querySelector('#rule #label').value") == "Second"
    await page.evaluate("delete globalThis.goOn; document.getElementById('save').click()")
    await page.wait_for("globalThis.goOn !== undefined")
    await page.evaluate("globalThis.confirm = () => true; location.hash = '#/system'")
    await page.wait_for("document.querySelector('h1')?.textContent === 'System'")
    await page.evaluate("globalThis.goOn()")
    await eventually(lambda: [each["keys"]["label"] for each in house.get("/api/rules")] == ["Second"])
    assert await page.evaluate("location.hash") == "#/system"


@pytest.mark.parametrize("choice", ["replace", "take"])
async def test_both_texts_of_a_rule_are_offered_after_another_client_saved_it(house: House, page, no_rules, choice):
    text = f'label = "Warm"\nobservation = "{ATTIC}"\nabove = 40\n'
    house.put("/api/rules/warm", text)
    await open_form(page, "warm")
    await fill(page, "number", "41")
    house.put("/api/rules/warm", text.replace("40", "42"))
    page.expect("status of 412")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for(f"{names('#conflict h2')} === 'Another client has changed warm'")
    assert await page.evaluate(names("#conflict mark")) == "above = 42|above = 41"
    assert house.read("/api/rules/warm") == text.replace("40", "42")
    await page.evaluate(f"document.getElementById({choice!r}).click()")
    if choice == "replace":
        await page.wait_for("location.hash === '#/automation'")
        assert "above = 41" in house.read("/api/rules/warm")
    else:
        await page.wait_for("document.querySelector('#rule #number')?.value === '42'")
        await page.wait_for("document.activeElement.id === 'label'")
        await save(page)
        assert "above = 42" in house.read("/api/rules/warm")


async def test_the_version_before_is_restored_after_another_client_saved_the_rule(house: House, page, no_rules):
    text = f'label = "Warm"\nobservation = "{ATTIC}"\nabove = 41\n'
    house.put("/api/rules/warm", text)
    house.put("/api/rules/warm", text.replace("41", "42"))
    await open_form(page, "warm")
    await fill(page, "number", "43")
    house.put("/api/rules/warm", text.replace("41", "55"))
    page.expect("status of 412")
    await page.evaluate("document.getElementById('revert').click()")
    await page.wait_for("document.getElementById('conflict') !== null")
    before = await page.evaluate(names("#conflict mark"))
    assert before == "above = 55|above = 42"
    await page.evaluate("document.getElementById('replace').click()")
    await page.wait_for("document.querySelector('#rule #number')?.value === '42'")
    assert house.read("/api/rules/warm") == text.replace("41", "42")


async def test_changes_of_a_rule_stay_if_the_other_text_cannot_be_read(house: House, page, no_rules):
    text = f'label = "Warm"\nobservation = "{ATTIC}"\nabove = 40\n'
    house.put("/api/rules/warm", text)
    await open_form(page, "warm")
    await fill(page, "number", "41")
    house.put("/api/rules/warm", text.replace("40", "42"))
    page.expect("status of 412", "status of 404")
    await page.evaluate("globalThis.confirm = () => true; document.getElementById('delete').click()")
    await page.wait_for(f"{names('#conflict button')} === 'Delete it anyway|Use the other text'")
    house.delete("/api/rules/warm")
    await page.evaluate("document.getElementById('take').click()")
    await page.wait_for(f"{names('main > .problem')} !== '' && document.getElementById('conflict') === null")
    await page.evaluate("globalThis.confirm = () => { globalThis.asked = true; return true; }")
    await page.evaluate("location.hash = '#/system'")
    await page.wait_for("globalThis.asked === true")


async def test_a_new_rule_replaces_one_of_the_same_name_after_a_question(house: House, page, no_rules):
    text = f'label = "Warm"\nobservation = "{ATTIC}"\nabove = 40\n'
    house.put("/api/rules/warm", text)
    await open_form(page)
    await fill(page, "observation", ATTIC)
    await fill(page, "number", "41")
    await fill(page, "label", "Warm")
    await page.evaluate("globalThis.confirm = () => true")
    await save(page)
    assert "above = 41" in house.read("/api/rules/warm")


async def test_a_rule_that_changes_during_the_question_is_not_replaced(house: House, page, no_rules):
    text = f'label = "Warm"\nobservation = "{ATTIC}"\nabove = 40\n'
    house.put("/api/rules/warm", text)
    await open_form(page)
    await fill(page, "observation", ATTIC)
    await fill(page, "number", "41")
    await fill(page, "label", "Warm")
    newer = text.replace("40", "42")
    await page.evaluate(meanwhile("/api/rules/warm", newer))
    page.expect("status of 412")
    await page.evaluate("document.getElementById('save').click()")
    await page.wait_for(f"{names('#conflict h2')} === 'warm exists already'")
    assert house.read("/api/rules/warm") == newer
    await fill(page, "label", "Warmer")
    await page.wait_for("document.getElementById('conflict') === null")
    await save(page)
    assert (house.read("/api/rules/warm"), len(house.get("/api/rules"))) == (newer, 2)
