"""Depth of documents, before a parser reads them by recursion."""

from __future__ import annotations

import json

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.load_documents import _parse
from edge.protocol.errors import UpdateFailed
from edge.protocol.nesting import is_deep

JSON_LD, XML = ox.RdfFormat.JSON_LD, ox.RdfFormat.RDF_XML
DEEP = {
    "arrays": (JSON_LD, b"[" * 201 + b"]" * 201),
    "open": (JSON_LD, b"[" * 201),
    "mixed": (JSON_LD, b'{"a":[' * 101),
    "after strings": (JSON_LD, b'["]]]", "\\"]", "\\\\", ' + b"[" * 200),
    "after a string without end": (JSON_LD, b"[" * 201 + b'"'),
    "elements": (XML, b"<a>" * 201 + b"</a>" * 201),
    "open elements": (XML, b"<a>" * 201),
    "comments": (XML, b"<a><!-- </a> -->" * 201),
    "sections": (XML, b"<a><![CDATA[</a>]]>" * 201),
    "attributes": (XML, b"<a b='&lt;/a>'>" * 201),
    "latin-1": (XML, "<a>\xe4".encode("iso-8859-1") * 201),
}
FLAT = {
    "arrays": (JSON_LD, b"[" + b"[]," * 1000 + b"[]]"),
    "strings": (JSON_LD, b'["' + b"[" * 1000 + b'", "\\"' + b"{" * 1000 + b'"]'),
    "at the limit": (JSON_LD, b"[" * 200 + b"]" * 200),
    "elements": (XML, b"<a>" + b"<b></b><c/>" * 1000 + b"</a>"),
    "names": (XML, b"<a>" + "<größe xmlns='urn:ä'/>".encode() * 300 + b"</a>"),
    "declared": (XML, b"<?xml version='1.0' encoding='iso-8859-1'?><a>" + "<b>ä</b>".encode() * 300 + b"</a>"),
    "other formats": (ox.RdfFormat.TURTLE, b"[" * 1000),
}


@pytest.mark.parametrize("name", list(DEEP))
def test_deep_documents(name):
    form, document = DEEP[name]
    assert is_deep(document, form)


@pytest.mark.parametrize("name", list(FLAT))
def test_flat_documents(name):
    form, document = FLAT[name]
    assert not is_deep(document, form)


def test_xml_that_is_not_well_formed_is_not_measured():
    with pytest.raises(ValueError, match="not well-formed"):
        is_deep(b"<a b='</a>'>" * 201, XML)


@given(
    st.recursive(
        st.none() | st.text('[]{}"\\,:a', max_size=8),
        lambda below: st.lists(below) | st.dictionaries(st.text('[{"\\'), below),
    )
)
def test_strings_do_not_count(document):
    around = [document]
    for _ in range(190):
        around = [around]
    assert is_deep(json.dumps(around).encode(), JSON_LD) == (depth(around) > 200)


def depth(document):
    below = document.values() if isinstance(document, dict) else document if isinstance(document, list) else None
    return 0 if below is None else 1 + max(map(depth, below), default=0)


@pytest.mark.parametrize("name", ["arrays", "elements"])
def test_deep_documents_are_not_loaded(name):
    form, document = DEEP[name]
    with pytest.raises(UpdateFailed, match="levels"):
        list(_parse(document * 1000, form, "urn:x"))
