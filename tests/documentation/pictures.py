"""Pictures of the gateway's page in the documentation. `make screenshots` takes them again."""

from __future__ import annotations

import os
import re
from io import BytesIO
from pathlib import Path

from page import DOCS

from tests.support.browser import Browser
from tests.support.waiting import eventually

TAKE = os.environ.get("SCREENSHOTS") == "1"
"""`make screenshots` sets it: the tests write the pictures of the pages."""

_COLOURS = 256
_VALUES = (
    "Object.fromEntries([...document.querySelectorAll('.place')].map(place => "
    "[place.querySelector('h2').textContent, "
    "[...place.querySelectorAll('.value')].map(value => value.textContent).join(' ')]))"
)


async def prepare(browser: Browser, height: int) -> None:
    """Set the size of the window, 900 pixels wide, and the colours of a picture."""
    await browser.size(900, height)
    await browser.command("Emulation.setScrollbarsHidden", hidden=True)
    await browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])


async def shows(browser: Browser, values: dict[str, str], image: str) -> None:
    """Wait until the overview shows the values of a picture, by place, and has come to rest."""
    try:
        await eventually(lambda: _equal(browser, values))
    except AssertionError:
        raise AssertionError(f"{image}: {await browser.evaluate(_VALUES)}") from None
    await browser.wait_for("document.querySelector('.changed') === null")
    await browser.wait_for("document.querySelectorAll('.chip').length > 1", seconds=30)  # the gateway's state follows


async def _equal(browser: Browser, wanted: dict[str, str]) -> bool:
    return bool(await browser.evaluate(_VALUES) == wanted)


async def take(browser: Browser, file: Path) -> None:
    """Write the picture, if `TAKE` is set."""
    if TAKE:
        _write(file, await browser.screenshot())


def _write(file: Path, content: bytes) -> None:
    """Write a picture with a palette: about half of the bytes."""
    from PIL import Image  # only pictures need it

    file.parent.mkdir(exist_ok=True)
    Image.open(BytesIO(content)).convert("RGB").quantize(_COLOURS, Image.Quantize.FASTOCTREE).save(file, optimize=True)


def check(images: list[str], *, most: int) -> None:
    """Check that pictures of the documentation are PNG files of fewer than `most` bytes, each with a description."""
    for image in images:
        content = (DOCS / image).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < most, image
        name = Path(image).name
        texts = [file.read_text("utf-8") for file in (DOCS / image).parents[1].glob("*.md")]
        (described,) = (text for found in texts for text in re.findall(rf"!\[([^\]]*)\]\(images/{name}\)", found))
        assert len(described) > 30, image
