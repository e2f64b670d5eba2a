"""The application at a gateway that requires a token: the way in, and the way out."""

from __future__ import annotations

import pytest
from house import SIZES, module
from locked import LOCKED, SHOWN, STORED, enter, member
from test_overview import LIVE, text_of

from edge.security.clients import Rights


@pytest.fixture
def page(locked_page):
    return locked_page


async def test_the_page_asks_for_a_token_and_shows_permitted_graphs(gateway, page):
    await page.wait_for(LOCKED)
    assert "requires a token" in await page.evaluate(text_of("#entry-title"))
    assert "edge clients token" in await page.evaluate(text_of("#entry"))
    assert await page.evaluate("document.getElementById('empty')") is None
    token = member(gateway, "viewer", "subscribe")
    await enter(page, f" Bearer {token}\n")
    await page.wait_for(f"{LIVE} && {SHOWN}")
    assert await page.evaluate("document.getElementById('entry')") is None
    assert await page.evaluate(STORED) == token
    assert await page.evaluate("localStorage.length + document.cookie.length") == 0
    assert token not in await page.evaluate("location.href + document.documentElement.outerHTML")
    await page.command("Page.reload")
    await page.wait_for(f"{LIVE} && {SHOWN}")  # the page asks for it once
    assert page.problems() == []


@pytest.mark.parametrize(
    ("actions", "wrong", "reported"),
    [
        (("query",), lambda token: token, "may not subscribe"),
        (("subscribe",), lambda token: token[:-9] + "AAAAAAAAA", "is not valid"),
        (("subscribe",), lambda token: "kitchen", "is not valid"),
    ],
    ids=["not allowed", "forged", "nonsense"],
)
async def test_an_invalid_token_is_reported_and_another_one_is_accepted(gateway, page, actions, wrong, reported):
    await page.wait_for(LOCKED)
    await enter(page, wrong(member(gateway, "viewer", *actions)))
    await page.wait_for(f"{LOCKED} && {text_of('#entry-title')}.includes({reported!r})")
    assert await page.evaluate(text_of("#entry-error")) != ""
    assert await page.evaluate("document.getElementById('token').value") == ""
    await enter(page, member(gateway, "another", "subscribe"))
    await page.wait_for(f"{LIVE} && {SHOWN}")


async def test_expired_token_hides_the_data_until_a_new_one(gateway, page):
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe", seconds=8))
    await page.wait_for(f"{LIVE} && {SHOWN}")
    await page.wait_for(f"{LOCKED} && {text_of('#entry-title')}.includes('is not valid')")
    assert await page.evaluate("document.querySelectorAll('.observation').length") == 0
    await enter(page, gateway._security.token("viewer", 600))
    await page.wait_for(f"{LIVE} && {SHOWN}")


async def test_a_revoked_client_sees_nothing(gateway, page):
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe"))
    await page.wait_for(f"{LIVE} && {SHOWN}")
    gateway._security.clients.revoke("viewer")
    await page.wait_for(f"{LOCKED} && {text_of('#entry-title')}.includes('not allowed')")
    assert await page.evaluate("document.querySelectorAll('.observation').length") == 0


async def test_the_token_is_removed_on_request(gateway, page):
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe"))
    await page.wait_for(f"{LIVE} && {SHOWN}")
    await page.evaluate("document.getElementById('leave').click()")
    await page.wait_for(LOCKED)
    assert await page.evaluate(STORED) is None
    assert await page.evaluate("document.querySelectorAll('.observation').length") == 0
    assert await page.evaluate("document.getElementById('leave')") is None


@pytest.mark.parametrize(("action", "seen"), [("administer", "# HELP"), ("query", "may not administer")])
async def test_operator_data_is_fetched_with_the_token(gateway, page, action, seen):
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe", action))
    await page.wait_for(LIVE)
    await page.evaluate("location.hash = '#/system'")
    await page.wait_for("document.querySelector('a[href=\"/metrics\"]') !== null")
    await page.evaluate("document.querySelector('a[href=\"/metrics\"]').click()")
    await page.wait_for(f"{text_of('#view')}?.includes({seen!r})")


async def test_page_over_tls_subscribes_over_tls(gateway, page):
    await page.open(gateway.endpoints["https"])
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe"))
    await page.wait_for(f"{LIVE} && {SHOWN} && location.protocol === 'https:'")


async def test_an_administrator_sees_why_the_gateway_was_started(gateway, page):
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "operator", "subscribe", "administer"))
    await page.wait_for(LIVE)
    await page.evaluate("location.hash = '#/system'")
    await page.wait_for("document.body.innerText.includes('nothing ran before on this data directory')")
    await page.evaluate("document.getElementById('leave').click()")
    await page.wait_for(f"{LOCKED} && !document.body.innerText.includes('nothing ran before')")
    await enter(page, member(gateway, "viewer", "subscribe"))
    await page.wait_for(f"{LIVE} && document.querySelector('dl') !== null")
    assert "nothing ran before" not in await page.evaluate("document.body.innerText")


async def test_the_operator_enrols_with_the_code_of_the_page(gateway, browser, tmp_path):
    file = tmp_path / "code"
    file.write_text(gateway._security.clients.invite("operator", Rights(), 60))
    await browser.open(gateway.endpoints["https"])
    await browser.wait_for("document.getElementById('code')?.value")
    assert await browser.evaluate("document.getElementById('code').value") == file.read_text()
    await browser.evaluate("document.querySelector('#enrolment-form button').click()")
    await browser.wait_for(f"{LIVE} && {SHOWN}")
    assert await browser.evaluate("document.getElementById('enrolment')") is None
    credentials = [await browser.evaluate(text_of(f"#client-{word}")) for word in ("id", "secret")]
    assert gateway._security.clients.authenticate(*credentials).identity == "operator"
    await browser.evaluate("document.getElementById('credentials-kept').click()")
    await browser.wait_for("document.getElementById('credentials') === null")
    assert credentials[1] not in await browser.evaluate("document.documentElement.outerHTML")
    await browser.evaluate("document.getElementById('leave').click()")
    await browser.wait_for(LOCKED)
    assert await browser.evaluate("document.getElementById('enrolment')") is None
    assert browser.problems() == []


async def test_the_entry_is_accessible_and_fits_the_screen(gateway, browser, tmp_path):
    code = gateway._security.clients.invite("operator", Rights(), 60)
    (tmp_path / "code").write_text(code)
    found = {}
    for language in ("en", "de", "it"):
        await browser.language(language)
        await browser.open(gateway.endpoints["https"])
        for address, filled in (("#/", code), ("#/join/ABCD-EFGH", "ABCD-EFGH")):
            await browser.evaluate(f"location.hash = {address!r}")
            await browser.wait_for(f"{LOCKED} && document.getElementById('code')?.value === {filled!r}")
            await browser.evaluate("document.getElementById('sign-in').open = true")
            for size in SIZES:
                await browser.size(*size)
                fits = await browser.evaluate(
                    f"document.documentElement.scrollWidth <= innerWidth && !{CLIPPED}.length"
                )
                problems = [*await browser.violations(), *([] if fits else ["wider than the screen"])]
                found.update({(language, address, size): problems} if problems else {})
    assert found == {}


CLIPPED = "[...document.querySelectorAll('.panel label')].filter(e => e.scrollWidth > e.closest('.panel').clientWidth)"
"""The labels that are wider than their panels."""


DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
"""Until what follows the next frame has been done."""


async def test_the_beginning_of_a_token_is_not_cleared(page):
    await page.wait_for(LOCKED)
    # As soon as the next form exists, before it is drawn.
    await page.evaluate(
        """{
          const before = document.getElementById('token');
          new MutationObserver((_, observer) => {
            const field = document.getElementById('token');
            if (!field || field === before) return;
            observer.disconnect();
            field.value = 'eyJ';
            globalThis.written = field;
          }).observe(document.body, {childList: true, subtree: true});
        }"""
    )
    await enter(page, "kitchen")
    await page.wait_for("globalThis.written !== undefined")
    await page.evaluate(DRAWN)
    assert await page.evaluate("document.getElementById('token') === written && written.value") == "eyJ"
    assert await page.evaluate("document.activeElement === written")


async def test_no_request_of_a_user_follows_the_end_of_the_session(gateway, page):
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe", "query"))
    await page.wait_for(f"{LIVE} && {SHOWN}")
    await page.wait_for(f"import({module('model/health.js')}).then(({{ keepsRecent }}) => keepsRecent())")
    await page.evaluate(
        f"import({module('model/recent.js')}).then(({{ lastDay }}) => {{"
        " lastDay('urn:asked:before'); document.getElementById('leave').click(); })"
    )
    # This timer ends after that of the requests, which began before it.
    await page.evaluate("new Promise(done => setTimeout(done, 200))")
    sent = [each["params"]["request"] for each in page.events if each["method"] == "Network.requestWillBeSent"]
    assert not [each["url"] for each in sent if "asked" in each["url"] or "undefined" in each["url"]]
    await enter(page, gateway._security.token("viewer", None))
    await page.wait_for(f"{LIVE} && {SHOWN}")
    await page.wait_for(f"import({module('model/health.js')}).then(({{ keepsRecent }}) => keepsRecent())")
    await page.evaluate(
        f"import({module('model/recent.js')}).then(({{ lastDay }}) => {{ lastDay('urn:asked:after'); }})"
    )
    await page.wait_for("performance.getEntriesByType('resource').some(({ name }) => name.includes('asked%3Aafter'))")
    page.expect("status of 404")  # it has no values
    assert page.problems() == []


async def test_another_user_does_not_see_results_of_the_console(gateway, page):
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "viewer", "subscribe", "query"))
    await page.wait_for(LIVE)
    await page.evaluate("location.hash = '#/console'")
    await page.wait_for("document.getElementById('run') !== null")
    await page.evaluate("document.getElementById('run').click()")
    await page.wait_for("document.getElementById('summary') !== null")
    await page.evaluate("document.getElementById('leave').click()")
    await page.wait_for(LOCKED)
    await enter(page, member(gateway, "another", "subscribe", "query"))
    await page.wait_for(f"{LIVE} && document.getElementById('run') !== null")
    assert await page.evaluate("document.getElementById('summary')") is None


async def test_a_registered_client_signs_in_with_its_secret(gateway, page):
    clients = gateway._security.clients
    clients.allow("viewer", Rights(frozenset({"subscribe"})))
    client_id, secret = clients.register("viewer")
    await page.wait_for(LOCKED)
    await sign_in(page, client_id, "wrong")
    await page.wait_for(f"{text_of('#sign-in .problem')}.includes('its secret is wrong')")
    await sign_in(page, client_id, secret)
    await page.wait_for(f"{LIVE} && {SHOWN}")
    assert await page.evaluate("localStorage.length + document.cookie.length") == 0


async def test_a_client_that_signed_in_gets_the_next_token_by_itself(gateway, page):
    clients = gateway._security.clients
    clients.allow("viewer", Rights(frozenset({"subscribe", "query"})))
    client_id, secret = clients.register("viewer")
    await page.wait_for(LOCKED)
    await sign_in(page, client_id, secret)
    await page.wait_for(f"{LIVE} && {SHOWN}")
    short = gateway._security.token("viewer", 4)
    await page.evaluate(f"sessionStorage.setItem('sepa-edge.token', {short!r}); location.reload()")
    await page.wait_for(f"{LIVE} && {SHOWN} && {STORED} === {short!r}")
    await page.wait_for(f"{LIVE} && {SHOWN} && {STORED} !== {short!r}")
    assert await page.evaluate("document.getElementById('entry')") is None
    # A request finds that the token is not valid any more, too.
    await page.evaluate("sessionStorage.setItem('sepa-edge.token', 'old')")
    gateway_js = module("model/gateway.js")
    client = await page.evaluate(
        f"import({gateway_js}).then(({{ getJson }}) => getJson('/api/access')).then(found => found.client)"
    )
    assert client == "viewer"
    assert await page.evaluate("localStorage.length") == 0


async def test_a_device_stays_signed_in_until_it_is_revoked(gateway, page):
    clients = gateway._security.clients
    clients.allow("viewer", Rights(frozenset({"subscribe"})))
    client_id, secret = clients.register("viewer")
    await page.wait_for(LOCKED)
    await page.evaluate("document.querySelector('#sign-in [name=stay]').checked = true")
    await sign_in(page, client_id, secret)
    await page.wait_for(f"{LIVE} && {SHOWN}")
    await page.evaluate("sessionStorage.clear(); location.reload()")  # as in a new tab
    await page.wait_for(f"{LIVE} && {SHOWN} && {STORED} !== null")
    clients.revoke("viewer")
    await page.wait_for(LOCKED)
    await page.evaluate("location.reload()")
    await page.wait_for(f"{LOCKED} && localStorage.length === 0")
    assert await page.evaluate("document.querySelectorAll('.observation').length") == 0


async def sign_in(page, client_id: str, secret: str) -> None:
    await page.evaluate(
        f"document.getElementById('sign-in').open = true; document.getElementById('sign-in-id').value = {client_id!r};"
        f"document.getElementById('sign-in-secret').value = {secret!r};"
        "document.querySelector('#sign-in button').click()"
    )
