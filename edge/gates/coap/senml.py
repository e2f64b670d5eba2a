"""Conversion of SenML in CBOR to SenML in JSON for the mapping language (RFC 8428, section 6)."""

from __future__ import annotations

import json
from typing import Final

from edge.gates.coap.cbor import Json, read_cbor
from edge.protocol.errors import InvalidRequest

_LABELS: Final = {
    -6: "bs",
    -5: "bv",
    -4: "bu",
    -3: "bt",
    -2: "bn",
    -1: "bver",
    0: "n",
    1: "u",
    2: "v",
    3: "vs",
    4: "vb",
    5: "s",
    6: "t",
    7: "ut",
    8: "vd",
}
"""Labels of RFC 8428, table 6."""


def as_json(payload: bytes) -> bytes:
    """Convert a SenML pack from CBOR to JSON. Raises `InvalidRequest`, `TooLarge`."""
    pack = read_cbor(payload)
    if not isinstance(pack, list):
        raise InvalidRequest("SenML is an array of records (RFC 8428)")
    return json.dumps([_record(record) for record in pack]).encode()


def _record(record: Json) -> Json:
    if not isinstance(record, dict):
        return record
    return {_LABELS.get(label, str(label)) if isinstance(label, int) else label: record[label] for label in record}
