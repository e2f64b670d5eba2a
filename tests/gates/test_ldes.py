"""The event stream of stored observations over HTTP: pages, formats and caching, over restarts, kills and removals."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

import httpx
import pyoxigraph as ox
import pytest
from starlette.requests import Request
from tree_follower import Follower

from edge.gates.http import event_stream
from edge.protocol.errors import InvalidRequest
from edge.protocol.event_stream import PAGE_SIZE, Link, Member, NodeName, StreamNode, StreamOutline
from edge.recent.series import LONGEST_TEXT
from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
FORMATS = ["text/turtle", "application/n-triples", "application/ld+json", "application/n-quads", "application/trig"]
LDES, TREE = "https://w3id.org/ldes#", "https://w3id.org/tree#"


class Box:
    """A gateway on a port that stays the same, and the values that it has stored."""

    def __init__(self, directory, **more):
        self.port = free_port()
        settings = {"HTTP__PORT": str(self.port), "HOST__ENABLED": "false", "MQTT__ENABLED": "false"}
        settings |= {"RECENT__FLUSH_INTERVAL": "1", **more}
        self.process = GatewayProcess(directory, {f"EDGE__{name}": value for name, value in settings.items()})
        self.url = f"http://127.0.0.1:{self.port}"
        self.root = f"{self.url}/ldes/observations"
        self.number = 0
        self.process.start()

    def add(self, count):
        """Store values of as many observations."""
        rows = " ".join(f"(<urn:o/{each}> <urn:q/{each}> {self.number + each})" for each in range(count))
        self.number += count
        update = f"""{PREFIXES} DELETE {{ ?q qudt:numericValue ?old }}
          INSERT {{ ?o sosa:hasResult ?q . ?q qudt:numericValue ?new }}
          WHERE {{ VALUES (?o ?q ?new) {{ {rows} }} OPTIONAL {{ ?q qudt:numericValue ?old }} }}"""
        body = urlencode({"update": update})
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert httpx.post(f"{self.url}/update", content=body, headers=form, trust_env=False).status_code == 200

    def get(self, url="", **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(url or self.root, headers=names, trust_env=False, timeout=20)


@pytest.fixture
def box(tmp_path):
    box = Box(tmp_path / "data")
    yield box
    box.process.stop()


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A gateway with 700 values, and the URLs of its nodes: the root, the section, a full page and the newest one."""
    box = Box(tmp_path_factory.mktemp("filled"), HTTP__MAX_RESULT="1024")  # no limit for nodes
    box.add(700)
    follower = Follower(box.root)
    follow(follower, 700)
    root, section, *pages = sorted(follower.contents)
    yield box, (root, section, *pages)
    box.process.stop()


def follow(follower, count):
    """Follow until there are as many members."""
    wait_for(lambda: (follower.run(), len(follower.members) >= count)[1], what=f"{count} members")
    assert len(follower.members) == count
    assert set(follower.seen.values()) <= {1}


def values(follower):
    return Counter(float(member["numericValue"]) for member in follower.members.values())


def numbers(end):
    return Counter(float(each) for each in range(end))


def test_each_value_is_received_once_over_restarts_and_kills(box):
    follower = Follower(box.root)
    box.add(400)
    box.add(400)
    follow(follower, 800)
    box.add(300)
    follow(follower, 1100)
    before = dict(follower.immutable)
    assert [url.rpartition("-")[2] for url in before] == ["0", "1"]
    box.process.stop()
    box.process.start()
    box.add(100)
    follow(follower, 1200)
    box.process.kill()
    box.process.start()
    follow(follower, 1200)
    box.add(600)
    follow(follower, 1800)
    assert values(follower) == numbers(1800)
    with httpx.Client(trust_env=False) as http:
        for url, content in before.items():
            assert http.get(url).content == content
    times = [member["issued"] for member in follower.members.values()]
    assert max(Counter(times).values()) < 1800
    assert {member["isVersionOf"] for member in follower.members.values()} == {f"urn:o/{n}" for n in range(600)}
    box.process.stop()
    for path in (box.process.data_dir / "recent").glob("log-*"):
        path.unlink()
    box.process.start()
    removed = list(follower.immutable)
    follower.immutable.clear()
    assert follower.run() == []
    assert all(box.get(url).status_code == 410 for url in removed)
    assert "/ldes/observations" in box.get(removed[0]).json()["error_description"]
    box.add(50)
    follow(follower, 1850)


def test_a_client_that_was_away_finds_all_later_members(box):
    follower = Follower(box.root)
    box.add(300)
    follow(follower, 300)
    box.add(300)
    box.process.stop()
    box.process.start()
    box.add(300)
    follow(follower, 900)


def test_the_root_describes_the_stream(filled):
    box, (root, *_) = filled
    graph = ox.Store()
    graph.load(box.get().content, ox.RdfFormat.TURTLE)
    (view,) = graph.quads_for_pattern(None, ox.NamedNode(TREE + "view"), None)
    assert view.object.value == root
    about = {quad.predicate.value: quad.object.value for quad in graph.quads_for_pattern(view.subject, None, None)}
    assert about["http://www.w3.org/1999/02/22-rdf-syntax-ns#type"] == LDES + "EventStream"
    assert about[LDES + "timestampPath"] == "http://purl.org/dc/terms/issued"
    assert about[LDES + "versionOfPath"] == "http://purl.org/dc/terms/isVersionOf"
    assert about[LDES + "versionTimestampPath"] == "http://www.w3.org/ns/sosa/resultTime"
    assert about[LDES + "pollingInterval"] == "1"
    (policy,) = graph.quads_for_pattern(view.object, ox.NamedNode(LDES + "retentionPolicy"), None)
    (duration,) = graph.quads_for_pattern(policy.object, ox.NamedNode(LDES + "fullLogDuration"), None)
    assert duration.object == ox.Literal("P1D", datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#duration"))


@pytest.mark.parametrize("accept", FORMATS)
def test_each_format_has_the_same_members(filled, accept):
    box, _ = filled
    follower = Follower(box.root, accept)
    assert len(follower.run()) == 700
    assert values(follower) == numbers(700)
    assert box.get(Accept=accept).headers["content-type"].partition(";")[0] == accept


def test_only_complete_nodes_are_immutable(filled):
    box, (root, section, full, newest) = filled
    assert "immutable" in box.get(full).headers["cache-control"]
    assert "max-age=86400" in box.get(full).headers["cache-control"]
    for url in (root, section, newest):
        assert box.get(url).headers["cache-control"] == "public, no-cache"
    assert box.get(full, Authorization="Bearer x").headers["cache-control"].startswith("private")
    assert b"ldes:immutable true" in box.get(full).content
    assert b"ldes:immutable true" not in box.get(newest).content


def test_an_unchanged_node_is_not_sent_again(filled):
    box, urls = filled
    for url in urls:
        first = box.get(url)
        assert box.get(url).content == first.content
        again = box.get(url, If_None_Match=first.headers["etag"])
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        changed = box.get(url, If_Match='"other"')
        assert changed.status_code == 412
        assert "graph" not in changed.json()["error_description"]
        other = box.get(url, Accept="application/n-triples", If_None_Match=first.headers["etag"])
        assert other.status_code == 200
        head = httpx.head(url, trust_env=False)
        assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", first.headers["etag"])


def test_relations_bound_the_times_of_the_members(filled):
    box, (_, section, *pages) = filled
    graph = ox.Store()
    graph.load(box.get(section).content, ox.RdfFormat.TURTLE)
    bounds = {}
    for quad in graph.quads_for_pattern(ox.NamedNode(section), ox.NamedNode(TREE + "relation"), None):
        about = {each.predicate.value: each.object.value for each in graph.quads_for_pattern(quad.object, None, None)}
        assert about[TREE + "path"] == "http://purl.org/dc/terms/issued"
        kind = about["http://www.w3.org/1999/02/22-rdf-syntax-ns#type"].removeprefix(TREE)
        bounds[about[TREE + "node"], kind] = about[TREE + "value"]
    for url in pages:
        follower = Follower(url)
        follower.run()
        times = [member["issued"] for member in follower.members.values()]
        assert bounds[url, "GreaterThanOrEqualToRelation"] <= min(times)
        assert bounds.get((url, "LessThanOrEqualToRelation"), max(times)) >= max(times)
    assert (pages[0], "LessThanOrEqualToRelation") in bounds
    assert (pages[1], "LessThanOrEqualToRelation") not in bounds


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("/x", 404),
        ("/000000000001", 410),
        ("/000000000001-0", 410),
        ("/000000000001-00", 404),
        ("/000000000001-%D9%A1", 404),
        ("?page=1", 400),
        ("/000000000001-0?x=1", 400),
    ],
)
def test_other_urls_get_the_problem(filled, path, status):
    box, _ = filled
    answer = box.get(box.root + path)
    assert answer.status_code == status
    # Caches may keep a response of these kinds without a period, and a page may begin later.
    if status != 400 and path != "/":
        assert answer.headers["cache-control"] == "no-cache"


def test_a_page_that_has_not_begun_is_not_found(filled):
    box, (*_, newest) = filled
    answer = box.get(f"{newest[:-1]}2")
    assert (answer.status_code, answer.headers["cache-control"]) == (404, "no-cache")


@pytest.mark.parametrize("host", ["x" * 500, "a<b"])
def test_a_host_that_is_none_is_refused(host):
    scope = {"type": "http", "scheme": "http", "path": "/", "query_string": b"", "headers": [(b"host", host.encode())]}
    with pytest.raises(InvalidRequest, match="Host"):
        event_stream._root(Request(scope))


@pytest.mark.parametrize("media_type", FORMATS)
def test_the_largest_nodes_can_be_sent(media_type):
    root, section, time = "http://" + "h" * 493, 2**48 - 1, 1_700_000_000_000_000
    texts, sections = "\x01" * LONGEST_TEXT, range(10_000)
    members = [Member("urn:" + "x" * 496, section, 10**9 + each, time, time, texts) for each in range(PAGE_SIZE)]
    page = event_stream.node_triples(root, NodeName(section, 10**6), StreamNode((), members, True))
    links = [Link(NodeName(section - each, None), time, time) for each in sections]
    outline = event_stream.outline_triples(root, StreamOutline(links, 86_400, 30))
    for triples in (page, outline):
        assert len(event_stream.serialized(triples, media_type, 60)) < event_stream.MOST_BYTES


def test_a_format_that_is_not_offered_is_refused(filled):
    box, _ = filled
    assert box.get(Accept="application/rdf+xml").status_code == 406


def test_methods_that_change_are_refused(filled):
    box, (_, section, *_) = filled
    for url in (box.root, section):
        answer = httpx.post(url, content=b"", trust_env=False)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


def test_a_gateway_without_recent_values_says_so(tmp_path):
    settings = {"EDGE__RECENT__ENABLED": "false", "EDGE__HOST__ENABLED": "false", "EDGE__MQTT__ENABLED": "false"}
    process = GatewayProcess(tmp_path / "data", settings)
    try:
        answer = httpx.get(process.start()["http"] + "/ldes/observations", trust_env=False)
        assert answer.status_code == 404
        assert "recent.enabled" in answer.json()["error_description"]
    finally:
        process.stop()
