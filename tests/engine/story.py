"""Random stories: sequences of requests to the engine, drawn from a seed and rehearsed on the naive engine.

The rehearsal selects useful steps: it keeps only a few requests that fail, change nothing or notify nobody, and none
that grow too large. Queries with nested operators come first. `python tests/engine/story.py 500` prints the number of
notifications of 500 stories for each operator, and for each nesting.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyoxigraph as ox
from engine_world import World
from features import features
from generated_patterns import GRAPH_IRIS, PREFIX
from generated_sparql import Queries, Updates
from oracle import NaiveEngine, Query, Refused
from unspecified_results import SEPARATOR

MOST_QUADS = 60
MOST_ROWS = 400


@dataclass(frozen=True)
class Subscribe:
    name: str
    query: Query

    def tell(self, world: World) -> None:
        world.subscribe(self.query, self.name)


@dataclass(frozen=True)
class Unsubscribe:
    name: str

    def tell(self, world: World) -> None:
        world.unsubscribe(self.name)


@dataclass(frozen=True)
class Update:
    operations: tuple[str, ...]

    def tell(self, world: World) -> None:
        world.update(self.operations, PREFIX)


Step = Subscribe | Unsubscribe | Update
Story = tuple[Step, ...]


def tell(story: Story) -> list[Query]:
    """Run a story on both engines. Return the query of each notification."""
    world = World()
    for step in story:
        step.tell(world)
    for step in story:
        if isinstance(step, Subscribe):
            world.check_query(step.query)
    world.check_restored()
    world.check_no_leak()
    return world.reported


def draw(seed: int) -> Story:
    """Draw the story of a seed."""
    author = random.Random(seed)
    stage = _Stage(author, Updates(seed), Queries(~seed))
    updates = stage.updates(author.randint(4, 9))
    queries = stage.queries(author.randint(6, 10))
    steps: list[tuple[float, Step]] = [(number, Update(operations)) for number, operations in enumerate(updates)]
    for number, query in enumerate(queries):
        begin = 0.5 if author.randrange(4) else author.randrange(len(updates)) + 0.5
        steps.append((begin, Subscribe(f"s{number}", query)))
        if not author.randrange(5):
            steps.append((author.uniform(begin, len(updates)), Unsubscribe(f"s{number}")))
    return tuple(step for _, step in sorted(steps, key=lambda each: each[0]))


def limited(story: Story, seed: int) -> Story:
    """Return a story whose subscribers may read some graphs only."""
    author, graphs = random.Random(seed), ("", *GRAPH_IRIS)
    return tuple(
        replace(step, query=replace(step.query, readable=frozenset(author.sample(graphs, author.randint(1, 3)))))
        if isinstance(step, Subscribe)
        else step
        for step in story
    )


class _Stage:
    """The rehearsal of updates and queries."""

    def __init__(self, author: random.Random, updates: Updates, queries: Queries) -> None:
        self._author = author
        self._updates = updates
        self._queries = queries
        self._states: list[ox.Store] = []

    def updates(self, many: int) -> list[tuple[str, ...]]:
        """Return updates that nearly always change something. The first one inserts."""
        naive = NaiveEngine()
        chosen: list[tuple[str, ...]] = []
        while len(chosen) < many:
            operations = tuple(self._updates.update() if chosen else self._updates.seed())
            if chosen and not self._author.randrange(4):
                operations = varied(self._author, self._author.choice(chosen))
            before, graphs = set(naive.store), set(naive.store.named_graphs())
            try:
                naive.request(operations, PREFIX)
                worth = set(naive.store) != before or set(naive.store.named_graphs()) != graphs
            except Refused:
                worth = False
            if len(naive.store) > MOST_QUADS:
                naive.replace(before, graphs)
            elif worth or not self._author.randrange(10):
                chosen.append(operations)
                self._states.append(_copy(naive.store))
        return chosen

    def queries(self, many: int) -> list[Query]:
        """Return queries whose subscribers nearly always get a notification."""
        chosen: list[Query] = []
        while len(chosen) < many:
            if chosen and not self._author.randrange(8):
                chosen.append(self._author.choice(chosen))
            query = self._queries.query()
            if chosen and not self._author.randrange(3):
                model = self._author.choice(chosen)
                texts = varied(self._author, (model.text.removeprefix(PREFIX), model.inputs.removeprefix(PREFIX)))
                query = replace(model, text=PREFIX + texts[0], inputs=texts[1] and PREFIX + texts[1])
            if not any(" in " in feature for feature in features(query.text)) and self._author.randrange(2):
                continue
            worth = self._worth(query)
            if worth or (worth is False and not self._author.randrange(20)):
                chosen.append(query)
        return chosen

    def _worth(self, query: Query) -> bool | None:
        """Return whether a query's result changes, or None if it is too large."""
        results = []
        for store in self._states:
            try:
                _, bag = NaiveEngine(store).evaluate(query)
            except SyntaxError:
                return False
            if bag.total() > MOST_ROWS:
                return None
            results.append(bag)
        return any(result != results[0] for result in results)


def _copy(store: ox.Store) -> ox.Store:
    copy = ox.Store()
    copy.extend(store)
    for graph in store.named_graphs():
        copy.add_graph(graph)
    return copy


_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*\n)+)"""
    r"""|(?P<string>\"{3}[^"]*\"{3}|'{3}[^']*'{3}|"[^"]*"|'[^']*')(?:@[\w-]+|\^\^[\w:]+)?"""
    r"""|(?P<iri><[^<>"{}|^`\\\s]*>|\bex:\w+)|(?P<number>(?<![\w?"])-?\d+(?:\.\d+)?(?:e\d+)?(?!\w))"""
    r"""|[?$_]:?\w+|\w+:\w*|(?P<word>\b[A-Za-z]+\b)"""
)
_IRIS = ("ex:a", "ex:b", "ex:g1", "ex:g2", "<rel>")
_WHOLE = {f"<http://example.org/{name}>": f"ex:{name}" for name in ("a", "b", "g1", "g2", "p", "q", "n", "made")}
_WHOLE["<http://localhost/rel>"] = "<rel>"
_NUMBERS = ("1", "2", "3", "-1", "1.5", "-2.5", "1e0")
_STRINGS = ('"x"', '"y"', '"x"@en', '"1"', '"1"^^xsd:integer')
_SPACES = (" ", " ", " ", "  ", "\t", "\n", " # { ' \" ex:a\n", "\r\n")


def varied(author: random.Random, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the same texts with other constants or another spelling, with the same change in all of them."""
    others: dict[str, str] = {}
    change, respell = author.randrange(3) > 0, author.randrange(3) == 0

    def other(match: re.Match[str]) -> str:
        token = _plainly(match)
        if change and token not in others:
            kind = _constants(match, token)
            others[token] = author.choice(kind) if kind and author.randrange(3) else token
        token = others.get(token, token)
        return _respelled(author, match, token) if respell else token

    return tuple(text if " TO " in text else _TOKEN.sub(other, text) for text in texts)


def _plainly(match: re.Match[str]) -> str:
    """Return a token without its respelling."""
    if match["iri"]:
        return _WHOLE.get(match[0], match[0])
    if match["string"]:
        return '"' + match["string"].strip("'\"") + '"' + match[0].removeprefix(match["string"])
    return match[0]


def _constants(match: re.Match[str], token: str) -> Sequence[str]:
    """Return the constants that can replace a token."""
    if token in _IRIS:
        return _IRIS
    if match["number"]:
        return _NUMBERS
    return _STRINGS if match["string"] and token.strip('"') != SEPARATOR else ()


def _respelled(author: random.Random, match: re.Match[str], token: str) -> str:
    if match["space"]:
        return author.choice(_SPACES)
    if match["word"]:
        return author.choice((token, token.lower())) if token.isupper() else token
    if author.randrange(2):
        return token
    if match["iri"]:
        return next((whole for whole, name in _WHOLE.items() if name == token), token)
    if match["string"]:
        value, _, rest = token[1:].partition('"')
        return author.choice((f"'{value}'{rest}", f'"""{value}"""{rest}', f"'''{value}'''{rest}"))
    return token


if __name__ == "__main__":
    received: Counter[str] = Counter()
    for number in range(int(sys.argv[1])):
        for query in tell(draw(number)):
            received.update(features(query.text))
    for name, count in sorted(received.items(), key=lambda each: -each[1]):
        print(f"{count:6} {name}")
