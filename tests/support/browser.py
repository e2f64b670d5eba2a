"""A real Chromium without a screen, driven over the DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
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


class Browser:
    """One page. Commands: https://chromedevtools.github.io/devtools-protocol/."""

    def __init__(self, process: asyncio.subprocess.Process, socket: ClientConnection, session: str) -> None:
        self.process = process
        self.socket = socket
        self.session = session
        self.events: list[dict[str, Any]] = []
        self._last = 0

    async def command(self, method: str, **parameters: Any) -> Any:
        self._last += 1
        request = {"id": self._last, "method": method, "params": parameters, "sessionId": self.session}
        await self.socket.send(json.dumps(request))
        while True:
            message = json.loads(await asyncio.wait_for(self.socket.recv(), 20))
            if message.get("id") == self._last:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.command(f"{domain}.enable")
        await self.command("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        result = await self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def wait_for(self, expression: str, seconds: float = 20) -> None:
        """Wait until a JavaScript expression is true. Fails with the content of the page."""
        try:
            async with asyncio.timeout(seconds):
                while not await self.evaluate(expression):  # noqa: ASYNC110 - what is waited for is in the browser
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.evaluate("document.body.innerText")
            raise AssertionError(f"not true within {seconds} s: {expression}\n{shown}\n{self.problems()}") from None

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the visible area in CSS pixels, and the colours that the user prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.command("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """Return the page as PNG."""
        image = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(image["data"])

    async def violations(self) -> list[str]:
        """Return what axe-core finds wrong with the accessibility of the page."""
        script = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        await self.evaluate(f"{script}; 1")
        found = json.loads(await self.evaluate("axe.run().then(result => JSON.stringify(result.violations))"))
        return [
            f"{rule['id']}: {node['html'][:200]} {node['failureSummary']}" for rule in found for node in rule["nodes"]
        ]

    def hosts(self) -> set[str]:
        """Return the hosts that the page has sent requests to."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return {urlsplit(each["request"]["url"]).hostname or "" for each in sent}

    def problems(self) -> list[str]:
        """Return the problems that the page's console and the browser's policies reported."""
        found = []
        for event in self.events:
            if event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(event["params"]["exceptionDetails"]))
        return found


async def launch(profile: Path, *options: str) -> Browser:
    """Start a browser with a new profile directory; skip the test if no browser is installed."""
    program = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no browser: install the package chromium")
    process = await asyncio.create_subprocess_exec(
        program,
        *options,
        f"--user-data-dir={profile}",
        *_OPTIONS,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"DevTools listening on " not in (line := await process.stderr.readline()):
            assert line, "the browser ended before it listened"
    socket = await connect(line.split()[-1].decode(), max_size=None)
    browser = Browser(process, socket, "")
    await socket.send(json.dumps({"id": 0, "method": "Target.getTargets"}))
    target = next(t for t in json.loads(await socket.recv())["result"]["targetInfos"] if t["type"] == "page")
    attach = {"targetId": target["targetId"], "flatten": True}
    await socket.send(json.dumps({"id": 0, "method": "Target.attachToTarget", "params": attach}))
    while "result" not in (answer := json.loads(await socket.recv())):
        pass
    browser.session = answer["result"]["sessionId"]
    return browser


async def quit_browser(browser: Browser) -> None:
    """End the browser and wait until it has ended."""
    await browser.socket.close()
    browser.process.terminate()
    await browser.process.wait()
