"""A follower of TREE pages for tests: HTTP and RDF, without code of the gateway."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import httpx
import pyoxigraph as ox

TREE = "https://w3id.org/tree#"
SOSA = "http://www.w3.org/ns/sosa/"


def term(name: str) -> ox.NamedNode:
    return ox.NamedNode(TREE + name)


@dataclass
class Follower:
    """Begins at the root node in each run, and never asks again for an immutable node."""

    root: str
    accept: str = "text/turtle"
    headers: dict[str, str] = field(default_factory=dict)
    immutable: dict[str, bytes] = field(default_factory=dict)
    """Content of the immutable nodes."""
    tags: dict[str, str] = field(default_factory=dict)
    """Entity tags of the other ones."""
    contents: dict[str, bytes] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    """How often each member was new."""
    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """Values of the properties of each member, also of the blank nodes below it."""
    statuses: list[int] = field(default_factory=list)

    def run(self) -> list[str]:
        """Return the IRIs of the new members."""
        new: list[str] = []
        waiting = [self.root]
        with httpx.Client(timeout=20, trust_env=False, headers={"Accept": self.accept, **self.headers}) as http:
            while waiting:
                url = waiting.pop(0)
                if url not in self.immutable:
                    graph = self._get(http, url)
                    node = ox.NamedNode(url)
                    waiting += self._targets(graph, node)
                    new += self._read(graph)
        return new

    def _get(self, http: httpx.Client, url: str) -> ox.Store:
        answer = http.get(url, headers={"If-None-Match": self.tags[url]} if url in self.tags else {})
        self.statuses.append(answer.status_code)
        graph = ox.Store()
        if answer.status_code == 410:
            return graph
        if answer.status_code != 304:
            assert answer.status_code == 200, answer.text
            self.contents[url] = answer.content
        self.tags[url] = answer.headers["etag"]
        if "immutable" in answer.headers["cache-control"]:
            self.immutable[url] = self.contents[url]
        graph.load(self.contents[url], ox.RdfFormat.from_media_type(self.accept), base_iri=url)
        return graph

    def _targets(self, graph: ox.Store, node: ox.NamedNode) -> list[str]:
        relations = {quad.object for quad in graph.quads_for_pattern(node, term("relation"), None)}
        return sorted({graph_object(graph, each, term("node")).value for each in relations})

    def _read(self, graph: ox.Store) -> list[str]:
        new = []
        for quad in graph.quads_for_pattern(None, term("member"), None):
            name = quad.object.value
            if name not in self.members:
                new.append(name)
                self.seen[name] += 1
            self.members[name] = _description(graph, quad.object)
        return new


def graph_object(graph: ox.Store, subject: ox.NamedNode | ox.BlankNode, predicate: ox.NamedNode):
    (quad,) = graph.quads_for_pattern(subject, predicate, None)
    return quad.object


def _description(graph: ox.Store, subject: ox.NamedNode | ox.BlankNode) -> dict[str, str]:
    found: dict[str, str] = {}
    for quad in graph.quads_for_pattern(subject, None, None):
        if isinstance(quad.object, ox.BlankNode):
            found |= _description(graph, quad.object)
        else:
            found[quad.predicate.value.rpartition("#")[2].rpartition("/")[2]] = quad.object.value
    return found
