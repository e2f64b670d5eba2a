"""URLs to which reports may be sent."""

from __future__ import annotations

import pytest

from edge.protocol.errors import EdgeError, Forbidden, InvalidRequest
from edge.streams.callback_hosts import CallbackHosts, check, target_of


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "example.org",
        "http://",
        "http:///path",
        "http://user@example.org/",
        "http://user:secret@example.org/",
        "http://@example.org/",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:x/",
        "http://exam ple.org/",
        "http://example.org/\r\nA: b",
        "http://example.org/\t",
        "http://ex\u00e4mple.org/",
        "http://example.org\\@evil.org/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://a..b/",
        "http://" + "a" * 64 + ".org/",
        "http://example.org/" + "a" * 2_000,
        "",
    ],
)
def test_invalid_urls_are_refused_even_if_all_hosts_are_allowed(url: str) -> None:
    with pytest.raises(InvalidRequest):
        check(url, security=False, listed=["*"])


PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0",
    "0.0.0.0",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[fd00::1]",
    "[fe80::1]",
    "[::ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[2002:7f00:1::]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::10.0.0.1]",
    "[::ffff:0:7f00:1]",
    "[::ffff:0:192.168.1.1]",
    "[fec0::1]",
    "[feff::1]",
    "[100:0:0:1::1]",
    "[5f00::1]",
    "[4000::1]",
]
MULTICAST = ["224.0.0.1", "239.1.1.1", "[ff02::1]", "[ff0e::1]", "[::ffff:0:224.0.0.1]"]


@pytest.mark.parametrize("host", [*PRIVATE, *MULTICAST])
def test_hosts_that_are_not_public_need_an_entry_with_security(host: str) -> None:
    url = f"http://{host}:8080/"
    with pytest.raises(Forbidden, match=r"streams\.callback_hosts"):
        check(url, security=True, listed=["example.org", "8.8.8.0/24"])
    check(url, security=True, listed=["*"])
    for entry in (host, f"{host}:8080"):
        check(url, security=True, listed=[entry])
    with pytest.raises(Forbidden):
        check(url, security=True, listed=[f"{host}:8081"])
    if host in MULTICAST:
        with pytest.raises(EdgeError):
            check(url, security=False, listed=[])
    else:
        check(url, security=False, listed=[])


@pytest.mark.parametrize("host", ["example.org", "8.8.8.8", "[2606:4700::1111]", "[64:ff9b::8.8.8.8]", "printer.local"])
def test_public_hosts_and_names_need_no_entry(host: str) -> None:
    check(f"https://{host}/a", security=True, listed=[])


@pytest.mark.parametrize("host", ["10.1.2.3", "[::ffff:10.1.2.3]", "[64:ff9b::10.1.2.3]", "[::ffff:0:a01:203]"])
def test_networks_are_allowed_by_entry(host: str) -> None:
    for entry in ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3"):
        check(f"http://{host}/", security=True, listed=[entry])
    for entry in ("10.2.0.0/16", "0.0.0.0/32", "fd00::/8"):
        with pytest.raises(Forbidden):
            check(f"http://{host}/", security=True, listed=[entry])


@pytest.mark.parametrize(
    "entry", ["", " ", "a b", "http://x", "10.0.0.1/8", "h:", "h:0", "h:65536", ":80", "a/b", "**"]
)
def test_invalid_entries_are_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"is not|neither"):
        CallbackHosts([entry], security=True)


def test_the_parts_of_a_url() -> None:
    assert target_of("HTTPS://Example.ORG:443/a/../b?c=%20#d") == (
        "https",
        "example.org",
        443,
        "example.org",
        "/a/../b?c=%20",
    )
    assert target_of("http://[::1]:8080?x") == ("http", "::1", 8080, "[::1]:8080", "/?x")
