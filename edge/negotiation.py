"""Which format a client gets (RFC 9110, section 12.5.1, "Accept")."""

from __future__ import annotations

from collections.abc import Sequence


def choose(accept: str | None, offers: Sequence[str]) -> str | None:
    """The media type among `offers` that the client likes best; the earlier of two that it likes equally.

    `accept` is the header, absent or empty meaning anything. None: it accepts none of them. For each offer the most
    specific range of the header counts, so `text/csv;q=0, */*` is anything but CSV.
    """
    if accept is None or not accept.strip():
        return offers[0]
    ranges = _parse(accept)
    best, best_quality = None, 0.0
    for offer in offers:
        quality = _quality(ranges, offer)
        if quality > best_quality:
            best, best_quality = offer, quality
    return best


def names(accept: str | None, media_type: str) -> bool:
    """Whether the header has this media type itself, and not only a range with it."""
    return media_type in _parse(accept or "")


def _parse(accept: str) -> dict[str, float]:
    ranges: dict[str, float] = {}
    for item in accept.split(","):
        media_range, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                quality = _number(value)
        if media_range:
            ranges[media_range] = max(quality, ranges.get(media_range, 0.0))
    return ranges


def _number(value: str) -> float:
    try:
        return min(max(float(value), 0.0), 1.0)
    except ValueError:
        return 0.0


def _quality(ranges: dict[str, float], offer: str) -> float:
    for media_range in (offer, offer.partition("/")[0] + "/*", "*/*"):
        if media_range in ranges:
            return ranges[media_range]
    return 0.0
