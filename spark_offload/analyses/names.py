"""Short names for the IRIs of a column: the parts that distinguish them, without common beginnings and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Final

_ENDS: Final = re.compile(r"[/#:]+")


def short_names(iris: Iterable[str], parts: int = 1) -> dict[str, str]:
    """Return a unique short name for each IRI, cut at `/`, `#` or `:`. A single IRI keeps its last `parts` parts."""
    different = sorted(set(iris))
    if len(different) == 1:
        cuts = [0, *(found.end() for found in _ENDS.finditer(different[0].rstrip("/#:")))]
        return {different[0]: different[0][cuts[-min(parts, len(cuts))] :]}
    begin = max([0, *(found.end() for found in _ENDS.finditer(_shared(different)))])
    rest = [iri[begin:] for iri in different]
    end = _shared([iri[::-1] for iri in rest]).rfind("/") + 1
    names = [name[: len(name) - end] for name in rest]
    # An IRI that is the beginning of all the others would get an empty name. Then all keep their full IRIs.
    return dict(zip(different, names if all(names) else different, strict=True))


def _shared(texts: list[str]) -> str:
    """Return the longest common prefix. It is that of the smallest and the greatest text."""
    if not texts:
        return ""
    pairs = zip(min(texts), max(texts), strict=False)
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
