"""A real Chromium without a screen, driven over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
"""Programs of the browser, the first one that is installed is used."""
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "about:blank",
)
_START: Final = 60.0
"""Time limit for the start (s)."""
_ANSWER: Final = 20.0
"""Time limit for an answer to a command (s)."""
_ALIVE: Final = 5.0
"""Time limit for the answer of the browser itself, when a page has not answered (s)."""
_SHOWN: Final = 300
"""Characters of a command in an error message."""
_CLOSE: Final = 1.0
"""Time limit for the end of a connection (s): the browser does not always answer."""
_LINES: Final = 2
"""Lines of the file in which the browser writes where it listens: port and path."""
_REPLACED: Final = ("Inspected target navigated or closed", "Cannot find context with specified id")


class BrowserError(Exception):
    """The browser is missing, or did not do what it should."""


class PageReplaced(BrowserError):
    """Another document replaced the one that a command was for."""


class BrowserUnanswered(BrowserError):
    """A command was not answered in time."""


class Chromium:
    """The processes of a browser."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        """`url`: of its DevTools."""
        self.process = process
        self.url = url

    @classmethod
    def start(cls, profile: Path, *options: str, names: Sequence[str] = NAMES) -> Self:
        """Start a browser with a new profile directory. `names`: of its program, the preferred one first.

        Raises `BrowserError` if no browser is installed.
        """
        program = next((path for name in names if (path := shutil.which(name))), None)
        if program is None:
            raise BrowserError("no browser: install the package chromium")
        command = [program, *options, f"--user-data-dir={profile}", *_OPTIONS]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        written, end = profile / "DevToolsActivePort", time.monotonic() + _START
        while not written.exists() or len(lines := written.read_text(encoding="ascii").splitlines()) < _LINES:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise BrowserError("the browser does not listen")
            time.sleep(0.05)
        return cls(process, f"ws://127.0.0.1:{lines[0]}{lines[1]}")

    def quit(self) -> None:
        """End the browser and wait until it has ended."""
        self.process.terminate()
        self.process.wait()


class Page:
    """A page without anything of another page: cookies, storage and cached files are its own."""

    def __init__(self, socket: ClientConnection) -> None:
        """`socket`: a connection to the browser's DevTools for this page alone."""
        self.socket = socket
        self.session = ""
        self.context = ""
        """The identifier of its browser context."""
        self.events: list[dict[str, Any]] = []
        """Events of the enabled domains since the start."""
        self._last = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        """Answers that are awaited, by the number of the command."""
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def new(cls, browser: Chromium) -> Self:
        """Make an empty page."""
        page = cls(await connect(browser.url, max_size=None, close_timeout=_CLOSE))
        page.context = (await page.command("Target.createBrowserContext"))["browserContextId"]
        target = await page.command("Target.createTarget", url="about:blank", browserContextId=page.context)
        attached = await page.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page.session = attached["sessionId"]
        return page

    async def close(self) -> None:
        """Close the page, and remove what it has stored."""
        self.session = ""
        try:
            await self.command("Target.disposeBrowserContext", browserContextId=self.context)
        finally:
            await self.socket.close()
            await self._reader

    async def command(self, method: str, *, within: float = _ANSWER, **parameters: Any) -> Any:  # noqa: ANN401 - any JSON
        """Send a command, and return its result. `within`: time limit in seconds. Raises `BrowserError`."""
        session = self.session
        try:
            message = await self._ask(session, method, parameters, within)
        except BrowserUnanswered as error:
            raise BrowserUnanswered(f"{error}: {await self._reason() if session else 'the browser hangs'}") from None
        if "error" in message:
            kind = PageReplaced if message["error"]["message"] in _REPLACED else BrowserError
            raise kind(f"{method}: {message['error']}")
        return message["result"]

    async def _ask(self, session: str, method: str, parameters: dict[str, Any], within: float) -> dict[str, Any]:
        """Send a command to a session, or to the browser if it is empty. Return the whole answer."""
        self._last += 1
        number = self._last
        request = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            async with asyncio.timeout(within):
                if self._reader.done():
                    raise BrowserError(f"{method}: the connection to the browser has ended")
                with contextlib.suppress(ConnectionClosed):  # the reader fails the answer
                    await self.socket.send(json.dumps(request))
                return await answer
        except TimeoutError:
            asked = f"{method} {json.dumps(parameters, ensure_ascii=False)}"
            raise BrowserUnanswered(f"no answer within {within:g} s to {asked[:_SHOWN]}") from None
        finally:
            del self._answers[number]

    async def _reason(self) -> str:
        """Return why a page does not answer: the browser does, or does not either."""
        try:
            await self._ask("", "Browser.getVersion", {}, _ALIVE)
        except BrowserError:
            return "the browser hangs, or has ended"
        return "its renderer is busy or hangs, and the browser answers"

    async def _read(self) -> None:
        """Receive answers and events until the connection ends."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                message = json.loads(await self.socket.recv())
                if "id" not in message:
                    self.events.append(message)
                # No command waits for an answer that comes too late.
                elif (answer := self._answers.get(message["id"])) is not None and not answer.done():
                    answer.set_result(message)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BrowserError("the connection to the browser has ended"))

    async def open(self, url: str) -> None:
        """Open a page, and record its events from then on."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.command(f"{domain}.enable")
        await self.command("Page.navigate", url=url)

    async def evaluate(self, expression: str, within: float = _ANSWER) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of a JavaScript expression, or of its promise. `within`: time limit in seconds.

        Raises `BrowserError`.
        """
        result = await self.command(
            "Runtime.evaluate", within=within, expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result}")
        return result["result"].get("value")

    async def wait_for(self, expression: str, seconds: float = _ANSWER) -> None:
        """Wait until a JavaScript expression is true. Raises `BrowserError` with the content of the page."""
        try:
            async with asyncio.timeout(seconds):
                while not await self._holds(expression):  # noqa: ASYNC110 - what is waited for is in the browser
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise BrowserError(
                f"not true within {seconds:g} s: {expression}\n{await self._shown()}\n{self.problems()}"
            ) from None

    async def _shown(self) -> str:
        """Return the text of the page, or the reason for its absence."""
        try:
            return str(await self.evaluate("document.body?.innerText", _ALIVE))
        except BrowserError as error:
            return str(error)

    async def _holds(self, expression: str) -> bool:
        try:
            return bool(await self.evaluate(expression))
        except PageReplaced:
            return False

    def problems(self) -> list[str]:
        """Return the problems that the page's console and the browser's policies reported."""
        found = []
        for event in self.events:
            if event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(event["params"]["exceptionDetails"]))
        return found

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the visible area in CSS pixels, and the colours that the user prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.command("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])
