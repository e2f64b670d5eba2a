"""From the text of an update to its plan, once for all texts of its shape.

Grammar: SPARQL 1.1 Query Language, section 19.8, rules 29 to 52. Oxigraph judges the text before it is taken apart.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import pyoxigraph as ox

from edge.engine import forced
from edge.engine.general import Rules, allowed
from edge.engine.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.operators.compiler import Compiler
from edge.engine.operators.expression import Moment, Unsupported, volatile
from edge.engine.operators.layout import Frame, Layout
from edge.engine.operators.normal import normal
from edge.engine.operators.variables import expressions, nodes
from edge.engine.plan import (
    GeneralWhere,
    Load,
    Manage,
    Modify,
    NativeWhere,
    Operation,
    Target,
    Template,
    Transfer,
    UpdatePlan,
)
from edge.engine.requests import STORE_DATASET, Dataset
from edge.engine.sparql.algebra import Extend, Filter, Fresh, GraphPattern, Node, Parameter, Slot, Triple, Variable
from edge.engine.sparql.cursor import Parameters
from edge.engine.sparql.parser import parse_group, parse_quads
from edge.engine.sparql.plans import Compiled
from edge.engine.sparql.syntax import Token, check_size, closing, read_prologue
from edge.engine.sparql.terms_text import Names
from edge.engine.terms import canonical
from edge.protocol.errors import Forbidden, ParsingFailed

_TRANSFERS: Final = frozenset({"ADD", "COPY", "MOVE"})
_MANAGEMENT: Final = frozenset({"CREATE", "CLEAR", "DROP"})


@dataclass(frozen=True, slots=True)
class Given:
    """What a request gives besides its text, as far as a plan depends on it."""

    dataset: Dataset
    kinds: forced.Kinds = ()
    """Of its forced bindings."""


class UpdateCompiler:
    """Compiles updates for one live graph."""

    def __init__(self, graph: LiveGraph, rules: Rules) -> None:
        self.graph = graph
        self.rules = rules

    def compile(self, text: str, given: Given | None, parameters: Parameters) -> Compiled[UpdatePlan]:
        """Check an update and compile it, with some of these constants left open.

        Raises `ParsingFailed`, `Forbidden`, and `UpdateFailed` if its forced bindings do not fit.
        """
        rules = self.rules
        tokens = allowed(text, rules)
        parts = _parts(text, tokens)
        for part in parts:
            _check_where(part.tokens)
            if not rules.allow_load and part.tokens[0].word() == "LOAD":
                raise Forbidden(
                    "LOAD is switched off, so that nobody can make the gateway send requests; "
                    "engine.allow_load allows it"
                )
        same = all(part.prologue == parts[0].prologue for part in parts)
        if not parts:
            _judge(text, "", rules)
        elif same:
            _judge(parts[0].prologue, text[parts[0].tokens[0].start :], rules)
        else:  # Oxigraph takes no declarations between operations
            parameters = {}
            for part in parts:
                _judge(part.prologue, part.text, rules)
        given = given or _NOTHING_GIVEN
        readers = [_Reader(text, part, given, parameters, self) for part in parts]
        plan = UpdatePlan(tuple(reader.operation() for reader in readers))
        open_ = [parameter for reader in readers for parameter in reader.open]
        return Compiled(plan, open_, Names(parts[0].prologue if parts else "", rules.base_iri))


_NOTHING_GIVEN: Final = Given(STORE_DATASET)


def _check_where(tokens: Sequence[Token]) -> None:
    """Refuse a WHERE clause that is too long for Oxigraph. Templates and data may be as long as they like."""
    index = 0
    while index < len(tokens) and tokens[index].word() != "WHERE":
        index = closing(tokens, index) + 1 if tokens[index].text == "{" else index + 1
    check_size(tokens[index:])


@dataclass(frozen=True, slots=True)
class _Part:
    """One operation of a request, with all declarations that stand before it."""

    prologue: str
    text: str
    tokens: Sequence[Token]
    """Their positions are those in the whole request."""


def _parts(text: str, tokens: Sequence[Token]) -> list[_Part]:
    parts: list[_Part] = []
    prologue = ""
    index = 0
    while index < len(tokens):
        declared, index = read_prologue(text, tokens, index)
        prologue += declared
        start = index
        while index < len(tokens) and tokens[index].text != ";":
            index = closing(tokens, index) + 1 if tokens[index].text == "{" else index + 1
        if start < index:
            parts.append(_Part(prologue, text[tokens[start].start : tokens[index - 1].end], tokens[start:index]))
        elif index < len(tokens):
            raise ParsingFailed("Not a SPARQL 1.1 update: an operation is missing before ';'")
        index += 1
    return parts


_FAILING: Final = f"DROP GRAPH <urn:x-edge:{uuid.uuid4()}>;\n"
"""An operation that fails on an empty store."""


def _judge(prologue: str, operations: str, rules: Rules) -> None:
    """Let Oxigraph parse operations: it parses all before it runs the first, and the first fails.

    So nothing is evaluated here and nothing is fetched, whatever a WHERE clause or a LOAD says.
    """
    try:
        ox.Store().update(prologue + _FAILING + operations, base_iri=rules.base_iri)
    except (RuntimeError, OSError):
        return
    except (SyntaxError, ValueError):
        pass
    try:
        ox.Store().update(prologue + operations, base_iri=rules.base_iri)  # again, for the position of the error
    except (SyntaxError, ValueError) as error:
        raise ParsingFailed(f"Not a SPARQL 1.1 update: {error}") from None


@dataclass(frozen=True, slots=True)
class _Clauses:
    """What a DELETE / INSERT operation consists of: the tokens between the braces of its clauses."""

    delete: Sequence[Token] = ()
    insert: Sequence[Token] = ()
    where: Sequence[Token] | None = None
    graph: Token | None = None
    """The IRI of WITH."""
    using: Dataset = STORE_DATASET


_TERMS: Final = (ox.NamedNode, ox.BlankNode, ox.Literal, ox.Triple)


class _Reader:
    """Reads one operation, token by token."""

    def __init__(self, text: str, part: _Part, given: Given, parameters: Parameters, compiler: UpdateCompiler) -> None:
        self.open: list[Parameter] = []
        """The constants that the operation leaves open."""
        self._text = text
        self._tokens = part.tokens
        self._names = Names(part.prologue, compiler.rules.base_iri)
        self._given = given
        self._forced = forced.parameters(given.kinds)
        self._parameters = parameters
        self._compiler = compiler
        self._index = 0

    def operation(self) -> Operation:
        verb = self._tokens[0].word()
        if verb == "LOAD":
            return self._load()
        if verb in _MANAGEMENT:
            self._index = 1
            silent = self._accept("SILENT")
            return Manage(verb, self._target(), silent)
        if verb in _TRANSFERS:
            self._index = 1
            silent = self._accept("SILENT")
            source = self._target()
            self._expect("TO")
            return Transfer(verb, source, self._target(), silent)
        return self._modify()

    def _modify(self) -> Modify:
        words = [token.word() for token in self._tokens[:2]]
        if words in (["INSERT", "DATA"], ["DELETE", "DATA"]):
            self._index = 2
            data = self._group()
            return self._compiled(_Clauses(delete=data) if words[0] == "DELETE" else _Clauses(insert=data))
        if words == ["DELETE", "WHERE"]:
            self._index = 2
            group = self._group()
            return self._compiled(_Clauses(delete=group, where=group))
        graph = self._iri_token() if self._accept("WITH") else None
        delete = self._group() if self._accept("DELETE") else ()
        insert = self._group() if self._accept("INSERT") else ()
        using = self._using()
        if self._given.dataset.given and (graph is not None or using.given):
            raise ParsingFailed(
                "The request gives a dataset (using-graph-uri, using-named-graph-uri) and so does the update "
                "(WITH or USING); SPARQL 1.1 Protocol, 2.2.3, allows one of the two"
            )
        self._expect("WHERE")
        return self._compiled(_Clauses(delete, insert, self._group(), graph, using))

    def _compiled(self, clauses: _Clauses) -> Modify:
        if clauses.where is None:
            return self._built(clauses, Layout(), self._parameters, None)
        layout = Layout()
        try:
            where = self._native(clauses, clauses.where, layout)
        except (Unsupported, ParsingFailed):
            return self._general(clauses, clauses.where)
        return self._built(clauses, layout, self._parameters, where)

    def _native(self, clauses: _Clauses, group: Sequence[Token], layout: Layout) -> NativeWhere:
        """The WHERE clause as operators. Raises `Unsupported` or `ParsingFailed` if it cannot be done."""
        compiler = self._compiler
        default = self._default_graph(clauses)
        node = forced.bound(parse_group(group, self._names, self._parameters, graph=default), self._forced)
        if self._dataset(clauses).given and any(isinstance(n, GraphPattern) for n in nodes(node)):
            raise Unsupported("GRAPH in a dataset")
        if _unsteady(node):
            raise Unsupported("a function that gives another value each time")
        moment = Moment()
        base = self._names.declared().base or compiler.rules.base_iri
        plan = Compiler(compiler.graph, layout, moment, base).compile(normal(node))
        return NativeWhere(plan.operator, moment)

    def _dataset(self, clauses: _Clauses) -> Dataset:
        return clauses.using if clauses.using.given else self._given.dataset

    def _default_graph(self, clauses: _Clauses) -> Slot | None:
        """What the WHERE clause takes for the default graph; None: the store's own. Raises `Unsupported`."""
        dataset = self._dataset(clauses)
        if dataset.given:
            graphs = dataset.default_graphs or ()
            if len(graphs) != 1:
                raise Unsupported("a dataset of several graphs")
            return ox.NamedNode(graphs[0])
        if clauses.graph is not None:
            return self._slot(clauses.graph, self._parameters)
        if self._compiler.rules.union_default_graph:
            raise Unsupported("the union of all graphs as the default graph")
        return None

    def _general(self, clauses: _Clauses, group: Sequence[Token]) -> Modify:
        """With a WHERE clause that is evaluated as it is written: its constants are no parameters."""
        dataset = self._dataset(clauses)
        graph = None if clauses.graph is None else self._names.declared().iri(clauses.graph.text)
        start, end = (group[0].start, group[-1].end) if group else (0, 0)
        where = GeneralWhere(self._names.prologue, f"{{ {self._text[start:end]} }}", dataset, graph)
        fixed = {clauses.graph.start} if clauses.graph is not None else set()
        fixed.update(token.start for token in group)
        parameters = {start: end for start, end in self._parameters.items() if start not in fixed}
        return self._built(clauses, Layout(), parameters, where)

    def _slot(self, token: Token, parameters: Parameters) -> Slot:
        """An IRI, as a parameter if it is open."""
        iri = self._names.declared().iri(token.text)
        place = parameters.get(token.start)
        return iri if place is None or place[0] != token.end else Parameter(place[1], False, iri)

    def _built(
        self,
        clauses: _Clauses,
        layout: Layout,
        parameters: Parameters,
        where: NativeWhere | GeneralWhere | None,
    ) -> Modify:
        """The operation: its templates, and what its frames begin with."""
        graph = None if clauses.graph is None else self._slot(clauses.graph, parameters)
        deletes = self._templates(clauses.delete, layout, parameters, graph)
        inserts = self._templates(clauses.insert, layout, parameters, graph)
        blank: Frame = [None] * len(layout.places)
        if None in layout.places:
            blank[layout.places[None]] = DEFAULT_GRAPH
        self.open += [parameter for parameter, _ in layout.parameters if parameter.index >= 0]
        return Modify(
            blank,
            tuple((place, canonical(key)) for key, place in layout.places.items() if isinstance(key, _TERMS)),
            tuple((place, parameter.index) for parameter, place in layout.parameters),
            {key.name: place for key, place in layout.places.items() if isinstance(key, Variable)},
            tuple(layout.fresh),
            deletes,
            inserts,
            where,
        )

    def _templates(
        self, group: Sequence[Token], layout: Layout, parameters: Parameters, graph: Slot | None
    ) -> tuple[Template, ...]:
        triples = forced.bound(parse_quads(group, self._names, parameters, graph=graph), self._forced)
        return tuple(Template(itemgetter(*layout.quad(triple)), _legal(triple)) for triple in triples)

    def _load(self) -> Load:
        self._index = 1
        silent = self._accept("SILENT")
        document = self._iri()
        if not self._accept("INTO"):
            return Load(document, None, silent)
        self._expect("GRAPH")
        return Load(document, self._iri(), silent)

    def _using(self) -> Dataset:
        default: list[str] = []
        named: list[str] = []
        while self._accept("USING"):
            (named if self._accept("NAMED") else default).append(self._iri().value)
        return Dataset(tuple(default), tuple(named)) if default or named else STORE_DATASET

    def _target(self) -> Target:
        for which in ("DEFAULT", "NAMED", "ALL"):
            if self._accept(which):
                return Target(which)
        self._accept("GRAPH")
        return Target("GRAPH", self._iri())

    def _group(self) -> Sequence[Token]:
        """The tokens between the braces at the cursor."""
        start = self._index
        if start >= len(self._tokens) or self._tokens[start].text != "{":
            raise ParsingFailed("Not a SPARQL 1.1 update: '{' expected")
        end = closing(self._tokens, start)
        self._index = end + 1
        return self._tokens[start + 1 : end]

    def _iri(self) -> ox.NamedNode:
        return self._names.declared().iri(self._iri_token().text)

    def _iri_token(self) -> Token:
        if self._index >= len(self._tokens):
            raise ParsingFailed("Not a SPARQL 1.1 update: an IRI is missing at the end")
        self._index += 1
        return self._tokens[self._index - 1]

    def _accept(self, word: str) -> bool:
        if self._index < len(self._tokens) and self._tokens[self._index].word() == word:
            self._index += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise ParsingFailed(f"Not a SPARQL 1.1 update: {word} expected")


def _unsteady(node: Node) -> bool:
    """Whether it may matter how often an expression is evaluated. A BIND at the top is, once for each solution."""
    while isinstance(node, Extend) or (isinstance(node, Filter) and not any(map(volatile, node.conditions))):
        node = node.pattern
    return any(map(volatile, expressions(node)))


def _legal(triple: Triple) -> bool:
    """Whether a quad of a template is legal whatever its variables are (RDF 1.1 Concepts, section 3.1)."""
    subject, predicate, graph = (
        slot.term if isinstance(slot, Parameter) else slot for slot in (triple.subject, triple.predicate, triple.graph)
    )
    return (
        isinstance(subject, ox.NamedNode | ox.BlankNode | Fresh)
        and isinstance(predicate, ox.NamedNode)
        and isinstance(graph, ox.NamedNode | None)
    )
