"""Removal of segments with deleted observations from the landing zone and its quarantine.

A segment that is not in the table yet is sent again if its outbox still has it, and the ingester leaves out the deleted
observations. A gateway that has begun a new epoch does not send segments of earlier ones (`affected` lists them).
"""

from __future__ import annotations

import contextlib
import gzip
import re
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

from edge.outbox.observation import ObservationContext
from edge.outbox.segment import MANIFEST, ROWS, STEM, SegmentManifest
from edge.outbox.segment_validation import MOST_ROW_BYTES
from spark_offload.deletions import Filter, digest
from spark_offload.landing import QUARANTINE, REASON, LandingZone, OutboxEpoch, PendingSegment, age
from spark_offload.uploads import KEPT, UPLOADS

_IRI: Final = re.compile(r"<([^<>]*)>")
_UPLOAD: Final = re.compile(r"(.+)\.[0-9a-f]{16}\.[^.]+\..+")


def may_contain(manifest: SegmentManifest, one: Filter) -> bool | None:
    """Return whether a segment has observations of a filter, as far as its manifest tells.

    None: it depends on the quads of its rows.
    """
    if manifest.tombstone or manifest.start >= one.before or (one.gateway and manifest.gateway != one.gateway):
        return False
    wanted = [(name, value) for name in ("sensor", "feature") if (value := getattr(one, name))]
    contexts = manifest.contexts.values()
    if any(all(digest(getattr(context, name) or "") == value for name, value in wanted) for context in contexts):
        return True
    # Rows with quads refer to a context without content. Their quads may name the sensor, and any context the rest.
    return None if any(context == ObservationContext(graph=context.graph) for context in contexts) else False


def remove_segments(landing: LandingZone, one: Filter) -> int:
    """Remove the files of all segments with observations of a filter. Returns the number of files. Raises `OSError`."""
    removed = 0
    for outbox in landing.outboxes():
        if one.gateway in ("", outbox.gateway):
            for segment in landing.segments(outbox):
                if _has(landing, segment, one, unreadable=False):
                    removed += _remove(segment)
            removed += _remove_abandoned(landing, outbox, 0.0 if one.gateway else KEPT)
    for manifest in sorted((landing.folder / QUARANTINE).glob(f"*/*/*{REASON}")):
        gateway, epoch = manifest.parent.parent.name, manifest.parent.name
        stem = manifest.name.removesuffix(REASON)
        if STEM.fullmatch(stem) and one.gateway in ("", gateway):
            segment = PendingSegment.at(manifest.with_name(stem + MANIFEST), gateway, epoch)
            # The gateway has sent a damaged segment again, so that nothing is lost with this copy.
            if _has(landing, segment, one, unreadable=True):
                removed += _remove(segment)
    return removed + _remove_uploads(landing.folder / UPLOADS, one)


def affected(landing: LandingZone, one: Filter, positions: Mapping[OutboxEpoch, int]) -> list[PendingSegment]:
    """Return the segments that `remove_segments` removes and that are not in the table. Raises `OSError`.

    `positions` are the last numbers in the table. Quarantined segments are not included.
    """
    return [
        segment
        for outbox in landing.outboxes()
        if one.gateway in ("", outbox.gateway)
        for segment in landing.segments(outbox)
        if segment.last > positions.get(outbox, 0) and _has(landing, segment, one, unreadable=False)
    ]


def _has(landing: LandingZone, segment: PendingSegment, one: Filter, *, unreadable: bool) -> bool:
    """Return whether a segment has observations of a filter, and `unreadable` if it cannot be read."""
    try:
        manifest = landing.manifest(segment)
        found = may_contain(manifest, one)
        return _quads_name(landing.rows(segment, manifest), one) if found is None else found
    except (FileNotFoundError, gzip.BadGzipFile, EOFError, ValueError, zlib.error):  # also of segments
        return unreadable


def _quads_name(rows: bytes, one: Filter) -> bool:
    wanted = {value for value in (one.sensor, one.feature) if value}
    with gzip.open(BytesIO(rows), "rt", encoding="utf-8", errors="replace", newline="\n") as lines:
        # Not line by line without a limit: a damaged or hostile segment may be a single line.
        some = iter(lambda: lines.readline(MOST_ROW_BYTES), "")
        return any(wanted <= {digest(iri) for iri in _IRI.findall(line)} for line in some)


def _remove(segment: PendingSegment) -> int:
    """Remove the files of a segment, the manifest last: rows without one would block their name."""
    removed = 0
    for path in (segment.rows, segment.manifest, segment.manifest.with_suffix(REASON)):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            removed += 1
    return removed


def _remove_abandoned(landing: LandingZone, outbox: OutboxEpoch, kept: float) -> int:
    """Remove rows without a manifest that are at least `kept` seconds old. Their gateway sends them again."""
    removed = 0
    for rows in sorted((landing.folder / outbox.gateway / outbox.epoch).glob(f"*{ROWS}")):
        base = rows.name.removesuffix(ROWS)
        if STEM.fullmatch(base) and not rows.with_name(base + MANIFEST).exists() and age(rows) >= kept:
            rows.unlink(missing_ok=True)
            removed += 1
    return removed


def _remove_uploads(folder: Path, one: Filter) -> int:
    """Remove incomplete uploads of a gateway, if the filter names one. Others are removed or complete within a day."""
    removed = 0
    for path in sorted(folder.iterdir()) if one.gateway and folder.is_dir() else ():
        found = _UPLOAD.fullmatch(path.name)
        if found and found[1] == one.gateway:
            path.unlink(missing_ok=True)
            removed += 1
    return removed
