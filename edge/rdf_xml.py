"""Limits of RDF/XML (https://www.w3.org/TR/rdf-syntax-grammar/)."""

from __future__ import annotations

import re
from typing import Final

_LOCAL_NAME: Final = re.compile(r"(?![\w.\-])[\x00-\x7f][0-9.\-]*[A-Za-z_][A-Za-z0-9_.\-]*\Z")
"""End of an IRI with a name in ASCII. Parsers do not agree which other characters names of XML elements may have."""
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RESERVED: Final = frozenset(
    {
        *(_RDF + name for name in ("RDF", "ID", "about", "parseType", "resource", "nodeID", "datatype", "Description")),
        *(_RDF + name for name in ("li", "aboutEach", "aboutEachPrefix", "bagID")),
    }
)
"""Names with a meaning of their own in RDF/XML (sections 5.1 and 7.2.14)."""


def is_element_name(predicate: str) -> bool:
    """Return whether the IRI of a predicate can be the name of an XML element, as section 2.2 requires."""
    return predicate not in _RESERVED and _LOCAL_NAME.search(predicate) is not None
