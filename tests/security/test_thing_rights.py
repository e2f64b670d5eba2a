"""Things of a secured gateway: a client reads those of its graphs, and sets properties if it may update."""

from __future__ import annotations

import pytest

from edge.security.clients import Rights
from tests.support.waiting import eventually

LAMP = "urn:sepa-edge:zigbee2mqtt:lamp"
THING = f"/things/{LAMP}"
STATE = f"/properties/{LAMP}%2Fstate"
HIDDEN = f"""PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
INSERT DATA {{ GRAPH <urn:theirs> {{
  <urn:safe/code> a sosa:Observation ; sosa:madeBySensor <urn:safe> ; sosa:hasResult <urn:q> .
  <urn:q> qudt:numericValue 4711 .
  <{LAMP}/hidden> a sosa:Observation ; sosa:madeBySensor <{LAMP}> .
  <{LAMP}> <http://www.w3.org/2000/01/rdf-schema#label> "hidden label" . }} }}"""
DESIRED = "SELECT ?v { ?o <urn:sepa-edge:desired> ?v }"
OPEN = frozenset({""})


async def request(harness, token, method, path, content=None):
    headers = {"Content-Type": "application/json", **({} if token is None else {"Authorization": f"Bearer {token}"})}
    async with harness.http() as http:
        return await http.request(method, path, headers=headers, content=content)


@pytest.fixture
async def home(harness):
    """Yield a gateway with a lamp that can be switched, and with a graph that not all clients may read."""
    operator = await harness.member("operator")
    assert (await harness.update(operator, HIDDEN)).status_code == 200
    await harness.gateway._take_reading("zigbee2mqtt/lamp", b'{"state": "OFF"}')

    async def is_known():
        return (await request(harness, operator, "GET", STATE)).status_code == 200

    await eventually(is_known)
    return harness


async def test_a_client_gets_the_things_of_its_graphs_alone(home):
    limited = await home.member("limited", Rights(read=OPEN, write=frozenset()))
    listed = await request(home, limited, "GET", "/things")
    assert [each["id"] for each in listed.json()] == [LAMP]
    (lamp,) = listed.json()
    assert (lamp["title"], list(lamp["properties"])) == ("lamp", ["state"])
    assert lamp["properties"]["state"]["readOnly"] is True
    assert "hidden" not in listed.text
    assert (await request(home, limited, "GET", THING)).json() == lamp
    assert (await request(home, limited, "GET", STATE)).text == "false"
    for path in ("/things/urn:safe", "/properties/urn:safe%2Fcode", f"/properties/{LAMP}%2Fhidden"):
        hidden = await request(home, limited, "GET", path)
        missing = await request(home, limited, "GET", "/things/urn:x" if "things" in path else "/properties/urn:x")
        assert (hidden.status_code, hidden.json()) == (404, missing.json())
    scheme = lamp["securityDefinitions"][lamp["security"]]
    assert (scheme["scheme"], scheme["authorization"]) == ("bearer", f"{lamp['base']}oauth/token")


async def test_setting_needs_the_right_to_update_the_default_graph(home):
    operator = await home.member("another")
    reader = await home.member("reader", Rights(actions=frozenset({"query"})))
    for who in (reader, await home.member("elsewhere", Rights(write=frozenset({"urn:mine"})))):
        answer = await request(home, who, "PUT", STATE, "true")
        assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")
        described = (await request(home, who, "GET", THING)).json()
        assert described["properties"]["state"]["readOnly"] is True
    assert (await request(home, None, "PUT", STATE, "true")).status_code == 401
    assert (await home.query(operator, DESIRED)).json()["results"]["bindings"] == []
    writer = await home.member("writer", Rights(actions=frozenset({"update"}), write=OPEN))
    assert (await request(home, writer, "PUT", STATE, "true")).status_code == 204
    ((found,),) = (each.values() for each in (await home.query(operator, DESIRED)).json()["results"]["bindings"])
    assert found["value"] == "true"
    assert (await request(home, writer, "GET", STATE)).status_code == 403
    # A client that may not query does not learn which observations exist.
    paths = (f"/properties/{LAMP}%2Fhidden", "/properties/urn:x")
    known, unknown = [await request(home, writer, "PUT", path, "1") for path in paths]
    assert (known.status_code, known.json()) == (404, unknown.json())
    described = (await request(home, operator, "GET", THING)).json()["properties"]["state"]
    assert "readOnly" not in described


async def test_observing_needs_the_right_to_subscribe_and_ends_with_the_rights(home):
    path = STATE
    reader = await home.member("asker", Rights(actions=frozenset({"query"})))
    described = (await request(home, reader, "GET", THING)).json()["properties"]["state"]
    assert ([form["op"] for form in described["forms"]], described.get("observable")) == (["readproperty"], None)
    observer = await home.member("observer", Rights(actions=frozenset({"subscribe"}), read=OPEN))
    async with home.http() as http:
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {reader}"}
        assert (await http.get(path, headers=headers)).status_code == 403
        headers["Authorization"] = f"Bearer {observer}"
        hidden = await http.get(f"/properties/{LAMP}%2Fhidden", headers=headers)
        assert (hidden.status_code, hidden.json()["error"]) == (404, "not_found")
        async with http.stream("GET", path, headers=headers) as answer:
            lines = answer.aiter_lines()
            assert [await anext(lines) for _ in range(3)] == ["retry: 5000", "", "data: false"]
            home.clients.revoke("observer")
            assert [line async for line in lines if line] == []
        assert (await http.get(path, headers=headers)).status_code == 401


async def test_a_client_that_may_not_read_the_default_graph_replaces_the_desired_value(home):
    operator = await home.member("third")
    blind = await home.member("blind", Rights(read=frozenset({"urn:theirs"}), write=OPEN))
    for who, value in ((operator, "true"), (blind, "false"), (blind, "true"), (blind, "false")):
        assert (await request(home, who, "PUT", STATE, value)).status_code == 204
    rows = (await home.query(operator, DESIRED)).json()["results"]["bindings"]
    assert [row["v"]["value"] for row in rows] == ["false"]


async def test_the_description_of_the_gateway_needs_no_token(harness):
    answer = await request(harness, None, "GET", "/.well-known/wot")
    assert answer.status_code == 200
    assert answer.json()["security"] == "bearer_sc"
