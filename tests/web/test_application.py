"""The application as files: served with a strict policy, complete, unchanged libraries, every text in each language."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import struct
import zlib
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from edge.gates.http import HttpGate, icons
from edge.gates.http import page as application
from edge.gates.http.page import FILES
from edge.gates.settings import HttpGateSettings
from edge.mapping import terms
from edge.metrics import Metrics
from edge.protocol import errors
from edge.sparql.explanation import NAMESPACES

WEB = Path(__file__).resolve().parents[2] / "edge" / "web"
BUDGET = 60_000
"""Compressed bytes of all files that are needed until live values show."""
LANGUAGES = ("en", "it", "de")
ADDRESS = re.compile(r"""(?:https?|wss?)://[^\s"'`<>]+""")
VOCABULARIES = {urlsplit(iri).hostname for iri in [*NAMESPACES.values(), *terms.NAMESPACES.values()]}


def sources() -> dict[str, str]:
    """Our own modules, by path."""
    modules = (path for path in WEB.rglob("*.js") if "vendor" not in path.parts)
    return {f"/{path.relative_to(WEB)}": path.read_text(encoding="utf-8") for path in modules}


def first_view() -> set[str]:
    """The modules that live values need: those that `app.js` imports, and theirs, but no page that is loaded later."""
    page = (WEB / "index.html").read_text(encoding="utf-8")
    imports = json.loads(re.findall(r'<script type="importmap">(.*?)</script>', page)[0])["imports"]
    libraries = {name: urljoin("/", path) for name, path in imports.items()}
    found: set[str] = set()
    waiting = ["/app.js"]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        text = (WEB / path.lstrip("/")).read_text(encoding="utf-8")
        names = re.findall(r"""(?:^|[;}])\s*(?:import|export)\b[^"'();=]*?["']([^"']+)["']""", text, re.MULTILINE)
        waiting += [libraries[name] if name in libraries else urljoin(path, name) for name in names]
    return found


def texts_of(file: str) -> dict[str, str]:
    """Texts by key; plural forms as one text."""
    text = (WEB / "texts" / file).read_text(encoding="utf-8")
    return dict(re.findall(r'^  "([a-z0-9_.-]+)": (.*),$', text, re.MULTILINE))


def catalogue(language: str) -> dict[str, str]:
    """All texts of a language: those of the first view, and those of the pages that are loaded later."""
    first, later = texts_of(f"{language}.js"), texts_of(f"pages/{language}.js")
    assert not first.keys() & later.keys()
    return first | later


def used_in(keys: set[str], code: str) -> set[str]:
    """The keys that occur in code, literally or with a variable part."""
    families = [re.escape(found) for found in re.findall(r"\b(?:t|has)\(`([a-z.]+)\$\{", code)]
    families += [re.escape(prefix) + r"\." for prefix in re.findall(r'prefix="(\w+)"', code)]
    return {key for key in keys if f'"{key}"' in code or any(re.match(family, key) for family in families)}


async def test_files_are_served_with_a_strict_policy_and_revalidated(served):
    plain = {"Accept-Encoding": "identity"}
    async with httpx.AsyncClient(base_url=served.url) as http:
        for path, media_type in FILES.items():
            answer = await http.get(path, headers=plain)
            assert answer.status_code == 200
            assert answer.headers["content-type"] == media_type
            assert answer.headers["x-content-type-options"] == "nosniff"
            if media_type.startswith(("text/html", "image/svg+xml")):
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert f"ws://localhost:{served.ws_port}" in policy
            again = await http.get(path, headers=plain | {"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


async def test_a_file_that_was_replaced_is_not_kept_as_one_of_the_version(served, monkeypatch):
    """Between the installation of an update and the restart, the running gateway has files of both versions."""
    monkeypatch.setitem(application._digests(), "/pages/engine.js", b"the digest before the update")
    application._load.cache_clear()
    async with httpx.AsyncClient(base_url=served.url) as http:
        kept = [
            "immutable" in (await http.get(f"/files/{application._version()}{path}")).headers["cache-control"]
            for path in ("/pages/engine.js", "/app.js")
        ]
    application._load.cache_clear()
    assert kept == [False, True]


async def test_a_browser_keeps_the_files_of_a_version(served):
    """The addresses in the page have the version, so that a second visit requests only the page."""
    async with httpx.AsyncClient(base_url=served.url) as http:
        page = (await http.get("/")).text
        addresses = re.findall(r'(?:(?:href|src)="|"\./)([^"]+\.(?:js|css))"', page)
        assert {f"/{each.split('/', 2)[2]}" for each in addresses} >= {*first_view(), "/style.css"}
        (versions,) = {tuple(each.split("/")[:2]) for each in addresses}
        for each in addresses:
            answer = await http.get(f"/{each}")
            assert answer.content == (WEB / each.split("/", 2)[2]).read_bytes()
            assert "immutable" in answer.headers["cache-control"]
        # A page that was opened before an update may still load the others.
        assert (await http.get("/files/old/app.js")).headers["cache-control"] == "no-cache"
        for name in ("", "no.js", "index.html", "vendor/manifest.json", "../page.py"):
            assert (await http.get(f"/{'/'.join(versions)}/{name}")).status_code == 404, name


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("gzip;q=0.00, br", False), ("identity", False)],
)
async def test_files_are_compressed_for_clients_that_accept_it(served, accepted, compressed):
    async with (
        httpx.AsyncClient(base_url=served.url) as http,
        http.stream("GET", "/app.js", headers={"Accept-Encoding": accepted}) as answer,
    ):
        raw = b"".join([part async for part in answer.aiter_raw()])
    assert (answer.headers.get("content-encoding") == "gzip") is compressed
    assert "Accept-Encoding" in answer.headers["vary"]
    assert (gzip.decompress(raw) if compressed else raw) == (WEB / "app.js").read_bytes()


async def test_a_name_that_a_client_makes_up_does_not_get_into_the_policy(served):
    gate = HttpGate(served.engine, HttpGateSettings(port=0, hosts=("*",)), Metrics())
    async with httpx.AsyncClient(base_url=f"http://localhost:{await gate.start()}") as http:
        assert (await http.get("/", headers={"Host": "a;script-src *"})).status_code == 400
        hostile = await http.get("/", headers={"Host": "a;script-src*"})
        assert "a;script-src" not in hostile.headers["content-security-policy"]
    await gate.stop()


def test_the_files_name_no_other_host():
    for path in WEB.rglob("*"):
        if path.suffix not in {".js", ".css", ".html", ".webmanifest"} or "vendor" in path.parts:
            continue
        hosts = {urlsplit(found).hostname for found in ADDRESS.findall(path.read_text(encoding="utf-8"))}
        assert hosts <= VOCABULARIES, path


def test_the_page_preloads_all_modules_of_the_first_view():
    """Without the list, the browser learns of a module only when it has read the one that imports it."""
    preloaded = re.findall(r'rel="modulepreload" href="([^"]+)"', (WEB / "index.html").read_text(encoding="utf-8"))
    assert sorted(urljoin("/", path) for path in preloaded) == sorted(first_view() - {"/app.js"})


def test_the_first_view_is_small():
    modules = first_view()
    assert "/model/live.js" in modules
    assert "/pages/console.js" not in modules
    needed = {*modules, "/texts/de.js", *(path for path in FILES if not path.endswith(".js"))}
    size = sum(len(gzip.compress((WEB / (path.strip("/") or "index.html")).read_bytes(), mtime=0)) for path in needed)
    assert size < BUDGET


def test_the_manifest_has_the_icons_that_phones_need():
    manifest = json.loads((WEB / "manifest.webmanifest").read_text(encoding="utf-8"))
    addresses = [manifest["start_url"], *(icon["src"] for icon in manifest["icons"])]
    assert not [each for each in addresses if each.startswith("/")], "a proxy may serve the page below a path"
    sizes = {icon["src"]: (icon["sizes"], icon["purpose"]) for icon in manifest["icons"] if icon["type"] == "image/png"}
    expected = {name: (f"{side}x{side}", maskable) for name, (side, maskable) in icons.ICONS.items()}
    assert {src.strip("/"): (size, use == "maskable") for src, (size, use) in sizes.items()} == expected
    for src, (size, _) in sizes.items():
        assert FILES[f"/{src}"] == "image/png"
        content = (WEB / src.strip("/")).read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert "{}x{}".format(*struct.unpack(">II", content[16:24])) == size


def test_an_icon_is_the_drawing_of_the_svg():
    """The compressed bytes depend on the version of zlib, the pixels do not."""
    drawing = icons.read((WEB / "favicon.svg").read_text(encoding="utf-8"))
    side, maskable = icons.ICONS["icon-192.png"]
    drawn = icons.png(icons.pixels(drawing, side, maskable=maskable), drawing)
    assert filtered_rows((WEB / "icon-192.png").read_bytes()) == filtered_rows(drawn), "run edge.gates.http.icons"


def filtered_rows(image: bytes) -> bytes:
    """The content of the only IDAT chunk of a PNG, without its compression."""
    begin = image.index(b"IDAT")
    return zlib.decompress(image[begin + 4 : begin + 4 + int.from_bytes(image[begin - 4 : begin])])


def test_a_drawing_that_is_not_understood_is_refused():
    svg = (WEB / "favicon.svg").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="not a rectangle"):
        icons.read(svg.replace("rect", "circle"))
    with pytest.raises(ValueError, match='the command "c"'):
        icons.read(svg.replace("h5l3", "h5c3"))


def test_the_console_knows_the_prefixes_of_the_error_messages():
    text = sources()["/model/prefixes.js"]
    known = text[text.index("{") : text.index("}")]
    assert dict(re.findall(r'(\w+): "([^"]+)"', known)) == NAMESPACES


def test_the_libraries_are_those_of_the_manifest():
    files = json.loads((WEB / "vendor" / "manifest.json").read_text(encoding="utf-8"))["files"]
    for each in files:
        content = (WEB / "vendor" / each["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == each["sha256"], each["file"]
        assert each["licence"] in {"MIT", "Apache-2.0"}
        assert (WEB / "vendor" / each["licence_file"]).stat().st_size > 1000
        assert re.fullmatch(r"\d+\.\d+\.\d+", each["version"])
    present = {path.name for path in (WEB / "vendor").iterdir() if path.is_file()}
    assert present == {each["file"] for each in files} | {"manifest.json"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_catalogue_has_every_text_with_the_same_placeholders(language):
    english, other = catalogue("en"), catalogue(language)
    assert len(english) > 100
    assert list(other) == list(english)
    for key, text in other.items():
        assert set(re.findall(r"{(\w+)}", text)) == set(re.findall(r"{(\w+)}", english[key])), key
        assert text.startswith("{ one:") is english[key].startswith("{ one:"), key


def test_the_pages_use_exactly_the_texts_of_the_catalogues():
    code = "\n".join(text for path, text in sources().items() if not path.startswith("/texts/"))
    keys = set(catalogue("en"))
    assert keys - used_in(keys, code) == set(), "unused"
    asked = set(re.findall(r'\bt\("([^"]+)"', code))
    assert asked <= keys


def test_each_error_of_the_gateway_has_a_text():
    codes = {
        each.error for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.EdgeError)
    }
    assert {f"error.{code}" for code in codes} <= set(catalogue("en"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_view_has_its_texts_and_no_others(language):
    modules = sources()
    code = "\n".join(modules[path] for path in first_view() if path in modules)
    assert set(texts_of(f"{language}.js")) == used_in(set(catalogue(language)), code)


@pytest.mark.parametrize(
    ("accepted", "language"),
    [("it-CH,it;q=0.9,en;q=0.8", "it"), ("fr-FR, de;q=0.5", "de"), ("fr", "en"), ("", "en"), (",;q=1,../x", "en")],
)
async def test_the_browser_loads_the_texts_of_its_language_early(served, accepted, language):
    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.get("/", headers={"Accept-Language": accepted})
    assert re.fullmatch(rf"<files/\w+/texts/{language}\.js>; rel=modulepreload", answer.headers["link"])
    assert "Accept-Language" in answer.headers["vary"]
