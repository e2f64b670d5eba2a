"""SPARQL text at random, over a vocabulary so small that everything meets everything.

What Oxigraph may answer in more than one way is left out: BNODE, UUID, RAND, REDUCED, SAMPLE, MIN of equal numbers,
LIMIT without a total order. Hypothesis draws only the seed: its own choices lean so much to the simple side that few
subscriptions would ever be told anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generated_patterns import GRAPH_IRIS, GRAPHS, MADE_BLANK_NODES, PREDICATES, PREFIX, RESOURCES, VARIABLES, Patterns
from hypothesis import strategies as st
from oracle import Query


class Queries(Patterns):
    """Queries of all forms."""

    def dataset(self) -> str:
        if not self.chance(4):
            return ""
        a, b, c = (self.one(GRAPHS) for _ in range(3))
        return self.one((f"FROM {a}", f"FROM NAMED {a}", f"FROM {a} FROM {b} FROM NAMED {c}"))

    def distinct(self) -> str:
        return "DISTINCT " if self.chance(3) else ""

    def plain_select(self) -> str:
        names = [*VARIABLES, "?g"]
        self.random.shuffle(names)
        projected = "*" if self.chance(2) else " ".join(names[: self.random.randint(1, 4)])
        return f"SELECT {self.distinct()}{projected} WHERE {{ {self.plain_group()} }}"

    def general_select(self) -> str:
        where = f"{self.dataset()} WHERE {{ {self.any_group()} }}"
        a, b = self.variable(), self.variable()
        both = f"{a} {b if a != b else ''}"
        kind = self.random.randrange(9)
        if kind <= 2:
            return f"SELECT {self.distinct()}* {where}"
        if kind == 3:
            return f"SELECT {self.distinct()}{both} {where}"
        if kind == 4:
            return f"SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT {a}) AS ?m) (MIN(STR({b})) AS ?k) {where}"
        if kind == 5:
            having = self.one(("", "HAVING (COUNT(*) > 1)", "HAVING (EXISTS { ?a ex:q ?z })"))
            return f"SELECT {a} (SUM({b}) AS ?n) (COUNT(*) AS ?m) {where} GROUP BY {a} {having}"
        if kind == 6:
            return f"SELECT {a} ({self.expression()} AS ?n) {where}"
        if kind == 7:
            order = " ".join(f"{v} STR({v}) STR(DATATYPE({v})) LANG({v})" for v in (a, b))
            total = f"FILTER(!isBLANK({a}) && !isBLANK({b}))"
            limit = self.one(("LIMIT 1", "LIMIT 2 OFFSET 1", "OFFSET 1"))
            return (
                f"SELECT {both} {self.dataset()} WHERE {{ {{ {self.any_group()} }} {total} }} ORDER BY {order} {limit}"
            )
        return f"SELECT (COUNT({b}) AS ?n) (AVG({b}) AS ?m) {where} VALUES {a} {{ ex:a {self.literal()} UNDEF }}"

    def construct(self) -> str:
        if self.chance(5):
            return f"CONSTRUCT WHERE {{ {self.block(blanks=False)} }}"
        template = self.block(blanks=False) + (f" {self.one(MADE_BLANK_NODES)}" if self.chance(3) else "")
        return f"CONSTRUCT {{ {template} }} {self.dataset()} WHERE {{ {self.any_group()} }}"

    def describe(self) -> str:
        a, where = self.one(RESOURCES), f"{self.dataset()} WHERE {{ {self.any_group()} }}"
        return self.one(
            (
                f"DESCRIBE {a}",
                f"DESCRIBE {a} {self.variable()} {where}",
                f"DESCRIBE * {where}",
                f"DESCRIBE {self.variable()} WHERE {{ {self.plain_group()} }}",
            )
        )

    def text(self) -> str:
        kind = self.random.randrange(16)
        if kind <= 4:
            return PREFIX + self.plain_select()
        if kind <= 10:
            return PREFIX + self.general_select()
        if kind == 11:
            return f"{PREFIX}ASK {self.dataset()} {{ {self.any_group()} }}"
        return PREFIX + (self.construct() if kind <= 13 else self.describe())

    def query(self) -> Query:
        text = self.text()
        return Query(text, self._graphs(), self._graphs()) if self.chance(6) else Query(text)

    def _graphs(self) -> tuple[str, ...] | None:
        return None if self.chance(3) else tuple(self.random.sample(GRAPH_IRIS, self.random.randint(0, 2)))


class Updates(Patterns):
    """Updates of all forms."""

    def data(self, blanks: bool = True, least: int = 1, most: int = 5) -> str:
        parts = []
        for _ in range(self.random.randint(least, most)):
            s = self.one(("_:x", "_:y")) if blanks and self.chance(4) else self.one(RESOURCES)
            o = self.one(("_:x", "_:y", "[]")) if blanks and self.chance(5) else self.node()
            parts.append(self._placed(f"{s} {self.one(PREDICATES)} {o}", GRAPHS))
        return " ".join(parts)

    def template(self, blanks: bool) -> str:
        parts = []
        for _ in range(self.random.randint(1, 3)):
            s = (
                self.one(("_:x", "_:y"))
                if blanks and self.chance(5)
                else self.one((*VARIABLES, *VARIABLES, *RESOURCES))
            )
            p = self.variable() if self.chance(5) else self.one(PREDICATES)
            o = (
                self.one(("_:x", "_:y"))
                if blanks and self.chance(6)
                else self.one((*VARIABLES, *VARIABLES, self.node()))
            )
            parts.append(self._placed(f"{s} {p} {o}", (*GRAPHS, "?g", "?a")))
        return " ".join(parts)

    def _placed(self, quad: str, graphs: Sequence[str]) -> str:
        return f"GRAPH {self.one(graphs)} {{ {quad} }}" if self.chance(3) else f"{quad} ."

    def using(self) -> str:
        if not self.chance(4):
            return ""
        a, b, c = (self.one(GRAPHS) for _ in range(3))
        return self.one((f"USING {a}", f"USING NAMED {a}", f"USING {a} USING {b} USING NAMED {c}"))

    def modify(self) -> str:
        with_ = f"WITH {self.one(GRAPHS)} " if self.chance(4) else ""
        how, kind = self.random.randrange(6), self.random.randrange(4)
        where = self.triple(False) if how <= 1 else self.plain_group() if how <= 4 else self.any_group()
        found = where if how <= 1 else self.template(False)
        delete = f"DELETE {{ {found} }} " if kind != 0 else ""
        insert = f"INSERT {{ {self.template(True)} }} " if kind != 1 else ""
        return f"{with_}{delete}{insert}{self.using()} WHERE {{ {where} }}"

    def delete_where(self) -> str:
        parts = []
        for _ in range(self.random.randint(1, 2)):
            block = self.block(blanks=False, most=1)
            parts.append(f"GRAPH {self.one((*GRAPHS, '?g'))} {{ {block} }}" if self.chance(3) else block)
        return f"DELETE WHERE {{ {' '.join(parts)} }}"

    def operation(self) -> str:
        kind = self.random.randrange(20)
        if kind <= 4:
            return f"INSERT DATA {{ {self.data()} }}"
        if kind <= 6:
            return f"DELETE DATA {{ {self.data(blanks=False, most=10)} }}"
        if kind <= 14:
            return self.modify()
        if kind <= 16:
            return self.delete_where()
        silent = self.one(("", "SILENT "))
        if kind == 17:
            return f"CREATE {silent}GRAPH {self.one(GRAPHS)}"
        if kind == 18:
            target = self.one((f"GRAPH {self.one(GRAPHS)}", f"GRAPH {self.one(GRAPHS)}", "DEFAULT", "NAMED", "ALL"))
            return f"{self.one(('CLEAR', 'DROP'))} {silent}{target}"
        source, end = (self.one((*GRAPHS, "DEFAULT", "GRAPH ex:g2")) for _ in range(2))
        return f"{self.one(('ADD', 'COPY', 'MOVE'))} {silent}{source} TO {end}"

    def update(self) -> list[str]:
        """The operations of one request, without prologue."""
        return _scoped([self.operation() for _ in range(self.random.choice((1, 1, 1, 2, 3)))])

    def seed(self) -> list[str]:
        """One operation that inserts: something to work on."""
        return [f"INSERT DATA {{ {self.data(least=8, most=24)} }}"]


def _scoped(operations: list[str]) -> list[str]:
    """Blank node labels may not be shared between operations."""
    return [
        text.replace("_:x", f"_:x{number}").replace("_:y", f"_:y{number}") for number, text in enumerate(operations)
    ]


@dataclass(frozen=True)
class Story:
    """What is done to the engine: subscriptions on a graph, then updates."""

    first: list[str]
    queries: list[Query]
    updates: list[list[str]]


def story(seed: int) -> Story:
    updates, queries = Updates(seed), Queries(~seed)
    return Story(
        updates.seed(),
        [queries.query() for _ in range(queries.random.randint(2, 6))],
        [updates.update() for _ in range(updates.random.randint(4, 10))],
    )


seeds = st.integers(min_value=0, max_value=2**63)
query_text = seeds.map(lambda seed: Queries(seed).text())
