"""The connection to a browser: answers and events are kept apart, and a page that hangs is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from edge.bench.chromium import BrowserError, BrowserUnanswered, Page


class DevTools:
    """A server that answers as a test wants. `Browser.getVersion` is answered unless it hangs."""

    def __init__(self) -> None:
        self.hangs = False
        self.connection: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()
        self.received: asyncio.Queue[dict] = asyncio.Queue()

    async def serve(self, connection: ServerConnection) -> None:
        self.connection.set_result(connection)
        async for text in connection:
            request = json.loads(text)
            if request["method"] == "Browser.getVersion":
                if not self.hangs:
                    await self.send({"id": request["id"], "result": {}})
            else:
                await self.received.put(request)

    async def send(self, *messages: dict) -> None:
        for message in messages:
            await (await self.connection).send(json.dumps(message))


@pytest.fixture
async def tools() -> DevTools:
    return DevTools()


@pytest.fixture
async def page(tools: DevTools) -> AsyncIterator[Page]:
    async with serve(tools.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        page = Page(await connect(f"ws://127.0.0.1:{port}", close_timeout=1))
        page.session = "S"
        yield page
        await page.socket.close()


def event(number: int) -> dict:
    return {"method": "Network.requestWillBeSent", "params": {"number": number}, "sessionId": "S"}


async def test_events_between_request_and_answer_are_kept(tools: DevTools, page: Page):
    asked = asyncio.create_task(page.evaluate("1"))
    request = await tools.received.get()
    assert (request["method"], request["sessionId"]) == ("Runtime.evaluate", "S")
    await tools.send(event(1), {"id": request["id"], "result": {"result": {"value": 7}}}, event(2))
    assert await asked == 7
    second = asyncio.create_task(page.evaluate("2"))
    await tools.send({"id": (await tools.received.get())["id"], "result": {"result": {"value": 8}}})
    assert await second == 8
    assert page.events == [event(1), event(2)]


async def test_answers_in_another_order_reach_their_requests(tools: DevTools, page: Page):
    asked = [asyncio.create_task(page.evaluate(text)) for text in ("1", "2")]
    requests = [await tools.received.get() for _ in asked]
    for request in reversed(requests):
        await tools.send({"id": request["id"], "result": {"result": {"value": request["params"]["expression"]}}})
    assert await asyncio.gather(*asked) == ["1", "2"]


async def test_a_late_answer_is_neither_an_event_nor_another_answer(tools: DevTools, page: Page):
    with pytest.raises(BrowserUnanswered):
        await page.command("Runtime.evaluate", within=0.01, expression="slow")
    late = await tools.received.get()
    asked = asyncio.create_task(page.evaluate("next"))
    request = await tools.received.get()
    await tools.send({"id": late["id"], "result": {"result": {"value": "late"}}})
    await tools.send({"id": request["id"], "result": {"result": {"value": "right"}}})
    assert await asked == "right"
    assert page.events == []
    assert page.problems() == []


@pytest.mark.parametrize(("hangs", "reason"), [(False, "its renderer is busy or hangs"), (True, "the browser hangs")])
async def test_a_command_without_an_answer_is_named(tools: DevTools, page: Page, monkeypatch, hangs, reason):
    monkeypatch.setattr("edge.bench.chromium._ALIVE", 0.2 if hangs else 20.0)
    tools.hangs = hangs
    with pytest.raises(
        BrowserUnanswered, match=rf"no answer within 0\.01 s to Runtime\.evaluate .*forever.*: {reason}"
    ):
        await page.command("Runtime.evaluate", within=0.01, expression="forever()")


async def test_the_end_of_the_browser_ends_a_command(tools: DevTools, page: Page):
    asked = asyncio.create_task(page.evaluate("1"))
    await tools.received.get()
    await (await tools.connection).close()
    with pytest.raises(BrowserError, match="has ended"):
        await asked
    with pytest.raises(BrowserError, match="has ended"):
        await page.evaluate("2")
