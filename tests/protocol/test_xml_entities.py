"""XML entities that are safe to replace, and others."""

from __future__ import annotations

import pytest

from edge.protocol.xml_entities import has_large_entities

OWL = b"<!DOCTYPE rdf:RDF [ <!ENTITY owl \"http://www.w3.org/2002/07/owl#\" >\n <!ENTITY xsd 'http://x#'>]>"


@pytest.mark.parametrize("document", [b"", b"<a>&lt;&#65;</a>", OWL, OWL + b"<a>&owl;Class &xsd;int</a>" * 1000])
def test_prefixes_are_safe(document):
    assert not has_large_entities(document)


@pytest.mark.parametrize(
    "document",
    [
        b'<!ENTITY a "x"><!ENTITY b "&a;&a;">',
        b"<!ENTITY a 'x'><!ENTITY b '&#38;a;'>",
        b'<!ENTITY a "x"><!ENTITY % b "y">',
        b'<!ENTITY a SYSTEM "file:///etc/passwd">',
        b'<!ENTITY a "%b;"><!ENTITY b"c">',
        b'<!ENTITY a "' + b"x" * 100_000 + b'">' + b"&a;" * 101,
        b'<!ENTITY a "x',
    ],
)
def test_nested_long_external_and_unusual_entities_are_not(document):
    assert has_large_entities(document)
