"""The tutorial does what it says, and its pictures are those of the gateway's page."""

from __future__ import annotations

import os
import shutil

import pytest
from page import DOCS, Reader, blocks

from tests.support.browser import Browser
from tests.support.waiting import eventually

PAGE = "start/tutorial.md"
IMAGES = (DOCS / PAGE).parent
TAKE = os.environ.get("SCREENSHOTS") == "1"
"""`make screenshots` sets it: the test writes the pictures of the page."""
MOST_BYTES = 100_000
SHOWN = {
    "images/first-reading.png": {"kitchen": "48 21.5"},
    "images/own-device.png": {"kitchen": "48 21.9", "bed1": "19.5 Closed", "bed2": "18 Closed"},
    "images/end.png": {"kitchen": "48 21.9", "bed1": "24 Closed", "bed2": "18 Closed"},
}
"""The values that a picture shows, by place."""


async def _shows(browser: Browser, values: str, wanted: dict[str, str]) -> bool:
    return bool(await browser.evaluate(values) == wanted)


async def show(browser: Browser, image: str) -> None:
    """Wait until the gateway's page shows the values of a picture; write the picture if `TAKE` is set."""
    values = (
        "Object.fromEntries([...document.querySelectorAll('.place')].map(place => "
        "[place.querySelector('h2').textContent, "
        "[...place.querySelectorAll('.value')].map(value => value.textContent).join(' ')]))"
    )
    try:
        await eventually(lambda: _shows(browser, values, SHOWN[image]))
    except AssertionError:
        raise AssertionError(f"{image}: {await browser.evaluate(values)}") from None
    await browser.wait_for("document.querySelector('.changed') === null")
    await browser.wait_for("document.querySelectorAll('.chip').length > 1", seconds=30)  # the gateway's state follows
    if TAKE:
        await browser.command(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}]
        )
        (IMAGES / image).write_bytes(await browser.screenshot())


@pytest.mark.browser
@pytest.mark.timeout(300)
async def test_the_steps_give_the_results_of_the_page(browser, tmp_path):
    for program in ("mosquitto_pub", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here; install the packages mosquitto-clients and curl")
    home = tmp_path / "home"
    home.mkdir()
    await browser.size(900, 700)
    await browser.command("Emulation.setScrollbarsHidden", hidden=True)
    reader = Reader(home)
    try:
        await browser.open(reader.endpoints["http"])
        for block in blocks(PAGE):
            if block.image:
                await show(browser, block.image)
            else:
                reader.do(block)
        assert browser.problems() == []
    finally:
        reader.close()


def test_the_pictures_exist_and_are_small():
    shown = [block.image for block in blocks(PAGE) if block.image]
    assert sorted(shown) == sorted(SHOWN)
    for image in shown:
        content = (IMAGES / image).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < MOST_BYTES, image
    assert {f"images/{file.name}" for file in (IMAGES / "images").iterdir()} == set(shown)
