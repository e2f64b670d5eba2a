"""Random SPARQL texts, over a vocabulary so small that most patterns match.

Parts with more than one right result are marked (see `Patterns`) or left out: BNODE, UUID, RAND, REDUCED, LIMIT without
a total order, sums that depend on their order. Hypothesis draws only the seed: its own choices are so simple that few
subscriptions would get a notification.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyoxigraph as ox
from generated_patterns import GRAPH_IRIS, GRAPHS, MADE_BLANK_NODES, PREDICATES, PREFIX, RESOURCES, VARIABLES, Patterns
from hypothesis import strategies as st
from oracle import BASE, Query


class Queries(Patterns):
    """Generator of queries of all forms."""

    free = True

    def dataset(self) -> str:
        if not self.chance(6):
            return ""
        a, b, c = (self.one(GRAPHS) for _ in range(3))
        return self.one((f"FROM {a}", f"FROM NAMED {a}", f"FROM {a} FROM {b} FROM NAMED {c}"))

    def where(self) -> str:
        """Return a WHERE clause. A sub-query alone would hide variables that the rest of the query may name."""
        group = self.sub_query(self.random.randint(1, 2)) if self.chance(8) else self.any_group()
        return f"{self.dataset()} WHERE {{ {group} }}"

    def distinct(self) -> str:
        return "DISTINCT " if self.chance(3) else ""

    def plain_select(self) -> str:
        names = [*VARIABLES, "?g"]
        self.random.shuffle(names)
        projected = "*" if self.chance(2) else " ".join(names[: self.random.randint(1, 4)])
        return f"SELECT {self.distinct()}{projected} WHERE {{ {self.plain_group()} }}"

    def general_select(self) -> str:
        a, b = self.random.sample((*VARIABLES, "?n", "?g"), 2)
        projected = self.one(("*", "*", a, f"{a} {b}", f"{a} ({self.expression()} AS {self.fresh()})"))
        where = self.where()
        if self.chance(10) and "EXISTS" not in where:  # Oxigraph lets EXISTS see these values
            where += f" {self.values()}"
        return f"SELECT {self.distinct()}{projected} {where}"

    def grouped_select(self) -> tuple[str, str]:
        """Return a SELECT with aggregates, and the query of their inputs."""
        grouping, where = self.grouping(nested=False), self.where()
        distinct = "DISTINCT " if self.chance(10) else ""
        inputs = f"SELECT {grouping.inputs} {where}" if grouping.inputs else ""
        return f"SELECT {distinct}{grouping.selected} {where} {grouping.tail}", inputs

    def sliced_select(self) -> str:
        a, b = self.random.sample((*VARIABLES, "?n"), 2)
        order = " ".join(f"{v} STR({v}) STR(DATATYPE({v})) LANG({v})" for v in (a, b))
        total = f"FILTER(!isBLANK({a}) && !isBLANK({b}))"
        limit = self.one(("LIMIT 1", "LIMIT 2 OFFSET 1", "OFFSET 1"))
        where = f"{{ {{ {self.any_group()} }} {total} }}"
        return f"SELECT {a} {b} {self.dataset()} WHERE {where} ORDER BY {order} {limit}"

    def construct(self) -> str:
        if self.chance(5):
            return f"CONSTRUCT WHERE {{ {self.block(blanks=False)} }}"
        template = self.block(blanks=False, most=3) + (f" {self.one(MADE_BLANK_NODES)}" if self.chance(5) else "")
        return f"CONSTRUCT {{ {template} }} {self.where()}"

    def describe(self) -> str:
        a = self.one(RESOURCES)
        return self.one(
            (
                f"DESCRIBE {a}",
                f"DESCRIBE {a} {self.variable()} {self.where()}",
                f"DESCRIBE * {self.where()}",
                f"DESCRIBE {self.variable()} WHERE {{ {self.plain_group()} }}",
            )
        )

    def form(self) -> str:
        return self.drawn(
            (
                (6, self.plain_select),
                (14, self.general_select),
                (2, self.sliced_select),
                (3, lambda: f"ASK {self.where()}"),
                (4, self.construct),
                (1, self.describe),
            )
        )

    def query(self) -> Query:
        """Return a valid query."""
        while True:
            query = self._any_query()
            try:
                ox.Store().query(query.text, base_iri=BASE)
            except SyntaxError:  # BIND to a variable that is already bound
                continue
            return query

    def _any_query(self) -> Query:
        text, inputs = self.grouped_select() if self.chance(4) else (self.form(), "")
        graphs = (self._graphs(), self._graphs()) if self.chance(8) else (None, None)
        return Query(PREFIX + text, *graphs, inputs=inputs and PREFIX + inputs)

    def _graphs(self) -> tuple[str, ...] | None:
        return None if self.chance(3) else tuple(self.random.sample(GRAPH_IRIS, self.random.randint(0, 2)))


class Updates(Patterns):
    """Generator of updates of all forms."""

    def data(self, blanks: bool = True, least: int = 1, most: int = 5) -> str:
        parts = []
        for _ in range(self.random.randint(least, most)):
            s = self.one(("_:x", "_:y")) if blanks and self.chance(4) else self.one(RESOURCES)
            p = self.one(PREDICATES)
            o = self.one(("_:x", "_:y", "[]")) if blanks and self.chance(6) else self.node()
            if p == "ex:n" and not self.chance(8):
                o = self.number()
            parts.append(self._placed(f"{s} {p} {o}", GRAPHS))
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
                else self.one((*VARIABLES, *VARIABLES, "?n", "?d", self.node()))
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
        where = self.triple(False) if how <= 1 else self.plain_group() if how <= 3 else self.any_group()
        found = where if how <= 1 else self.template(False)
        delete = f"DELETE {{ {found} }} " if kind != 0 else ""
        insert = f"INSERT {{ {self.template(True)} }} " if kind != 1 else ""
        return f"{with_}{delete}{insert}{self.using()} WHERE {{ {where} }}"

    def overwrite(self) -> str:
        """Return an update that overwrites a value, the most frequent update of a gateway."""
        s, p = self.one(RESOURCES), self.one(("ex:n", "ex:n", "ex:q"))
        value = self.number() if p == "ex:n" else self.node()
        found = self.one(
            (
                f"OPTIONAL {{ {s} {p} ?n }}",
                f"{s} {p} ?n",
                f"?a {p} ?n FILTER(?a = {s})",
                f"VALUES ?a {{ {s} }} ?a {p} ?n",
                f"?a {p} ?n FILTER EXISTS {{ ?a ex:p {self.one(RESOURCES)} }}",
            )
        )
        a = "?a" if "?a" in found else s
        return f"DELETE {{ {a} {p} ?n }} INSERT {{ {a} {p} {value} }} WHERE {{ {found} }}"

    def compute(self) -> str:
        """Return an update that computes values from values."""
        aggregate = self.one(("SUM(?n)", "STR(AVG(?n))", "COUNT(*)", "COUNT(DISTINCT ?b)", "MAX(STR(?b))"))
        counted = f"({aggregate} AS ?d) WHERE {{ {self.block()} }}"
        return self.one(
            (
                "DELETE { ?a ex:n ?n } INSERT { ?a ex:n ?d } WHERE { ?a ex:n ?n BIND(?n + 1 AS ?d) FILTER(?n < 4) }",
                f"INSERT {{ ?a ex:n ?d }} WHERE {{ SELECT ?a {counted} GROUP BY ?a }}",
                f"INSERT {{ {self.one(RESOURCES)} ex:n ?d }} WHERE {{ {{ SELECT {counted} }} }}",
                f"INSERT {{ ?a ex:p ?d }} WHERE {{ {self.block()} {self.bind()} }}",
                f"DELETE {{ ?a ?c ?b }} INSERT {{ ?a ?c ?b }} WHERE {{ ?a ?c ?b {self.filter(1)} }}",
                f"DELETE {{ ?a ?c ?b }} INSERT {{ ?b ?c ?a }} WHERE {{ ?a ?c ?b {self.filter(1)} }}",
                f"INSERT {{ GRAPH ?g {{ ?a ex:p ?b }} }} WHERE {{ {self.values()} GRAPH ?g {{ ?a ex:q ?b }} }}",
            )
        )

    def back_and_forth(self) -> list[str]:
        """Return updates that remove quads and insert them again, or the reverse."""
        data = self.data(blanks=False)
        both = [f"DELETE DATA {{ {data} }}", f"INSERT DATA {{ {data} }}"]
        return both if self.chance(2) else both[::-1]

    def delete_where(self) -> str:
        parts = []
        for _ in range(self.random.randint(1, 2)):
            block = self.block(blanks=False, most=1)
            parts.append(f"GRAPH {self.one((*GRAPHS, '?g'))} {{ {block} }}" if self.chance(3) else block)
        return f"DELETE WHERE {{ {' '.join(parts)} }}"

    def manage(self) -> str:
        """Return an update that creates, clears or moves graphs."""
        silent = self.one(("", "SILENT "))
        kind = self.random.randrange(3)
        if kind == 0:
            return f"CREATE {silent}GRAPH {self.one(GRAPHS)}"
        if kind == 1:
            graph = f"GRAPH {self.one(GRAPHS)}"
            target = self.one((graph, graph, graph, "DEFAULT", "NAMED", "ALL"))
            return f"{self.one(('CLEAR', 'DROP'))} {silent}{target}"
        source, end = (self.one((*GRAPHS, "DEFAULT", "GRAPH ex:g2")) for _ in range(2))
        return f"{self.one(('ADD', 'COPY', 'MOVE'))} {silent}{source} TO {end}"

    def operation(self) -> str:
        return self.drawn(
            (
                (5, lambda: f"INSERT DATA {{ {self.data()} }}"),
                (2, lambda: f"DELETE DATA {{ {self.data(blanks=False, most=10)} }}"),
                (5, self.modify),
                (3, self.overwrite),
                (3, self.compute),
                (2, self.delete_where),
                (2, self.manage),
            )
        )

    def update(self) -> list[str]:
        """Return the operations of one request, without prologue."""
        if self.chance(16):
            return self.back_and_forth()
        return _scoped([self.operation() for _ in range(self.random.choice((1, 1, 1, 2, 3)))])

    def seed(self) -> list[str]:
        """Return one operation that inserts initial data."""
        return [f"INSERT DATA {{ {self.data(least=8, most=24)} }}"]


def _scoped(operations: list[str]) -> list[str]:
    """Make the labels of blank nodes unique, because operations must not share them."""
    return [
        text.replace("_:x", f"_:x{number}").replace("_:y", f"_:y{number}") for number, text in enumerate(operations)
    ]


seeds = st.integers(min_value=0, max_value=2**63)
query_text = seeds.map(lambda seed: Queries(seed).query().text)
