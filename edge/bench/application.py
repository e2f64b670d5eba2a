"""The web application in a real Chromium: bytes and time until values show, and the cost of many changes.

The gateway is a process with observations that SPARQL updates change. The page is the overview on a screen of 1280 by
900 pixels.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from edge.bench.chromium import BrowserError, Chromium, Page
from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway, SparqlConnection

_FIRST: Final = 500
"""Observations of the first view."""
_SHOWN: Final = 1_000
"""Observations of the page while they change."""
_SLOWER: Final = 4
"""Factor by which the browser's processor is slowed down for the first view."""
_BATCH: Final = 20
"""Values that an update changes at a high rate."""
_GROWTH: Final = 200_000
"""Changes between the two measurements of the heap."""
_PREFIXES: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX unit: <http://qudt.org/1.1/vocab/unit#> PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
"""
_WATCH: Final = """{
  const live = () => document.getElementById('state')?.dataset.state === 'live';
  const look = () => {
    if (live() && document.querySelector('.observation')) globalThis.firstValues ??= performance.now();
    else requestAnimationFrame(look);
  };
  look();
}"""
"""Script that notes when the first values are drawn, in ms since the beginning of the navigation."""
_VALUES: Final = count(1)
"""Each value is another one."""
_DRAWN: Final = "document.querySelectorAll('.observation').length > 10"
_FRAMES: Final = """{
  globalThis.longest = 0;
  let last = performance.now();
  const frame = (now) => { longest = Math.max(longest, now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""
"""Script that notes the longest time between two frames, in ms."""

_MEANINGS: Final = {
    "first_kb": f"KB that the page loads until live values show, {_FIRST} observations",
    "first_ms": f"ms until then, with a processor {_SLOWER} times as slow",
    "core_percent": f"core of the browser at 1,000 changes a second over a page of {_SHOWN} values, %",
    "frame_ms": "longest time between two frames meanwhile, ms",
    "gateway_percent": "core of the gateway for an open page at 100 changes a second, %",
    "heap_growth": f"memory of the page after {_GROWTH:,} further changes / before",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure a new gateway and a new browser in each run."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in steps(range(options.runs), "application"):
        try:
            for name, value in asyncio.run(_measure(small=options.small)).items():
                found[name].append(value)
        except BrowserError as error:
            raise ExperimentError(str(error)) from None
    figures = [Figure(name, meaning, found[name]) for name, meaning in _MEANINGS.items()]
    return ExperimentReport("application", options.mode, {}, figures)


async def _measure(*, small: bool) -> dict[str, float]:
    seconds = 1.0 if small else 10.0
    settings = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"}
    with TemporaryDirectory(prefix="edge-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        (directory / "data").mkdir()
        with BenchGateway(directory / "data", **settings) as gateway:
            async with SparqlConnection(gateway.endpoints["http"]) as client:
                await _observe(client, range(_FIRST))
                async with _browser(directory / "first") as (_, page):
                    found = await _first_view(page, gateway)
                await _observe(client, range(_FIRST, _SHOWN))
                await _change(client, 1, updates=100, size=1)  # the first ones take longer
                idle = await _cost(gateway, client, seconds)
                async with _browser(directory / "shown") as (chromium, page):
                    await page.size(1280, 900)
                    await page.open(gateway.endpoints["http"])
                    await page.wait_for(_DRAWN, 60)
                    found["gateway_percent"] = await _cost(gateway, client, seconds) - idle
                    found |= await _changes(chromium, page, client, seconds)
                    found["heap_growth"] = await _growth(page, client, _GROWTH // 100 if small else _GROWTH)
    return found


@asynccontextmanager
async def _browser(profile: Path) -> AsyncIterator[tuple[Chromium, Page]]:
    browser = Chromium.start(profile)
    try:
        yield browser, await Page.new(browser)
    finally:
        browser.quit()


async def _first_view(page: Page, gateway: BenchGateway) -> dict[str, float]:
    await page.size(1280, 900)
    await page.command("Emulation.setCPUThrottlingRate", rate=_SLOWER)
    await page.command("Page.enable")
    await page.command("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
    await page.open(gateway.endpoints["http"])
    await page.wait_for("globalThis.firstValues !== undefined", 60)
    ms = float(await page.evaluate("firstValues"))
    begin = next(each["params"] for each in page.events if each["method"] == "Network.requestWillBeSent")["timestamp"]
    loaded = [each["params"] for each in page.events if each["method"] == "Network.loadingFinished"]
    needed = [each["encodedDataLength"] for each in loaded if each["timestamp"] < begin + ms / 1000]
    return {"first_ms": ms, "first_kb": sum(needed) / 1000}


async def _cost(gateway: BenchGateway, client: SparqlConnection, seconds: float) -> float:
    """Return the CPU time of the gateway at 100 changes a second, in percent of a core."""
    before = gateway.cpu_seconds
    await _change(client, seconds, updates=100, size=1)
    return 100 * (gateway.cpu_seconds - before) / seconds


async def _changes(chromium: Chromium, page: Page, client: SparqlConnection, seconds: float) -> dict[str, float]:
    await page.evaluate(_FRAMES)
    before = _page_seconds(chromium)
    await _change(client, seconds, updates=1000 // _BATCH, size=_BATCH)
    cpu = _page_seconds(chromium) - before
    return {"core_percent": 100 * cpu / seconds, "frame_ms": float(await page.evaluate("longest"))}


def _page_seconds(chromium: Chromium) -> float:
    """Return the CPU time of all processes that run pages. Those other than the measured one are empty and idle."""
    seconds = 0.0
    for child in psutil.Process(chromium.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "--type=renderer" in child.cmdline():
                times = child.cpu_times()
                seconds += times.user + times.system
    return seconds


async def _growth(page: Page, client: SparqlConnection, changes: int) -> float:
    # The first changes let the browser compile what they need.
    await _change(client, 0, updates=changes // _SHOWN // 4, size=_SHOWN)
    before = await _heap(page)
    await _change(client, 0, updates=changes // _SHOWN, size=_SHOWN)
    return await _heap(page) / before


async def _heap(page: Page) -> float:
    await asyncio.sleep(0.5)
    await page.command("HeapProfiler.collectGarbage")
    return float((await page.command("Runtime.getHeapUsage"))["usedSize"])


async def _observe(client: SparqlConnection, numbers: range) -> None:
    """Add observations with a place, a label and a unit."""
    triples = [
        f'<urn:o:{number}> a sosa:Observation ; rdfs:label "Temperature {number}" ; sosa:hasResult <urn:r:{number}> ; '
        f"sosa:hasFeatureOfInterest <urn:place:{number % 20}> . "
        f"<urn:r:{number}> a qudt:QuantityValue ; qudt:numericValue {number} ; qudt:unit unit:DegreeCelsius ."
        for number in numbers
    ]
    await client.update(f"{_PREFIXES} INSERT DATA {{ {' '.join(triples)} }}")


async def _change(client: SparqlConnection, seconds: float, *, updates: int, size: int) -> None:
    """Change values: `updates` a second for this time (0: so many at once), each of `size` values, in turn."""
    began = time.perf_counter()
    for number in range(round(updates * seconds) if seconds else updates):
        if seconds:
            await asyncio.sleep(max(0.0, began + number / updates - time.perf_counter()))
        rows = " ".join(f"(<urn:r:{(number * size + step) % _SHOWN}> {next(_VALUES)}.5)" for step in range(size))
        await client.update(
            f"{_PREFIXES} DELETE {{ ?r qudt:numericValue ?old }} INSERT {{ ?r qudt:numericValue ?new }} "
            f"WHERE {{ VALUES (?r ?new) {{ {rows} }} ?r qudt:numericValue ?old }}"
        )
