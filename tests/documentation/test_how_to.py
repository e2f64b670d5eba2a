"""The commands, mappings and messages of the how-to pages give what the pages say."""

from __future__ import annotations

import shutil

import pytest
from page import DOCS, Reader, blocks
from sepa_edge_appliance import provisioning

SETTINGS = {
    "how-to/discovery.md": {"EDGE__DISCOVERY__HOME_ASSISTANT": "true"},
    "how-to/home-assistant.md": {"EDGE__ANNOUNCE__HOME_ASSISTANT": "true"},
}
"""Settings of the gateway of a page, if not the default ones."""
PAGES = sorted(f"how-to/{path.name}" for path in (DOCS / "how-to").glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_give_the_results_of_the_page(page, tmp_path):
    used = "\n".join(block.text for block in blocks(page) if block.role != "not run")
    for program in ("mosquitto_pub", "curl"):
        if program in used and shutil.which(program) is None:
            pytest.skip(f"no {program} here; install the packages mosquitto-clients and curl")
    home = tmp_path / "home"
    home.mkdir()
    reader = Reader(home, SETTINGS.get(page))
    try:
        for block in blocks(page):
            reader.do(block)
    finally:
        reader.close()


def test_a_box_accepts_the_provisioning_file(tmp_path):
    (text,) = (block.text for block in blocks("how-to/many-boxes.md") if block.title == "provision.toml")
    (tmp_path / "provision.toml").write_text(text)
    wanted = provisioning.read(tmp_path / "provision.toml")
    assert wanted.hostname == "edge-hall"
    assert wanted.devices == (("kitchen", "a long password of the device"),)
    assert wanted.history.url == "https://history.example:8500"
