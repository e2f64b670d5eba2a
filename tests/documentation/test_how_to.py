"""The commands, mappings and messages of the how-to pages give what the pages say, and their pictures show it."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import httpx
import pytest
from page import DOCS, Block, Reader, blocks
from pictures import TAKE, check, prepare, shows, take
from sepa_edge_appliance import provisioning

from tests.adapters.modbus_simulator import Simulator, words
from tests.support.browser import Browser
from tests.support.dashboards import infinity_queries
from tests.support.processes import free_port
from tests.support.waiting import eventually

SETTINGS = {
    "how-to/bluetooth.md": {"EDGE__MAPPINGS__PACKS": '["openmqttgateway"]'},
    "how-to/discovery.md": {"EDGE__DISCOVERY__HOME_ASSISTANT": "true"},
    "how-to/home-assistant.md": {"EDGE__ANNOUNCE__HOME_ASSISTANT": "true"},
    "how-to/lorawan.md": {"EDGE__MAPPINGS__PACKS": '["chirpstack", "thethingsstack"]'},
    "how-to/rf433.md": {"EDGE__MAPPINGS__PACKS": '["rtl_433", "openmqttgateway"]'},
}
"""Settings of the gateway of a page, if not the default ones."""
PAGES = sorted(f"how-to/{path.name}" for path in (DOCS / "how-to").glob("*.md"))
SHOWN = {
    "how-to/bluetooth.md": {"MJ_HT_V1": "61.4 26", "THB1-3F9E5D": "60.72 17.94 2.748"},
    "how-to/discovery.md": {"Cellar": "13.1"},
    "how-to/esphome.md": {"kitchen": "21.4 Open"},
    "how-to/home-assistant.md": {"home-assistant": "17.5 Open"},
    "how-to/lorawan.md": {"bench-12": "40 23.5"},
    "how-to/modbus.md": {"meter": "0.37 12.5 1,523.25 50 0.98 84.5 231.4"},
    "how-to/rf433.md": {"Acurite-Tower/A/8623": "44 21.3", "Fineoffset-WHx080/5": "135.3 0.2 3.672"},
    "how-to/shelly.md": {"shellyplus1pm-a8032ab636ec": "6.532 8.9 On 39.9 237.5"},
    "how-to/tasmota.md": {"plug": "On 42 12.345 231"},
    "how-to/web-of-things.md": {"lamp": "10 Off"},
    "how-to/zigbee2mqtt.md": {"hall": "21.46 2.9", "lamp": "100 Off"},
}
"""The values that the picture of a page shows, by place."""
WITHOUT_PAGE = {"pepoli", "senml"}
"""Packs of no product: the network of the paper, and a format of messages."""
METER = {0x00: 231.4, 0x06: 0.37, 0x0C: 84.5, 0x1E: 0.98, 0x46: 50.0, 0x48: 1523.25, 0x4A: 12.5}
"""Input registers of the energy meter, by address."""


@pytest.fixture
async def screen(request) -> AsyncIterator[Browser | None]:
    """A page of a browser, if pictures are taken."""
    if not TAKE:
        yield None
        return
    browser = await Browser.new(request.getfixturevalue("chromium"))
    await prepare(browser, 560)
    yield browser
    await browser.close()


def send(reader: Reader, command: str) -> None:
    """Let the gateway receive, now, the message of a test on the page, with the files that map it."""
    _, _, _, topic, payload, *options = shlex.split(command.replace("\\\n", ""))
    for option, name in pairwise(options):
        if option in ("--file", "-f"):
            text = (reader.home / name).read_text("utf-8")
            (reader.gateway.data_dir / "mappings" / name).write_text(text, "utf-8")
            reader.do(Block("", "", "sh", "", "true\n", ""))  # waits until the gateway has read the file
    if payload.startswith("@"):
        payload = (reader.home / payload[1:]).read_text("utf-8")
    payload = payload.replace("2026-01-15T10:20:30", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}")
    payload = {"Offline": "Online", "offline": "online"}.get(payload, payload)
    reader.do(Block("", "", "sh", "", f"mosquitto_pub -q 1 -t {shlex.quote(topic)} -m {shlex.quote(payload)}\n", ""))


@contextmanager
def meter(reader: Reader) -> Iterator[None]:
    """Simulate the meter of the page on Modbus, over TCP instead of its line."""
    simulator = Simulator(free_port())
    for address, value in METER.items():
        simulator.set(address, words("f", value), "input")
    text, number = re.subn(
        r"device = .*\nbaud = .*",
        f'host = "127.0.0.1"\nport = {simulator.port}',
        (reader.home / "meter.toml").read_text(),
    )
    assert number == 1
    with simulator:
        (reader.gateway.data_dir / "mappings/meter.toml").write_text(text)
        yield


async def picture(reader: Reader, screen: Browser, page: str, image: str, commands: list[str]) -> None:
    """Take the picture of a page: the overview of a gateway that got the messages of the page."""
    polled = page == "how-to/modbus.md"
    with meter(reader) if polled else nullcontext():
        for command in () if polled else commands:
            send(reader, command)
        ask = {"query": "ASK { ?o a <http://www.w3.org/ns/sosa/Observation> }"}  # an empty page begins with a tour
        url = f"{reader.endpoints['http']}/query"
        await eventually(lambda: httpx.get(url, params=ask).json()["boolean"])
        await screen.open(reader.endpoints["http"])
        await shows(screen, SHOWN[page], image)
        await take(screen, (DOCS / page).parent / image)
    assert screen.problems() == []


@pytest.mark.parametrize("page", PAGES)
async def test_the_examples_give_the_results_of_the_page(page, screen, tmp_path):
    used = "\n".join(block.text for block in blocks(page) if block.role != "not run")
    for program in ("mosquitto_pub", "curl"):
        if program in used and shutil.which(program) is None:
            pytest.skip(f"no {program} here; install the packages mosquitto-clients and curl")
    home = tmp_path / "home"
    home.mkdir()
    reader = Reader(home, SETTINGS.get(page))
    tested: list[str] = []
    try:
        for block in blocks(page):
            if not block.image:
                reader.do(block)
            elif screen:
                await picture(reader, screen, page, block.image, tested)
            if block.language == "console" and not block.role:
                tested += [command for command, _ in block.commands() if command.startswith("edge mapping test ")]
        if page == "how-to/grafana.md":
            dashboard_gets_values(reader.endpoints["http"])
    finally:
        reader.close()


def test_each_pack_has_a_page_with_a_picture():
    images = [f"how-to/{block.image}" for page in SHOWN for block in blocks(page) if block.image]
    check(images, most=60_000)
    assert sum((DOCS / image).stat().st_size for image in images) < 400_000
    assert {f"how-to/images/{file.name}" for file in (DOCS / "how-to/images").iterdir()} == set(images)
    texts = [(DOCS / page).read_text("utf-8") for page in SHOWN]
    packs = {file.stem for file in (DOCS.parent / "edge/device_mappings").glob("*.toml")}
    named = {
        pack
        for pack in packs
        for text in texts
        if re.search(rf'packs? `{pack}`|^packs = \["(?:\w+", ")?{pack}"', text, re.MULTILINE)
    }
    assert packs - named == WITHOUT_PAGE


def dashboard_gets_values(gateway: str) -> None:
    """Send the requests of the dashboard as the data source Infinity does, and compare the answers."""
    now = datetime.now(UTC)
    values = {"label": "kitchen", "observation:raw": ""}
    values |= {"__from:date:iso": (now - timedelta(hours=1)).isoformat(), "__to:date:iso": now.isoformat()}
    first = []
    for query in infinity_queries("values.json"):
        options = query["url_options"]
        form = {pair["key"]: pair["value"] for pair in options.get("body_form", options.get("params"))}
        for name, value in values.items():
            form = {key: text.replace(f"${{{name}}}", value) for key, text in form.items()}
        sent = {"data": form} if options["method"] == "POST" else {"params": form}
        headers = {pair["key"]: pair["value"] for pair in options.get("headers", [])}
        url = query["url"].replace("${gateway}", gateway)
        answer = httpx.request(options["method"], url, headers=headers, **sent)
        assert answer.headers["content-type"].startswith("text/csv"), answer.text
        row = next(csv.DictReader(answer.text.splitlines()))
        first.append({column["selector"]: row[column["selector"]] for column in query["columns"]})
        values["observation:raw"] = row.get("observation", values["observation:raw"])
    choice, newest, of_property, point = first
    assert choice["label"] == "temperature of hall"
    assert (newest["label"], newest["value"], newest["unit"]) == ("temperature of kitchen", "21.5", "DegreeCelsius")
    assert [of_property[name] for name in ("property", "sensors", "min", "mean", "max")] == [
        *("temperature", "2", "18.25", "19.875", "21.5")
    ]
    assert (point["value"], point["observation"]) == ("18.25", choice["observation"])


def test_a_box_accepts_the_provisioning_file(tmp_path):
    (text,) = (block.text for block in blocks("how-to/many-boxes.md") if block.title == "provision.toml")
    (tmp_path / "provision.toml").write_text(text)
    wanted = provisioning.read(tmp_path / "provision.toml")
    assert wanted.hostname == "edge-hall"
    assert wanted.devices == (("kitchen", "a long password of the device"),)
    assert wanted.history.url == "https://history.example:8500"
