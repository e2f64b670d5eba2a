"""Delayed updates and the engine's console in a real browser."""

from __future__ import annotations

import json

from house import names, press

from tests.support.browser import Browser


async def open_page(page: Browser, name: str, shown: str) -> None:
    await page.evaluate(f"location.hash = '#/{name}'")
    await page.wait_for(f"document.querySelector({shown!r}) !== null")


async def schedule(page: Browser, name: str, amount: str, unit: str) -> None:
    await page.evaluate(
        "document.getElementById('new').open = true; { const fields = document.getElementById('create').elements;"
        f"fields.id.value = {name!r}; fields.amount.value = {amount!r}; fields.unit.value = {unit!r}; }}"
    )
    await page.evaluate("document.querySelector('#create button[type=submit]').click()")


async def test_an_update_is_scheduled_and_cancelled(house, page):
    await open_page(page, "automation", "#over")
    await schedule(page, "lamp/off ä", "90", "minutes")
    await page.wait_for(f"{names('#pending li b')} === 'lamp/off ä'")
    assert "in 1 hr." in await page.evaluate(names("#pending li"))
    listed = house.get("/timers", state="pending")["timers"]
    assert [each["id"] for each in listed] == ["lamp/off ä"]
    await press(page, "#pending button", "Cancel")
    await page.wait_for(f"{names('#pending')}.includes('No update waits')")
    await page.wait_for(f"{names('#over li')}.includes('lamp/off ä')")
    assert "cancelled" in await page.evaluate(names("#over li"))


async def test_outcomes_are_told_apart(house, page):
    for name, text in {
        "made": "INSERT DATA { <urn:a> <urn:b> 1 }",
        "idle": "DELETE DATA { <urn:nothing> <urn:b> 1 }",
        "broken": "CREATE GRAPH <urn:twice> ; CREATE GRAPH <urn:twice>",
    }.items():
        house.schedule(name, text, "PT0S")
    await open_page(page, "automation", "#over")
    shown = names("#over li")
    await page.wait_for(f"['made', 'idle', 'broken'].every(name => {shown}.includes(name))")
    text = await page.evaluate(shown)
    assert "1 added, 0 removed" in text
    assert "changed nothing" in text
    assert "exists already" in text
    house.update("DELETE WHERE { <urn:a> ?p ?o }")


async def test_a_wrong_text_is_refused_at_its_place(page):
    await open_page(page, "automation", "#over")
    await page.evaluate("document.getElementById('new').open = true")
    content = "document.querySelector('.editor').shadowRoot.querySelector('.cm-content')"
    await page.evaluate(f"{content}.focus()")
    await page.command("Input.insertText", text="INSERT nonsense ")
    await page.evaluate("document.querySelector('#create button[type=submit]').click()")
    await page.wait_for("document.querySelector('#create .problem').textContent.includes('line 1')")
    page.expect("status of 400")


async def test_the_engine_page_shows_rates_and_changes_the_mode(house, page):
    await open_page(page, "engine", ".chart canvas")
    assert "Updates a second" in await page.evaluate(names("dt"))
    assert await page.evaluate("document.querySelectorAll('tbody tr').length") == 5
    before = house.get("/api/engine")["processing"]
    other = {"parallel": "Sequential", "sequential": "Parallel"}[before]
    await press(page, "#mode button", other)
    await page.wait_for(f"{names('#mode [aria-pressed=true]')} === {other!r}")
    assert house.get("/api/engine")["processing"] == other.lower()
    await press(page, "#mode button", before.capitalize())
    await page.wait_for(f"{names('#mode [aria-pressed=true]')} === {before.capitalize()!r}")


async def test_the_engine_page_shows_subscribed_queries_with_their_clients(house, page):
    await open_page(page, "engine", "#subscribed li")
    # The page's own subscriptions.
    assert "127.0.0.1" in await page.evaluate(names("#subscribed small"))
    assert "incremental" in await page.evaluate(names("#subscribed .mark"))
    for order in ("Most memory", "Most time", "Most subscriptions"):
        await press(page, "#subscribed .bar button", order)
        await page.wait_for(f"{names('#subscribed [aria-pressed=true]')} === {order!r}")
    await page.evaluate("document.querySelector('#subscribed summary').click()")
    assert "SELECT" in await page.evaluate(names("#subscribed details[open] pre"))


async def test_the_engine_page_shows_the_use_of_limits(page):
    await open_page(page, "engine", "#limits meter")
    shown = await page.evaluate(names("#limits dd"))
    assert "0 of 10,000" in shown
    assert "127.0.0.1" in shown
    assert "engine.max_pending_updates" in await page.evaluate(names("#limits dt"))


async def test_the_engine_page_shows_phases_and_limits_over_time(house, page):
    await open_page(page, "engine", "#times .chart canvas")
    house.update("INSERT DATA { <urn:phase> <urn:p> 1 }")
    await page.wait_for("document.querySelector('#uses .chart canvas') !== null")
    await page.evaluate(
        "document.querySelectorAll('#times details, #uses details').forEach(each => { each.open = true })"
    )
    columns = "Time|Execute the update|Find the affected subscriptions|Evaluate them|Notify"
    await page.wait_for(f"{names('#times thead th')} === {columns!r} && {names('#times td')}.includes(' ms')")
    await page.wait_for(
        f"{names('#uses thead th')}.includes('Memory of the graph') && {names('#uses td')}.includes('%')"
    )
    assert await page.violations() == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_lines_of_the_engine_are_of_the_time_between_two_answers(page):
    """One more update of 4 ms after two of 1 ms; then none; then a restart of the gateway with another limit."""

    def answer(at: int, updates: int, mean: float, *limits: dict[str, object]) -> dict[str, object]:
        phases = {name: {"mean_ms": mean} for name in ("t_update", "t_lutt", "t_booster", "t_notify")}
        return {"at": at, "updates": updates, "notifications": updates, "pending_updates": 3, "phases": phases,
                "limits": list(limits)}  # fmt: skip

    def use(name: str, used: int) -> dict[str, object]:
        return {"setting": name, "used": used, "limit": 8}

    graph, queries = "engine.max_graph_bytes", "engine.max_pending_queries"
    past = [
        answer(0, 2, 1.0),
        answer(2, 3, 2.0, use(graph, 2)),
        answer(4, 3, 2.0),
        answer(6, 1, 5.0, use(graph, 8), use(queries, 0)),
    ]
    call = "const values = (data) => data.lines.map((line) => line.values);"
    call += f" return ['rates', 'phaseTimes', 'limitUse'].map((each) => values(module[each]({json.dumps(past)})))"
    rates, times, uses = await page.evaluate(
        "import('/model/text.js').then(({ loadTexts }) => loadTexts()).then(() => import('/model/engine_history.js'))"
        f".then((module) => {{ {call}; }})"
    )
    assert rates == [[0.5, 0, None], [0.5, 0, None], [3, 3, 3]]
    assert times == [[4, None, None]] * 4
    assert uses == [[25, None, 100], [None, None, 0]]
