"""Compilation of update texts: one plan for all texts with the same text template.

Grammar: SPARQL 1.1 Query Language, section 19.8, rules 29 to 52. Oxigraph checks the text before this module reads it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyoxigraph as ox

from edge.engine.queries.function_calls import check_calls
from edge.engine.queries.oxigraph_queries import FORMS, QueryRules, refuse_form, refuse_service
from edge.engine.requests import STORE_DATASET, Dataset
from edge.engine.sparql.expansion import check_expansion
from edge.engine.sparql.plan_cache import LONGEST_TEXT, Compiled
from edge.engine.sparql.rdf12 import refuse_rdf12
from edge.engine.sparql.repeated_patterns import LARGE, repeated
from edge.engine.sparql.size_limits import check_size
from edge.engine.sparql.terms_text import Names
from edge.engine.store.graph import LiveGraph
from edge.engine.updates.data_compiler import data_plan
from edge.engine.updates.modify_compiler import Clauses, Given, ModifyCompiler
from edge.engine.updates.update_plan import Load, Manage, Modify, Operation, Target, Transfer, UpdatePlan
from edge.protocol.access import DEFAULT_GRAPH
from edge.protocol.errors import Forbidden, LimitExceeded, ParsingFailed
from edge.protocol.syntax import closing, tokenize
from edge.sparql.algebra import Parameter
from edge.sparql.cursor import Parameters
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.tokens import Token, read_prologue

_TRANSFERS: Final = frozenset({"ADD", "COPY", "MOVE"})
_MANAGEMENT: Final = frozenset({"CREATE", "CLEAR", "DROP"})


class UpdateCompiler:
    """Compiles updates for one live graph."""

    def __init__(self, graph: LiveGraph, rules: QueryRules) -> None:
        self._graph = graph
        self._rules = rules

    def compile(self, text: str, given: Given | None, parameters: Parameters) -> Compiled[UpdatePlan]:
        """Check an update and compile it, with some of its constants as parameters.

        Raises `ParsingFailed`, `Forbidden`, and `UpdateFailed` if its forced bindings do not fit.
        """
        rules = self._rules
        check_expansion(text)
        data = data_plan(text, rules) if len(text) > LONGEST_TEXT else None
        if data is not None:
            return Compiled(data, (), Names("", rules.settings.base_iri))
        tokens = tokenize(text)
        refuse_form(text, tokens, FORMS, "This is a query, not an update", "Send it as a query.")
        try:
            parts = _operation_texts(text, tokens)
        except ParsingFailed:
            from edge.sparql.explanation import explain  # only rejected texts need it

            raise ParsingFailed(explain("update", text, tokens, "")) from None
        for part in parts:
            where = _where(part.tokens)
            # Templates and data may have any length, but too large a query overflows Oxigraph's stack.
            check_size(text, part.tokens[where:], rules.settings.max_steps)
            if len(part.tokens) - where >= LARGE and any(repeated(part.tokens[where:])):
                parameters = {}  # with other constants, other patterns may repeat
            words = [token.word() for token in part.tokens[:2]]
            refuse_rdf12(text, part.tokens if words == ["DELETE", "WHERE"] else part.tokens[:where])
        runs = [list(run) for _, run in groupby(parts, lambda part: part.prologue)]
        if not parts:
            _assess(text, tokens, "", 0, len(text), rules)
        elif len(runs) == 1:
            _assess(text, tokens, parts[0].prologue, parts[0].tokens[0].start, len(text), rules)
        elif len(runs) > _MAX_PROLOGUES:
            problem = f"PREFIX or BASE occurs in more than {_MAX_PROLOGUES} places"
            start = runs[_MAX_PROLOGUES][0].tokens[0].start
            raise LimitExceeded(Diagnosis(start, problem, "Put all before the first operation.").message(text))
        else:  # Oxigraph does not allow declarations between operations
            parameters = {}
            for run in runs:
                _assess(text, tokens, run[0].prologue, run[0].tokens[0].start, run[-1].tokens[-1].end, rules)
        _refuse_calls(parts, tokens, rules)
        given = given or _NOTHING_GIVEN
        open_: list[Parameter] = []
        operations: list[Operation] = []
        for run in runs:
            names = Names(run[0].prologue, rules.settings.base_iri)
            for part in run:
                check_calls(text, part.tokens, names)
                modify = ModifyCompiler(self._graph, rules, text, names, given, parameters)
                operations.append(_OperationParser(part.tokens, names, given.dataset, modify).operation())
                open_ += modify.open
        if len(text) > LONGEST_TEXT:  # such a text is not cached and has no parameters
            operations = [
                each.data(()) if isinstance(each, Modify) and each.where is None else each for each in operations
            ]
        plan = UpdatePlan(tuple(operations))
        return Compiled(plan, open_, Names(parts[0].prologue if parts else "", rules.settings.base_iri))


_MAX_PROLOGUES: Final = 16
"""Limit of places with declarations in a request. Each run of operations is checked with all declarations before it."""

_NOTHING_GIVEN: Final = Given(STORE_DATASET)


def _refuse_calls(parts: Sequence[_OperationText], tokens: Sequence[Token], rules: QueryRules) -> None:
    """Reject a legal request with LOAD or SERVICE unless it is enabled. Raises `Forbidden`."""
    if not rules.settings.allow_load and any(part.tokens[0].word() == "LOAD" for part in parts):
        raise Forbidden(
            "LOAD is disabled, so that clients cannot make the gateway send requests; to allow it, set "
            "engine.allow_load"
        )
    refuse_service(tokens, rules)


def _where(tokens: Sequence[Token]) -> int:
    """Return the token index of the WHERE clause of an operation, or its end if it has none."""
    index = 0
    while index < len(tokens) and tokens[index].word() != "WHERE":
        index = closing(tokens, index) + 1 if tokens[index].text == "{" else index + 1
    return index


@dataclass(frozen=True, slots=True)
class _OperationText:
    """One operation of a request, with all declarations before it."""

    prologue: str
    tokens: Sequence[Token]
    """Tokens with their positions in the whole request."""


def _operation_texts(text: str, tokens: Sequence[Token]) -> list[_OperationText]:
    parts: list[_OperationText] = []
    prologue = ""
    index = 0
    while index < len(tokens):
        declared, index = read_prologue(text, tokens, index)
        prologue += declared
        start = index
        while index < len(tokens) and tokens[index].text != ";":
            index = closing(tokens, index) + 1 if tokens[index].text == "{" else index + 1
        if start < index:
            parts.append(_OperationText(prologue, tokens[start:index]))
        elif index < len(tokens):
            raise ParsingFailed("An operation is missing before ';'")
        index += 1
    return parts


_FAILING: Final = f"DROP GRAPH <urn:x-edge:{uuid.uuid4()}>;\n"
"""An operation that fails on an empty store."""


def _assess(text: str, tokens: Sequence[Token], prologue: str, start: int, end: int, rules: QueryRules) -> None:
    """Check operations with Oxigraph's parser. It parses all operations before it runs the first one, which fails here.

    So nothing is evaluated and nothing is fetched, whatever a WHERE clause or a LOAD contains. `start`, `end`: range of
    the operations in the text. Raises `ParsingFailed`.
    """
    operations = text[start:end]
    try:
        ox.Store().update(prologue + _FAILING + operations, base_iri=rules.settings.base_iri)
    except (RuntimeError, OSError):
        return
    except (SyntaxError, ValueError):
        pass
    try:  # parse again for the position of the error; the result is the same, so nothing is evaluated here either
        ox.Store().update(prologue + operations, base_iri=rules.settings.base_iri)
    except (SyntaxError, ValueError) as error:
        from edge.sparql.explanation import explain, reported_position  # only rejected texts need it

        position = start - len(prologue) + reported_position(prologue + operations, str(error))
        raise ParsingFailed(explain("update", text, tokens, str(error), max(0, position))) from None


class _OperationParser:
    """Parser of one operation, token by token."""

    def __init__(self, tokens: Sequence[Token], names: Names, dataset: Dataset, modify: ModifyCompiler) -> None:
        """`dataset`: dataset of the request."""
        self._tokens = tokens
        self._names = names
        self._dataset = dataset
        self._modify_compiler = modify
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
            readable = self._dataset.readable
            if readable is not None and (source.graph.value if source.graph else DEFAULT_GRAPH) not in readable:
                raise Forbidden(f"{verb}: this client may not read the graph {source.graph or 'DEFAULT'}")
            self._expect("TO")
            return Transfer(verb, source, self._target(), silent)
        return self._modify()

    def _modify(self) -> Modify:
        words = [token.word() for token in self._tokens[:2]]
        if words in (["INSERT", "DATA"], ["DELETE", "DATA"]):
            self._index = 2
            data = self._group()
            return self._modify_compiler.compile(Clauses(delete=data) if words[0] == "DELETE" else Clauses(insert=data))
        if words == ["DELETE", "WHERE"]:
            self._index = 2
            group = self._group()
            return self._modify_compiler.compile(Clauses(delete=group, where=group))
        graph = self._iri_token() if self._accept("WITH") else None
        delete = self._group() if self._accept("DELETE") else ()
        insert = self._group() if self._accept("INSERT") else ()
        using = self._using()
        if self._dataset.given and (graph is not None or using.given):
            raise ParsingFailed(
                "The request gives a dataset (using-graph-uri, using-named-graph-uri) and so does the update "
                "(WITH or USING); SPARQL 1.1 Protocol, 2.2.3, allows one of the two"
            )
        self._expect("WHERE")
        return self._modify_compiler.compile(Clauses(delete, insert, self._group(), graph, using))

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
        """Return the tokens between the braces at the cursor, and move behind them."""
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
