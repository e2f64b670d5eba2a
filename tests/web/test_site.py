"""The documentation site builds without warnings, and works from the file system without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import edge.client
import edge.jsap

ROOT = Path(__file__).resolve().parents[2]
LOADED = {"src", "srcset", "data", "poster", "background"}
"""Attributes whose address a browser loads by itself. It also loads the `href` of <link>."""


class Loads(HTMLParser):
    """Collects the addresses that a browser loads with a page, and the text of its styles and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.code = ""
        self._in_code = False

    def handle_starttag(self, tag, attrs):
        self._in_code = tag in ("style", "script")
        loaded = LOADED | {"href"} if tag in ("link", "use", "image") else LOADED
        self.addresses += [value for name, value in attrs if name in loaded and value]

    def handle_endtag(self, tag):
        self._in_code = False

    def handle_data(self, data):
        if self._in_code:
            self.code += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the directory of the built site."""
    where = tmp_path_factory.mktemp("site")
    # Not with --quiet, which suppresses warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return where


def test_no_page_loads_anything_from_another_host(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert loads.addresses
        assert [address for address in loads.addresses if re.match(r"([a-z]+:)?//", address)] == [], page
        assert not re.search(r"(url\(|@import|fetch\(|import\()[\s\"']*(https?:)?//", loads.code), page
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)[\s\"']*(https?:)?//", style.read_text()), style


def test_every_request_of_the_http_interface_is_described(site):
    page = (site / "reference/http.html").read_text()
    description = (ROOT / "edge/gates/http/openapi.yaml").read_text()
    paths = re.findall(r"^  (/[^:]*):", description, re.MULTILINE)
    assert len(paths) > 15
    assert [path for path in paths if f"{path}</code>" not in page] == []


@pytest.mark.parametrize("package", [edge.client, edge.jsap])
def test_the_public_names_are_described(site, package):
    page = (site / "reference/python.html").read_text()
    shown = set(re.findall(rf'id="{re.escape(package.__name__)}(?:\.\w+)*\.(\w+)"', page))
    assert set(package.__all__) - shown == set()


async def test_the_search_works_from_the_file_system(site, browser):
    await browser.open(f"file://{site}/index.html")
    await browser.wait_for("document.querySelector('[data-md-component=search-query]') !== null")
    await browser.evaluate(
        "document.getElementById('__search').click();"
        "const query = document.querySelector('[data-md-component=search-query]');"
        "query.focus(); query.value = 'conflation'; query.dispatchEvent(new Event('input', {bubbles: true}));"
        "query.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))"
    )
    await browser.wait_for("document.querySelector('.md-search-result__link[href*=glossary]') !== null")
    requests = [event["params"] for event in browser.events if event["method"] == "Network.requestWillBeSent"]
    addresses = {request["request"]["url"] for request in requests}
    assert addresses
    assert {address for address in addresses if not address.startswith(("file://", "data:", "blob:"))} == set()
    assert browser.problems() == []
