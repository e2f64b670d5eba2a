"""A real Chromium without a screen, driven over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
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


class BrowserError(Exception):
    """The browser is missing, or did not do what it should."""


class Chromium:
    """One page of a browser."""

    def __init__(self, process: asyncio.subprocess.Process, socket: ClientConnection, session: str) -> None:
        self.process = process
        self.socket = socket
        self.session = session
        self.events: list[dict[str, Any]] = []
        """Events of the enabled domains since the start."""
        self._last = 0

    @classmethod
    async def launch(cls, profile: Path, *options: str) -> Self:
        """Start a browser with a new profile directory. Raises `BrowserError` if there is none."""
        program = next((path for name in _NAMES if (path := shutil.which(name))), None)
        if program is None:
            raise BrowserError("no browser: install the package chromium")
        process = await asyncio.create_subprocess_exec(
            program,
            *options,
            f"--user-data-dir={profile}",
            *_OPTIONS,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        if process.stderr is None:
            raise BrowserError("the browser has no standard error")
        async with asyncio.timeout(_START):
            while b"DevTools listening on " not in (line := await process.stderr.readline()):
                if not line:
                    raise BrowserError("the browser ended before it listened")
        socket = await connect(line.split()[-1].decode(), max_size=None)
        browser = cls(process, socket, "")
        await socket.send(json.dumps({"id": 0, "method": "Target.getTargets"}))
        target = next(t for t in json.loads(await socket.recv())["result"]["targetInfos"] if t["type"] == "page")
        attach = {"targetId": target["targetId"], "flatten": True}
        await socket.send(json.dumps({"id": 0, "method": "Target.attachToTarget", "params": attach}))
        while "result" not in (answer := json.loads(await socket.recv())):
            pass
        browser.session = answer["result"]["sessionId"]
        return browser

    async def quit(self) -> None:
        """End the browser and wait until it has ended."""
        await self.socket.close()
        self.process.terminate()
        await self.process.wait()

    async def command(self, method: str, **parameters: Any) -> Any:  # noqa: ANN401 - any JSON
        """Send a command, and return its result. Raises `BrowserError`."""
        self._last += 1
        request = {"id": self._last, "method": method, "params": parameters, "sessionId": self.session}
        await self.socket.send(json.dumps(request))
        while True:
            message = json.loads(await asyncio.wait_for(self.socket.recv(), _ANSWER))
            if message.get("id") == self._last:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    async def open(self, url: str) -> None:
        """Open a page, and record its events from then on."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.command(f"{domain}.enable")
        await self.command("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of a JavaScript expression, or of its promise. Raises `BrowserError`."""
        result = await self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result}")
        return result["result"].get("value")

    async def wait_for(self, expression: str, seconds: float = _ANSWER) -> None:
        """Wait until a JavaScript expression is true. Raises `BrowserError` with the content of the page."""
        try:
            async with asyncio.timeout(seconds):
                while not await self.evaluate(expression):  # noqa: ASYNC110 - what is waited for is in the browser
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.evaluate("document.body.innerText")
            raise BrowserError(f"not true within {seconds} s: {expression}\n{shown}\n{self.problems()}") from None

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
