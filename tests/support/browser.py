"""A real Chromium without a screen, with the questions of tests."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib import resources
from urllib.parse import urlsplit

import pytest

from edge.bench.chromium import NAMES, BrowserError, Chromium, Page

_OPTIONS = (
    "--ignore-certificate-errors",
    # Each page has a browser context of its own, so no page would use the renderer that waits for the next one. Nothing
    # shows the controls of the window, which have renderers of their own.
    "--disable-features=SpareRendererForSitePerProcess,PreloadTopChromeWebUI",
)


_SHELL = ("chromium-headless-shell", *NAMES)
"""Prefer Chromium's engine without the windows and services of a desktop browser: a page takes half the processor time.

`tests/web/test_tour.py` uses the whole browser.
"""


class Browser(Page):
    """One page."""

    _expected: tuple[str, ...] = ()

    def expect(self, *texts: str) -> None:
        """Do not count problems with one of these texts, also if the browser reports them later."""
        self._expected += texts

    def problems(self) -> list[str]:
        """Return the problems that the test does not expect."""
        return [each for each in super().problems() if not any(text in each for text in self._expected)]

    async def screenshot(self) -> bytes:
        """Return the page as PNG."""
        image = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(image["data"])

    async def language(self, code: str) -> None:
        """Prefer a language, as a user does in the settings of the browser."""
        agent = (await self.command("Browser.getVersion"))["userAgent"]
        await self.command("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=code)

    async def violations(self) -> list[str]:
        """Return what axe-core finds wrong with the accessibility of the page."""
        if not await self.evaluate("'axe' in window"):
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


@pytest.fixture(scope="session")
def chromium(tmp_path_factory) -> Iterator[Chromium]:
    """One browser for all pages. Tests are skipped if none is installed."""
    yield from _started(tmp_path_factory, _SHELL)


@pytest.fixture(scope="session")
def desktop_chromium(tmp_path_factory) -> Iterator[Chromium]:
    """The browser that users have, without a screen."""
    yield from _started(tmp_path_factory, NAMES)


def _started(tmp_path_factory: pytest.TempPathFactory, names: Sequence[str]) -> Iterator[Chromium]:
    try:
        started = Chromium.start(tmp_path_factory.mktemp("chromium") / "profile", *_OPTIONS, names=names)
    except BrowserError as error:
        if str(error).startswith("no browser"):
            pytest.skip(str(error))
        raise
    yield started
    started.quit()


@pytest.fixture
async def browser(chromium) -> AsyncIterator[Browser]:
    """An empty page."""
    page = await Browser.new(chromium)
    yield page
    await page.close()
