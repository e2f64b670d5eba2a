"""Update plans: the text of a SPARQL 1.1 Update request taken apart into operations, once.

Grammar: SPARQL 1.1 Query Language, section 19.8, rules 29 to 52. Oxigraph has judged the text before it comes here.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyoxigraph as ox

from edge.engine.general import Rules, allowed
from edge.engine.pattern import Layout, Pattern, Places, compile_pattern
from edge.engine.requests import STORE_DATASET, Dataset
from edge.engine.sparql.algebra import Variable
from edge.engine.sparql.syntax import Token, check_size, closing, read_prologue
from edge.engine.sparql.template import Names, QuadTemplate, parse_iri, parse_quads
from edge.protocol.errors import Forbidden, ParsingFailed


@dataclass(frozen=True, slots=True)
class GeneralWhere:
    """A WHERE clause that the mirror evaluates: its group as written, and what it is evaluated on."""

    prologue: str
    group: str
    dataset: Dataset
    """Of USING, or of the protocol."""
    graph: ox.NamedNode | None
    """Of WITH: the default graph of the evaluation. USING goes before it."""


@dataclass(frozen=True, slots=True)
class Modify:
    """DELETE / INSERT / WHERE in all its forms, and INSERT DATA and DELETE DATA, whose WHERE is the empty pattern."""

    layout: Layout
    deletes: tuple[Places, ...]
    inserts: tuple[Places, ...]
    where: Pattern | GeneralWhere


@dataclass(frozen=True, slots=True)
class Target:
    """What a graph management operation works on: one graph, or DEFAULT, NAMED or ALL."""

    which: str
    graph: ox.NamedNode | None = None


@dataclass(frozen=True, slots=True)
class Manage:
    """CREATE, CLEAR or DROP."""

    verb: str
    target: Target
    silent: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """ADD, COPY or MOVE."""

    verb: str
    source: Target
    destination: Target
    silent: bool


@dataclass(frozen=True, slots=True)
class Load:
    """LOAD of a document into a graph (None: the default graph)."""

    document: ox.NamedNode
    graph: ox.NamedNode | None
    silent: bool


Operation = Modify | Manage | Transfer | Load


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The operations of one request, in order."""

    operations: tuple[Operation, ...]


NOTHING: Final = Pattern(())
_TRANSFERS: Final = frozenset({"ADD", "COPY", "MOVE"})
_MANAGEMENT: Final = frozenset({"CREATE", "CLEAR", "DROP"})


def compile_update(text: str, dataset: Dataset, rules: Rules) -> UpdatePlan:
    """Check an update and compile it. Raises `ParsingFailed`, `Forbidden`."""
    tokens = allowed(text, rules)
    parts = _parts(text, tokens)
    for part in parts:
        _check_where(part.tokens)
        if not rules.allow_load and part.tokens[0].word() == "LOAD":
            raise Forbidden(
                "LOAD is switched off, so that nobody can make the gateway send requests; engine.allow_load allows it"
            )
    if any(part.prologue != parts[0].prologue for part in parts):
        # Oxigraph takes no declarations between operations.
        for part in parts:
            _judge(part.prologue, part.text, rules)
    elif parts:
        _judge(parts[0].prologue, text[parts[0].tokens[0].start :], rules)
    else:
        _judge(text, "", rules)
    return UpdatePlan(tuple(_Reader(text, part, dataset, rules).operation() for part in parts))


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


class _Reader:
    """Reads one operation, token by token."""

    def __init__(self, text: str, part: _Part, dataset: Dataset, rules: Rules) -> None:
        self._text = text
        self._tokens = part.tokens
        self._names = Names(part.prologue, rules.base_iri)
        self._dataset = dataset
        self._union = rules.union_default_graph
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
        layout = Layout()
        if self._words(2) in (["INSERT", "DATA"], ["DELETE", "DATA"]):
            deleting = self._tokens[0].word() == "DELETE"
            self._index = 2
            places = layout.template(self._quads(variables=False), None)
            nothing: tuple[Places, ...] = ()
            return Modify(layout, *((places, nothing) if deleting else (nothing, places)), NOTHING)
        if self._words(2) == ["DELETE", "WHERE"]:
            self._index = 2
            group = self._group()
            quads = parse_quads(self._text, group, self._names, variables=True)
            where = self._where(group, layout, None)
            return Modify(layout, layout.template(quads, None), (), where)
        graph = self._iri() if self._accept("WITH") else None
        deletes = self._quads(variables=True) if self._accept("DELETE") else ()
        inserts = self._quads(variables=True) if self._accept("INSERT") else ()
        using = self._using()
        if self._dataset.given and (graph is not None or using.given):
            raise ParsingFailed(
                "The request gives a dataset (using-graph-uri, using-named-graph-uri) and so does the update "
                "(WITH or USING); SPARQL 1.1 Protocol, 2.2.3, allows one of the two"
            )
        self._expect("WHERE")
        where = self._where(self._group(), layout, graph, using)
        return Modify(layout, layout.template(deletes, graph), layout.template(inserts, graph), where)

    def _where(
        self, group: Sequence[Token], layout: Layout, graph: ox.NamedNode | None, using: Dataset = STORE_DATASET
    ) -> Pattern | GeneralWhere:
        dataset = using if using.given else self._dataset
        if not dataset.given and not (self._union and graph is None):
            pattern = compile_pattern(self._text, group, self._names, layout, graph)
            if pattern is not None:
                return pattern
        body = self._text[group[0].start : group[-1].end] if group else ""
        for token in group:
            if token.kind == "var":
                layout.place(Variable(token.text[1:]))
        return GeneralWhere(self._names.prologue, f"{{ {body} }}", dataset, graph)

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

    def _quads(self, *, variables: bool) -> tuple[QuadTemplate, ...]:
        return parse_quads(self._text, self._group(), self._names, variables=variables)

    def _group(self) -> Sequence[Token]:
        """The tokens between the braces at the cursor."""
        start = self._index
        if start >= len(self._tokens) or self._tokens[start].text != "{":
            raise ParsingFailed("Not a SPARQL 1.1 update: '{' expected")
        end = closing(self._tokens, start)
        self._index = end + 1
        return self._tokens[start + 1 : end]

    def _iri(self) -> ox.NamedNode:
        if self._index >= len(self._tokens):
            raise ParsingFailed("Not a SPARQL 1.1 update: an IRI is missing at the end")
        self._index += 1
        return parse_iri(self._tokens[self._index - 1], self._names)

    def _words(self, count: int) -> list[str]:
        return [token.word() for token in self._tokens[:count]]

    def _accept(self, word: str) -> bool:
        if self._index < len(self._tokens) and self._tokens[self._index].word() == word:
            self._index += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise ParsingFailed(f"Not a SPARQL 1.1 update: {word} expected")
