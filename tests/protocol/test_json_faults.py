"""Error messages for invalid JSON, at each gate that accepts it."""

from __future__ import annotations

import json

import pytest

from edge.protocol.errors import InvalidRequest
from edge.protocol.json_faults import json_fault
from edge.protocol.messages import parse_message

TEXTS = {
    b"[" * 100_000: "nested too deeply",
    b'{"query": ' + b"9" * 5000 + b"}": "too many digits",
    b'{"query": "\xff"}': "not Unicode text",
    b'{"query"': "is not JSON: Expecting",
}


@pytest.mark.parametrize(("text", "words"), TEXTS.items(), ids=list(TEXTS.values()))
def test_json_errors_describe_the_document_without_internals(text, words):
    with pytest.raises((ValueError, RecursionError)) as raised:
        json.loads(text)
    message = json_fault("The message", raised.value)
    assert message.startswith("The message ")
    assert words in message
    with pytest.raises(InvalidRequest, match=words) as refused:
        parse_message(text)
    assert "sys." not in refused.value.description
    assert "recursion" not in refused.value.description
