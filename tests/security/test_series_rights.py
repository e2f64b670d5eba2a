"""Recent values of a secured gateway: a client sees the series of the graphs that it may read, and no others."""

from __future__ import annotations

import pytest

from edge.security.clients import Rights

PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
VALUES = (
    PREFIXES
    + """INSERT DATA {
  <urn:o/open> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1 .
  GRAPH <urn:mine> { <urn:o/mine> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 2 }
  GRAPH <urn:theirs> { <urn:o/theirs> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 3 .
    <urn:o/mine> sosa:hasResult <urn:q2> . <urn:q2> qudt:numericValue 4 } }"""
)


async def series(harness, token, **parameters):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with harness.http() as http:
        return await http.get("/api/series", headers=headers, params=parameters)


async def test_a_client_sees_the_series_of_its_graphs_alone(harness):
    everything = await harness.member("operator")
    assert (await harness.update(everything, VALUES)).status_code == 200
    limited = await harness.member("limited", Rights(read=frozenset({"urn:mine"})))
    listed = (await series(harness, limited)).json()["series"]
    assert [(each["observation"], each["graph"]) for each in listed] == [("urn:o/mine", "urn:mine")]
    (found,) = (await series(harness, limited, observation="urn:o/mine")).json()["series"]
    assert [row["value"] for row in found["rows"]] == [2]
    hidden = await series(harness, limited, observation="urn:o/theirs")
    unknown = await series(harness, limited, observation="urn:o/unknown")
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.text == unknown.text
    assert len((await series(harness, everything)).json()["series"]) == 4


@pytest.mark.parametrize("parameters", [{}, {"observation": "urn:o/open"}])
async def test_series_need_a_token_with_the_right_to_query(harness, parameters):
    assert (await series(harness, None, **parameters)).status_code == 401
    publisher = await harness.member("publisher", Rights(actions=frozenset({"update"})))
    assert (await series(harness, publisher, **parameters)).status_code == 403
