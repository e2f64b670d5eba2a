"""Short names for IRIs that stand below each other: without what they all begin and end with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

_PART = re.compile(r"[^/#:]*[/#:]?$")


def short_names(iris: Iterable[str]) -> dict[str, str]:
    """Each text and its short name, cut at `/`, `#`, `:`; one alone keeps its last part. None is that of two."""
    different = sorted(set(iris))
    begin = len(_PART.sub("", _shared(different)))
    rest = [iri[begin:] for iri in different]
    backwards = _shared([iri[::-1] for iri in rest]) if len(rest) > 1 else ""
    end = backwards.rfind("/") + 1
    return {iri: name[: len(name) - end] or iri for iri, name in zip(different, rest, strict=True)}


def _shared(texts: list[str]) -> str:
    """What all begin with."""
    if not texts:
        return ""
    pairs = zip(min(texts), max(texts), strict=False)
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
