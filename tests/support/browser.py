"""A real Chromium without a screen, with the questions of tests."""

from __future__ import annotations

import base64
import json
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edge.bench.chromium import BrowserError, Chromium


class Browser(Chromium):
    """One page."""

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


async def launch(profile: Path, *options: str) -> Browser:
    """Start a browser with a new profile directory; skip the test if no browser is installed."""
    try:
        return await Browser.launch(profile, *options)
    except BrowserError as error:
        if str(error).startswith("no browser"):
            pytest.skip(str(error))
        raise


async def quit_browser(browser: Browser) -> None:
    """End the browser and wait until it has ended."""
    await browser.quit()
