"""The page of an administrator for clients and their permissions, in a real browser."""

from __future__ import annotations

import itertools
import json

import pytest
from house import SIZES, names, press
from locked import LOCKED, SHOWN, enter, member
from test_overview import LIVE, text_of
from websockets.asyncio.client import connect

from edge.protocol.access import ACTIONS
from edge.security.clients import Rights
from tests.support.waiting import eventually


@pytest.fixture
async def page(gateway, locked_page):
    await locked_page.wait_for(LOCKED)
    await enter(locked_page, member(gateway, "operator", *ACTIONS))
    await locked_page.wait_for(f"{LIVE} && {SHOWN}")
    await locked_page.evaluate("location.hash = '#/access'")
    await locked_page.wait_for("document.querySelector('#clients li') !== null")
    return locked_page


def client(gateway, identity: str):
    return next((each for each in gateway._security.clients.all() if each.identity == identity), None)


async def listed(page, identity: str) -> str:
    """The entry of a client, as a JavaScript expression."""
    entry = f"document.getElementById({('client-' + identity)!r})"
    await page.wait_for(f"{entry} !== null")
    return entry


async def listed_again(page, identity: str) -> str:
    """The entry of a client that the page does not list yet: it asks when it is opened, and then every five seconds."""
    await page.evaluate("location.hash = '#/'")
    await page.wait_for("document.getElementById('clients') === null")
    await page.evaluate("location.hash = '#/access'")
    return await listed(page, identity)


async def unfold(page, entry: str, text: str) -> None:
    await page.evaluate(f"[...{entry}.querySelectorAll('summary')].find(e => e.textContent === {text!r}).click()")


async def test_an_invited_client_registers_by_the_link_of_its_code(gateway, page):
    await page.evaluate(
        "document.getElementById('invite').open = true; document.getElementById('identity').value = 'hall/display';"
        "document.querySelector('#invite button[type=submit]').click()"
    )
    await page.wait_for("document.querySelector('#invitation .qr path') !== null")
    code = await page.evaluate(text_of("#invitation-code"))
    link = await page.evaluate("[...document.querySelectorAll('#invitation code')].at(-1).textContent")
    assert link == f"{gateway.endpoints['https']}/#/join/{code}"
    invited = client(gateway, "hall/display")
    assert (invited.state, sorted(invited.rights.actions), invited.rights.write) == (
        "invited",
        ["query", "subscribe"],
        frozenset(),
    )
    assert "invited" in await page.evaluate(f"{await listed(page, 'hall/display')}.textContent")
    assert await page.violations() == []
    # As on the other device: another origin, so without the administrator's token.
    await page.open(link)
    await page.wait_for(f"document.getElementById('code')?.value === {code!r}")
    assert "You are invited" in await page.evaluate(text_of("#enrolment h1"))
    await page.evaluate("document.querySelector('#enrolment-form button').click()")
    await page.wait_for(f"{LIVE} && {SHOWN}")
    credentials = [await page.evaluate(text_of(f"#client-{word}")) for word in ("id", "secret")]
    assert gateway._security.clients.authenticate(*credentials).identity == "hall/display"
    assert code not in await page.evaluate("location.href")
    assert page.problems() == []


async def test_a_connected_client_is_revoked(gateway, page):
    token = member(gateway, "viewer", "subscribe")
    async with connect(gateway.endpoints["ws"]) as socket:
        await socket.send(json.dumps({"subscribe": {"sparql": "SELECT * { ?s ?p ?o }", "authorization": token}}))
        assert "notification" in json.loads(await socket.recv())
        entry = await listed(page, "viewer")
        await unfold(page, entry, "Revoke")
        await press(page, ".danger", "Revoke this client")
        assert json.loads(await socket.recv())["error"] == "invalid_client"
    await page.wait_for(f"{entry}.textContent.includes('revoked')")
    assert await page.evaluate("document.getElementById('announcer').textContent") == "viewer is revoked"
    assert await page.evaluate(f"document.activeElement === {entry}")


async def test_rights_are_changed(gateway, page):
    gateway._security.clients.allow("lamp", Rights(frozenset({"query"}), read=frozenset({"", "urn:g"})))
    entry = await listed_again(page, "lamp")
    assert "Graphs to read: default, urn:g" in await page.evaluate(f"{entry}.textContent")
    await unfold(page, entry, "Change its rights")
    form = f"{entry}.querySelector('form.rows')"
    await page.wait_for(f"{form} !== null")
    assert await page.evaluate(f"{form}.querySelector('[name=read-list]').value") == "default\nurn:g"
    await page.evaluate(
        f"{form}.querySelector('[value=update]').click(); {form}.querySelector('[name=read-list]').value = 'urn:g\\n';"
        f"{form}.querySelector('[name=publish][value=some]').click()"
    )
    await page.wait_for(f"{form}.querySelector('[name=publish-list]') !== null")
    save = f"{form}.querySelector('button').click()"
    await page.evaluate(f"{form}.querySelector('[name=publish-list]').value = 'kitchen#'; {save}")
    await page.wait_for(f"{entry}.querySelector('.problem').textContent.includes('kitchen#')")
    page.expect("status of 400")
    await page.evaluate(f"{form}.querySelector('[name=publish-list]').value = 'kitchen/#'; {save}")
    await page.wait_for(f"{form} === null")
    expected = Rights(frozenset({"query", "update"}), read=frozenset({"urn:g"}), publish=frozenset({"kitchen/#"}))
    assert client(gateway, "lamp").rights == expected
    assert page.problems() == []


async def test_a_token_is_issued_for_a_program(gateway, page):
    gateway._security.clients.allow("meter", Rights(frozenset({"query"})))
    entry = await listed_again(page, "meter")
    await unfold(page, entry, "Token")
    await press(page, "button", "Issue a token")
    await page.wait_for(f"{entry}.querySelector('.token') !== null")
    token = await page.evaluate(f"{entry}.querySelector('.token').textContent")
    assert gateway._security.guard.access(token).client == "meter"


async def test_registration_is_opened_and_closed(gateway, page):
    clients = gateway._security.clients
    await page.evaluate("document.getElementById('opening').open = true")
    await press(page, "#opening button", "Open registration")
    await page.wait_for("document.querySelector('#opening b') !== null")
    rights, _ = clients.opening()
    assert rights.actions == {"query", "subscribe"}
    await press(page, "#opening button", "End it now")
    await eventually(lambda: clients.opening() is None)


async def test_an_administrator_cannot_revoke_itself(page):
    entry = await listed(page, "operator")
    assert (
        await page.evaluate(f"[...{entry}.querySelectorAll('summary')].some(e => e.textContent === 'Revoke')") is False
    )
    assert "you" in await page.evaluate(f"{entry}.textContent")


async def test_the_certificate_is_shown_and_its_authority_offered(page):
    await page.wait_for("document.querySelector('#certificate a') !== null")
    assert "localhost" in await page.evaluate(names("#certificate dd"))
    address = await page.evaluate("document.querySelector('#certificate a').href")
    assert "BEGIN%20CERTIFICATE" in address


async def test_the_page_is_accessible_and_fits_the_screen(gateway, page):
    gateway._security.clients.invite(name := "display/" + "x" * 190, Rights(), 60)
    await listed_again(page, name)
    await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    await page.wait_for("document.querySelectorAll('#clients li').length === 2")
    await page.wait_for("document.querySelector('#clients form') !== null")
    found = {}
    for (width, height), dark in (cases := list(itertools.product(SIZES, (False, True)))):
        await page.size(width, height, dark=dark)
        fits = await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found[(width, height), dark] = [*await page.violations(), *([] if fits else ["wider than the screen"])]
    assert found == {case: [] for case in cases}
