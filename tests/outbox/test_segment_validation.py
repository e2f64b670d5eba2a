"""The rows of a segment are accepted only if Spark reads them, and if they are those of the manifest."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.outbox import segment
from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.segment import SegmentDamaged, SegmentManifest
from edge.outbox.segment_validation import MOST_ROW_BYTES, validate_rows

EPOCH = "0123456789abcdef"
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
CELLS = st.builds(Cells, st.integers(-(2**63), 2**63 - 1), TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)


def check(packed: bytes, first: int, last: int, times: Sequence[int] = (0,)) -> None:
    """Validate rows against a manifest that has their size, checksum and times."""
    digest = hashlib.sha256(packed).hexdigest()
    contexts = {7: ObservationContext()}
    validate_rows(
        SegmentManifest("a", EPOCH, first, last, min(times), max(times), len(packed), digest, contexts), packed
    )


@given(st.lists(CELLS, min_size=1, max_size=20))
def test_segments_of_a_gateway_are_valid(rows: list[Cells]) -> None:
    lines = (segment.line(number, 7, cells) for number, cells in enumerate(rows, 5))
    check(segment.packed(lines), 5, 4 + len(rows), [cells.time for cells in rows])


def test_rows_over_many_blocks_are_valid() -> None:
    lines = [segment.line(number, 7, Cells(number, "x" * (number % 5000))) for number in range(1, 3001)]
    lines[100] = segment.line(101, 7, Cells(1, "\N{EURO SIGN}" * 2_000_000))
    check(segment.packed(lines), 1, 3000, (1, 3000))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1\t7\t0\n1\t7\t0\n", "row 2 begins with .b'1'"),
        ("2\t7\t0\n1\t7\t0\n", "row 1 begins with .b'2'"),
        ("1\t7\t0\n", "1 rows, and its manifest states 2"),
        ("", "0 rows, and its manifest states 2"),
        ("1\t7\t0\n2\t7\t0\n3\t7\t0\n", "rows after 2"),
        ("1\t7\t0\n2\t7\t0", "row 2 has no line end"),
        ("1\t7\t0\n2\t8\t0\n", "row 2 has the context 8"),
        ("1\t7\t0\n02\t7\t0\n", "row 2 begins with"),
        ("1\t7\t0\n2_0\t7\t0\n", "row 2 begins with"),
        ("1\t7\t0\n\N{ARABIC-INDIC DIGIT TWO}\t7\t0\n", "row 2 begins with"),
        ("1\t7\t0\n2\t1_0\t5\n", "row 2 cannot be read"),
        ("1\t7\t0\n2\t7\t 5\n", "row 2 cannot be read"),
        ("1\t7\t0\n2\t7\t5.0\n", "row 2 cannot be read"),
        ("1\t7\t0\n2\t7\n", "row 2 cannot be read"),
        ("1\t7\t0\n\n", "row 2 begins with"),
        ("1\t7\t0\n2\t7\t0\t1\t2\t3\t4\t5\t6\t7\n", "row 2 cannot be read"),
        (f"1\t7\t0\n2\t7\t{2**63}\n", "time of row 2"),
    ],
)
def test_rows_that_spark_reads_otherwise_are_refused(text: str, reason: str) -> None:
    with pytest.raises(SegmentDamaged, match=reason):
        check(gzip.compress(text.encode()), 1, 2)


GOOD = gzip.compress(b"1\t7\t0\n2\t7\t0\n", mtime=0)


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"", "end early"),
        (GOOD[:-1], "end early"),
        (GOOD + b"\0", "other data after the rows"),
        (GOOD + GOOD, "other data after the rows"),
        (zlib.compress(b"1\t7\t0\n2\t7\t0\n"), "cannot be unpacked"),
        (gzip.compress(b"1\t7\t0\n2\t7\t0\t\xff\n", mtime=0), "not UTF-8"),
        (gzip.compress(b"1\t7\t0\t" + b"0" * (MOST_ROW_BYTES + 1), mtime=0), "larger than"),
    ],
    ids=["empty", "cut off", "byte after it", "two members", "zlib", "not UTF-8", "large row"],
)
def test_other_files_are_refused(packed: bytes, reason: str) -> None:
    with pytest.raises(SegmentDamaged, match=reason):
        check(packed, 1, 2)


@pytest.mark.parametrize("times", [(0, 2), (1, 3), (-1, 2), (2, 2)])
def test_other_times_than_those_of_the_rows_are_refused(times: tuple[int, int]) -> None:
    """Deletions and the totals of the history rely on them."""
    with pytest.raises(SegmentDamaged, match="its times are 1 to 2, and its manifest states others"):
        check(segment.packed(["1\t7\t2", "2\t7\t1"]), 1, 2, times)


def test_other_rows_than_those_of_the_checksum_are_refused() -> None:
    manifest = SegmentManifest("a", EPOCH, 1, 2, 0, 0, len(GOOD), "0" * 64, {7: ObservationContext()})
    with pytest.raises(SegmentDamaged, match="checksum"):
        validate_rows(manifest, GOOD)
