"""The event stream of a secured gateway: a client gets the members of the graphs that it may read, and no others."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import pytest
from secured import Harness, settings

from edge.gateway import Gateway
from edge.recent.settings import RecentSettings
from edge.security.clients import Rights
from tests.support.waiting import eventually

PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
VALUES = (
    PREFIXES
    + """INSERT DATA {
  <urn:o/open> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1 .
  GRAPH <urn:mine> { <urn:o/mine> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 2 }
  GRAPH <urn:theirs> { <urn:o/theirs> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 3 .
    <urn:o/mine> sosa:hasResult <urn:q2> . <urn:q2> qudt:numericValue 4 } }"""
)
ROOT = "/ldes/observations"


@pytest.fixture
def stored(tmp_path):
    """Yield a gateway that stores values after a second."""

    @asynccontextmanager
    async def start():
        quick = settings(tmp_path / "data").model_copy(update={"recent": RecentSettings(flush_interval=1)})
        async with Gateway(quick) as gateway:
            yield Harness(gateway)

    return start


async def get(harness, token, path=ROOT):
    headers = {"Accept": "application/n-triples", **({} if token is None else {"Authorization": f"Bearer {token}"})}
    async with harness.http() as http:
        return await http.get(path, headers=headers)


def links(answer):
    assert answer.status_code == 200, answer.text
    return re.findall(r"<https://w3id.org/tree#node> <http://[^/]+([^>]+)>", answer.text)


async def page(harness, token):
    (section,) = links(await get(harness, token))
    (found,) = links(await get(harness, token, section))
    return await get(harness, token, found)


async def test_a_client_gets_the_members_of_its_graphs_alone(stored):
    async with stored() as harness:
        everything = await harness.member("operator")
        assert (await harness.update(everything, VALUES)).status_code == 200
        limited = await harness.member("limited", Rights(read=frozenset({"urn:mine"})))

        async def is_stored():
            return links(await get(harness, everything))

        await eventually(is_stored)
        all_members, own = await page(harness, everything), await page(harness, limited)
        assert all_members.text.count("https://w3id.org/tree#member") == 4
        assert own.text.count("https://w3id.org/tree#member") == 1
        assert "urn:o/mine" in own.text
        assert '"2"^^' in own.text
        assert "theirs" not in own.text
        assert own.headers["cache-control"] == "private, no-cache"
        assert "Authorization" in own.headers["vary"]
        assert own.headers["etag"] != all_members.headers["etag"]


@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/5d0b2c9e71a4-0"])
async def test_the_stream_needs_a_token_with_the_right_to_query(harness, path):
    assert (await get(harness, None, path)).status_code == 401
    publisher = await harness.member("publisher", Rights(actions=frozenset({"update"})))
    assert (await get(harness, publisher, path)).status_code == 403
