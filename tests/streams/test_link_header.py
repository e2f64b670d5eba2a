"""Links in headers of answers."""

from __future__ import annotations

import pytest

from edge.streams import link_header
from edge.streams.link_header import MOST_LINKS, HeaderLink, linked, read_links

URL = "http://example.org/a/b?c"


@pytest.mark.parametrize(
    ("value", "links"),
    [
        ('<http://x.org/>; rel="next"', [("http://x.org/", ("next",))]),
        ("<d>;rel=next", [("http://example.org/a/d", ("next",))]),
        ('</d?e=f,g;h>; rel="urn:a  urn:b"', [("http://example.org/d?e=f,g;h", ("urn:a", "urn:b"))]),
        ('<x>; title="a, <y>; rel=z\\""; REL = "next"', [("http://example.org/a/x", ("next",))]),
        ("<x>; rel=one; rel=two", [("http://example.org/a/x", ("one",))]),
        ("<x>;;rel=one;, , <y>; rel=two", [("http://example.org/a/x", ("one",)), ("http://example.org/a/y", ("two",))]),
        ("<>", [(URL, ())]),
        ("x; rel=one", []),
        ("<x", []),
        ("", []),
        ("<x>; rel=one trash, <y>; rel=two", [("http://example.org/a/x", ("one",))]),
        ("<http://[x>; rel=one, <y>; rel=two", [("http://example.org/a/y", ("two",))]),
        ('<x>; rel="open', [("http://example.org/a/x", ())]),
    ],
    ids=str,
)
def test_links_are_read(value, links):
    found = list(read_links([value], URL))
    assert [(each.target, each.relations) for each in found] == links
    assert {each.context for each in found} <= {URL}


def test_links_with_one_relation():
    values = ["<x>; rel=one, <y>; rel=two, <http://[z>; rel=one", '<z>; rel="two one"']
    found = [each.target for each in read_links(values, URL, "one")]
    assert found == ["http://example.org/a/x", "http://example.org/a/z"]
    assert list(read_links(values, URL, "on")) == []


def test_an_anchor_is_the_context():
    values = ['<x>; rel=one; anchor="#me"', "<x>; rel=one; anchor=http://other.org/"]
    assert list(read_links(values, URL)) == [
        HeaderLink("http://example.org/a/x", ("one",), f"{URL}#me"),
        HeaderLink("http://example.org/a/x", ("one",), "http://other.org/"),
    ]


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("<x>; rel=two, <y>; rel=one, <z>; rel=one", "http://example.org/a/y"),
        ('<x>; rel=one; anchor="#me", <y>; rel=one', "http://example.org/a/y"),
        (f"<x>; rel=one; anchor={URL}", "http://example.org/a/x"),
        ("<x>; rel=one; anchor=b?c", "http://example.org/a/x"),
        ("<x>; rel=one; anchor=http://[x, <http://[y>; rel=one, <z>; rel=one", "http://example.org/a/z"),
        ("<x>; rel=two", ""),
        ("<x>;rel=one;anchor=x," * (MOST_LINKS - 1) + "<y>;rel=one", "http://example.org/a/y"),
        ("<x>;rel=one;anchor=x," * MOST_LINKS + "<y>;rel=one", ""),
        ("<x>;rel=two;anchor=x," * MOST_LINKS + "<y>;rel=one", "http://example.org/a/y"),
    ],
)
def test_the_first_link_of_a_context_is_found(value, target):
    assert linked([value], URL, "one", URL) == target


def test_links_of_other_contexts_are_not_resolved(monkeypatch):
    resolved = []
    urljoin = link_header.urljoin
    monkeypatch.setattr(link_header, "urljoin", lambda *given: resolved.append(given[1]) or urljoin(*given))
    assert linked(["<w>;rel=one;anchor=v, <x>;rel=one, <y>;rel=one"], URL, "one", URL) == "http://example.org/a/x"
    assert resolved == ["v", "x"]


@pytest.mark.parametrize(
    "value", ["<x>" + ";" * 60_000, "<x>" + " " * 60_000 + "=", "<" * 60_000, '<x>;a="' + "\\" * 60_000]
)
def test_long_values_take_little_time(value):
    assert len(list(read_links([value], URL))) <= 1
