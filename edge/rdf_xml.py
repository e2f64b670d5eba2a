"""What RDF/XML cannot represent (https://www.w3.org/TR/rdf-syntax-grammar/)."""

from __future__ import annotations

import re
from typing import Final

_LOCAL_NAME: Final = re.compile(r"[^\W\d][\w.\-]*\Z")


def is_element_name(predicate: str) -> bool:
    """Return whether the IRI of a predicate ends with a name for an XML element, as section 2.2 requires."""
    return _LOCAL_NAME.search(predicate) is not None
