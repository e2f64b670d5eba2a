"""The tutorial does what it says, and its pictures are those of the gateway's page."""

from __future__ import annotations

import shutil

import pytest
from page import DOCS, Reader, blocks
from pictures import check, prepare, shows, take

PAGE = "start/tutorial.md"
IMAGES = (DOCS / PAGE).parent
MOST_BYTES = 100_000
SHOWN = {
    "images/first-reading.png": {"kitchen": "48 21.5"},
    "images/own-device.png": {"kitchen": "48 21.9", "bed1": "19.5 Closed", "bed2": "18 Closed"},
    "images/end.png": {"kitchen": "48 21.9", "bed1": "24 Closed", "bed2": "18 Closed"},
}
"""The values that a picture shows, by place."""


@pytest.mark.browser
@pytest.mark.timeout(300)
async def test_the_steps_give_the_results_of_the_page(browser, tmp_path):
    for program in ("mosquitto_pub", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here; install the packages mosquitto-clients and curl")
    home = tmp_path / "home"
    home.mkdir()
    await prepare(browser, 700)
    reader = Reader(home)
    try:
        await browser.open(reader.endpoints["http"])
        for block in blocks(PAGE):
            if block.image:
                await shows(browser, SHOWN[block.image], block.image)
                await take(browser, IMAGES / block.image)
            else:
                reader.do(block)
        assert browser.problems() == []
    finally:
        reader.close()


def test_the_pictures_exist_and_are_small():
    shown = [block.image for block in blocks(PAGE) if block.image]
    assert sorted(shown) == sorted(SHOWN)
    check([f"start/{image}" for image in shown], most=MOST_BYTES)
    assert {f"images/{file.name}" for file in (IMAGES / "images").iterdir()} == set(shown)
