"""The examples of docs/jsap.md have the documented results."""

import re
from pathlib import Path

from edge.jsap import Profile

TEXT = (Path(__file__).parents[2] / "docs" / "jsap.md").read_text()
EXAMPLES = [Profile.parse(text, "chat.yaml") for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]


def test_the_documented_requests_are_sent():
    chat, monitoring = EXAMPLES
    assert chat.query("SENT").text({"receiver": "schema:PersonURI2"}) in TEXT
    assert chat.update("SEND").sparql11.url == "http://gateway.local:8000/update"
    assert 'schema:text  "He said \\"hi\\""' in chat.update("SEND").text(
        {"text": 'He said "hi"', "sender": "schema:PersonURI1"}
    )
    assert [mapping.label for mapping in monitoring.mappings] == ["Server room temperature"]
