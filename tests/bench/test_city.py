"""The city and the primitives of the benchmark are those of the paper, and deterministic."""

import hashlib
from collections import Counter

import pyoxigraph as ox
import pytest

from edge.bench.city import CITY, DIMMING, NS, SMALL_CITY, lamp_uri, road_uri
from edge.bench.primitives import (
    expected_notifications,
    lamp_updates,
    road_updates,
    s_lamp,
    s_road,
    subscriptions,
    u_lamp,
    u_road,
    value_of_run,
)


@pytest.fixture(scope="module")
def city():
    return list(CITY.quads())


@pytest.fixture(scope="module")
def store(city):
    store = ox.Store()
    store.bulk_extend(city)
    return store


def count(store, where):
    (row,) = store.query(f"PREFIX ns: <{NS}> SELECT (COUNT(*) AS ?count) WHERE {{ {where} }}")
    return int(row["count"].value)


def test_the_sizes_are_those_of_table_2(city, store):
    assert len(CITY.roads) == 310
    assert [len(CITY.lamps(road)) for road in (1, 100, 101, 200, 201, 300, 301, 310)] == [
        10,
        10,
        25,
        25,
        50,
        50,
        100,
        100,
    ]
    assert len(city) == len(set(city)) == 334_204
    assert count(store, "?road ns:isConnectedTo ?post") == 9_500
    assert count(store, "?post ns:hasLamp ?lamp . ?lamp ns:hasDimmingValue ?value") == 9_500
    assert count(store, "?post ns:hasSensor ?sensor . ?sensor ns:hasValue ?value ; ns:hasTimestamp ?time") == 19_000


@pytest.mark.parametrize(
    ("kind", "members"),
    [("Class", 27), ("NamedIndividual", 26), ("ObjectProperty", 16), ("DatatypeProperty", 8)],
)
def test_the_ontology_is_that_of_table_2(store, kind, members):
    named = "FILTER(!REGEX(STR(?name), '_URI_'))"
    assert count(store, f"?name a <http://www.w3.org/2002/07/owl#{kind}> {named}") == members


def test_every_property_that_is_used_is_in_the_ontology(store):
    known = "?p a ?kind FILTER(?kind IN (owl:ObjectProperty, owl:DatatypeProperty))"
    query = f"""PREFIX owl: <http://www.w3.org/2002/07/owl#> ASK {{
        ?s ?p ?o FILTER(STRSTARTS(STR(?p), "{NS}")) FILTER NOT EXISTS {{ {known} }} }}"""
    assert not bool(store.query(query))


def test_the_city_is_always_the_same():
    def digest():
        return hashlib.sha256("".join(map(str, SMALL_CITY.quads())).encode()).hexdigest()

    assert digest() == digest() == "7214f64987080a82f3c9690a50a1d73dbf0d817600f20e59056c4dde2c89c205"


def test_names_are_those_of_the_paper():
    assert road_uri(7).endswith("ROAD_URI_7")
    assert lamp_uri(7, 3).endswith("LAMP_URI_7_3")


def test_texts_are_those_of_the_paper():
    lamp, road = lamp_uri(7, 3), road_uri(7)
    assert u_lamp(7, 3, 100).split("\n", 1)[1] == (
        f"DELETE {{<{lamp}> ns:hasDimmingValue ?dimming}}\n"
        f'INSERT {{<{lamp}> ns:hasDimmingValue "100"}}\n'
        f"WHERE {{<{lamp}> ns:hasDimmingValue ?dimming}}"
    )
    patterns = (
        "{ ?lamp ns:hasDimmingValue ?dimming . ?post ns:hasLamp ?lamp .\n"
        f"?road ns:isConnectedTo ?post . FILTER(?road = <{road}>)}}"
    )
    assert u_road(7, 100).split("\n", 1)[1] == (
        f'DELETE {{?lamp ns:hasDimmingValue ?dimming}}\nINSERT {{?lamp ns:hasDimmingValue "100"}}\nWHERE {patterns}'
    )
    assert s_lamp(7, 3).split("\n", 1)[1] == f"SELECT ?dimming\nWHERE {{<{lamp}> ns:hasDimmingValue ?dimming}}"
    assert s_road(7).split("\n", 1)[1] == f"SELECT ?lamp ?dimming\nWHERE {patterns}"


def test_texts_are_sparql(store):
    assert [row["dimming"] for row in store.query(s_lamp(301, 100))] == [
        quad.object for quad in store.quads_for_pattern(ox.NamedNode(lamp_uri(301, 100)), DIMMING, None)
    ]
    assert len({row["lamp"] for row in store.query(s_road(308))}) == 100


def test_the_subscription_profile_is_that_of_table_5():
    texts = list(subscriptions(CITY))
    assert len(texts) == len(set(texts)) == 1_004
    assert sum("?road" in text for text in texts) == 4
    assert s_lamp(104, 25) in texts
    assert s_lamp(307, 100) in texts
    assert s_lamp(6, 1) not in texts
    assert s_road(204) in texts


def test_the_expected_notifications_are_those_of_table_8():
    assert expected_notifications("lamp", CITY) == 23
    assert expected_notifications("road", CITY) == 1_004


@pytest.mark.parametrize(("updates", "changed"), [(lamp_updates, 310), (road_updates, sum(SMALL_CITY.posts))])
def test_every_update_of_a_run_changes_every_value_it_is_about(updates, changed):
    store = ox.Store()
    store.bulk_extend(SMALL_CITY.quads())
    for run in range(3):
        before = Counter(store.quads_for_pattern(None, DIMMING, None))
        for text in updates(SMALL_CITY, value_of_run(run)):
            store.update(text)
        after = Counter(store.quads_for_pattern(None, DIMMING, None))
        assert (before - after).total() == (after - before).total() == changed
