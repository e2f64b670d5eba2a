"""Compiler for long requests of only INSERT DATA and DELETE DATA, by means of Oxigraph's parser.

Operations on whole graphs may precede the data, in the usual spelling: so a request can replace a graph.

No Python code reads such a text token by token. A regular expression finds the ends of the operations. An empty store
executes their text, and then holds their quads in value form. The expression skips strings, IRIs and comments, so that
it does not count brackets in them. It gives up at the first unexpected character. Such a request goes through the usual
compiler, which reports errors.

For a legal text, Oxigraph finds the same strings, IRIs, comments and brackets. In legal data brackets are balanced, so
an operation ends where the count says, or Oxigraph rejects the text up to there.

The data is parsed in pieces, each of them legal on its own. If a cut falls into a GRAPH clause, the piece closes the
clause and the next piece opens it again. A blank node label means the same node in all pieces, so an IRI replaces it.
"""

from __future__ import annotations

import re
import secrets
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby, islice, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.updates.update_plan import Data, Manage, Pieces, Target, UpdatePlan
from edge.protocol.results import Term
from edge.sparql.fingerprint import IRI, QUOTED
from edge.sparql.tokens import MAX_DEPTH

_COMMENT: Final = r"\#[^\r\n]*+"
_GAP: Final = rf"(?>(?:[\x20\t\r\n]++|{_COMMENT})*)"
_SPACE: Final = rf"(?=[\x20\t\r\n\#]){_GAP}"

_START: Final = re.compile(
    rf"{_GAP}((?>(?:(?:PREFIX{_SPACE}[^\s:<\#]*+:|BASE){_GAP}{IRI}{_GAP})*))(INSERT|DELETE)({_SPACE}DATA{_GAP}\{{)",
    re.ASCII | re.IGNORECASE,
)
"""Start of an operation: declarations, a verb, and the text from there to the data."""

# Not in this list: variables, triple terms, reifiers, annotations, and languages with a direction.
_OTHER: Final = (
    rf"""{IRI}|{QUOTED['"']}|{QUOTED["'"]}|\^\^|{_COMMENT}"""
    r"""|@[A-Za-z]++(?>(?:-[A-Za-z0-9]++)*)(?!-)|\\[_~.\-!$&'()*+,;=/?\#@%]"""
)
"""Tokens of data, except for names, numbers, punctuation and space."""

_STRETCH: Final = re.compile(
    rf"""(?>(?:[^"'<>\#{{}}()\[\]\\@~|?$^&=!*/`]{{1,200}}+|{_OTHER}){{0,1000}})([\[({{}})\]]?+)""", re.DOTALL
)
"""A stretch of data, with the bracket after it if there is one. A match is short because `re` holds the GIL.

A stretch can start and end inside a name or a number, but inside nothing else.
"""

_REST: Final = re.compile(
    rf"""(?>(?:[^"'<>\#{{}}()\[\]\\@~|?$^&=!*/`.]++|\.(?![\x20\t\r\n])|{_OTHER}){{0,1000}})\.(?=[\x20\t\r\n])""",
    re.DOTALL,
)
"""Rest of a triple, or of triples with one subject, without brackets. A dot before space can only end a triple."""

_SEPARATOR: Final = re.compile(rf"{_GAP}(;?+){_GAP}")

_EMPTY: Final = re.compile(_GAP)

_WORD: Final = re.compile(rf"""[^"'<>\#{{}}()\[\]\\@~|?$^&=!*/`\x20\t\r\n]++|[\x20\t\r\n]++|{_OTHER}""", re.DOTALL)
"""A word of data, space, or another token of data. A match may also start and end inside a word."""

_LABEL: Final = re.compile(
    rf"""{IRI}|{QUOTED['"']}|{QUOTED["'"]}|{_COMMENT}|\\.|(?P<unclear>\^\^{_GAP}_:)"""
    r"""|(?<![^\x20\t\r\n{\[(,;}\])])_:(?P<label>[A-Za-z0-9_\-]++)(?=[\x20\t\r\n,;)\]}]|\.?\Z|\.[\x20\t\r\n])"""
    r"|(?P<other>_:)",
    re.DOTALL,
)
"""A blank node label in the usual spelling (`label`); a possible label (`unclear`, `other`); or a token without one."""

_MOST_RUNS: Final = 16
"""Limit of runs of operations in a request: each run parses all declarations again."""

_SHARDS: Final = 32
"""Dictionaries for the terms of a text. One of 200,000 terms holds the GIL for up to 5 ms: when it grows, when a
garbage collection visits it, and when it is freed.
"""

_TOGETHER: Final = 500
"""Terms in a piece: freeing it takes some 50 µs."""

_STRETCHES: Final = 16
"""Number of stretches in which the start of a GRAPH clause is searched."""

_PIECE: Final = 32 * 1024
"""Characters of data that are parsed in one call. A store of that size costs less than a hundredth of the parsing."""


_LEADING: Final = re.compile(
    r"(?>[\x20\n]*)(?:(CLEAR)\x20DEFAULT|(CREATE|DROP)\x20SILENT\x20GRAPH\x20<([^\\>]*)>)\x20?;"
)
"""An operation on a whole graph in the usual spelling."""


class _NotPlainData(Exception):
    """The text is not only data, or it is illegal, or it has an unusual spelling."""


class _UnusualLabel(Exception):
    """A blank node label has an unusual spelling."""


class _Operation(NamedTuple):
    inserts: bool
    declared: str
    """All declarations before the operation."""
    opening: str
    """The text from the verb to the opening bracket."""
    pieces: Iterable[str]
    """The data in pieces, each of them legal on its own."""


def data_plan(text: str, rules: QueryRules) -> UpdatePlan | None:
    """Return the plan of a request that consists of data; None if the usual compiler must compile it."""
    try:
        leading, start = _leading(text)
        data = [_data(*kind, run, rules) for kind, run in _runs(text, start)]
    except (_NotPlainData, SyntaxError, ValueError):
        return None
    # DELETE DATA allows no blank nodes, and two operations must not share one (SPARQL 1.1 Query, 19.8, notes). Parsing
    # in parts does not check either rule.
    with_blanks = [part for part in data if any(type(term) is ox.BlankNode for term in part.terms)]
    if len(with_blanks) > 1 or not all(part.inserts for part in with_blanks):
        return None
    return UpdatePlan((*leading, *data))


def _leading(text: str) -> tuple[list[Manage], int]:
    """Return the operations before the data, and where they end. Raises `ValueError` for an illegal IRI."""
    operations: list[Manage] = []
    position = 0
    while match := _LEADING.match(text, position):
        clear, verb, graph = match.groups()
        target = Target("DEFAULT") if clear else Target("GRAPH", ox.NamedNode(graph))
        operations.append(Manage(clear or verb, target, silent=not clear))
        position = match.end()
    return operations, position


def _runs(text: str, start: int) -> list[tuple[tuple[bool, str], list[_Operation]]]:
    """Group the operations with the same verb and declarations: each group becomes one operation."""
    runs: list[tuple[tuple[bool, str], list[_Operation]]] = []
    for kind, run in groupby(_operations(text, start), itemgetter(0, 1)):
        if len(runs) == _MOST_RUNS:
            raise _NotPlainData
        runs.append((kind, list(run)))
    if not runs:
        raise _NotPlainData
    return runs


def _operations(text: str, position: int = 0) -> Iterator[_Operation]:
    declared = ""
    while position < len(text):
        start = _START.match(text, position)
        if start is None:
            raise _NotPlainData
        declared += start[1]
        cuts = [(start.end(), ""), *_cuts(text, start.end())]
        pieces = [graph + text[begin:end] + ("}" if cut else "") for (begin, graph), (end, cut) in pairwise(cuts)]
        position = cuts[-1][0] + 1
        yield _Operation(start[2].upper() == "INSERT", declared, start[3], pieces)
        separator = _SEPARATOR.match(text, position)
        assert separator is not None  # noqa: S101  it may be empty
        position = separator.end()
        if not separator[1] and position < len(text):
            raise _NotPlainData


def _cuts(text: str, position: int) -> Iterator[tuple[int, str]]:
    """Yield the ends of the pieces of the data that starts here. The last end is before the closing bracket.

    Each end comes with the start of the GRAPH clause that it cuts; empty if it cuts none.
    """
    depth, begin = 1, position
    opened, start = "{", position
    graph: tuple[int, int] | str = ""
    """Start of the GRAPH clause at the current position, or the range of the text in which it can be found."""
    before: deque[int] = deque(maxlen=_STRETCHES)
    """Positions of the last stretches."""
    while depth:
        stretch = _STRETCH.match(text, position)
        if stretch is None or stretch.end() == position:
            raise _NotPlainData
        before.append(position)
        position = stretch.end()
        if stretch[1] == "}" and depth > 1 and opened == "{" and _EMPTY.fullmatch(text, start, stretch.start(1)):
            raise _NotPlainData  # the store cannot represent a GRAPH clause without triples
        if stretch[1]:
            if depth == 1 and stretch[1] == "{":
                graph = before[0], position
            depth += 1 if stretch[1] in "[({" else -1
            opened, start = stretch[1], stretch.end()
            if depth == 1:
                graph = ""
        if depth > MAX_DEPTH:
            raise _NotPlainData
        if depth <= 2 and position - begin >= _PIECE:
            if not isinstance(graph, str):
                graph = _graph(text, *graph)
            if depth == (2 if graph else 1) and (rest := _REST.match(text, position)):
                begin = position = rest.end()
                yield position, graph
    yield position - 1, ""


def _graph(text: str, begin: int, end: int) -> str:
    """Return the start of the GRAPH clause whose bracket is at `end`; empty if its spelling is unusual."""
    words = [word[0] for word in _WORD.finditer(text, begin, end - 1) if not _EMPTY.fullmatch(word[0])]
    if len(words) < 2 or words[-2].upper() != "GRAPH":
        return ""
    name = words[-1]
    return f"GRAPH {name} {{" if name[0] == "<" or (":" in name and name[0] != "_") else ""


def _data(inserts: bool, declared: str, operations: Sequence[_Operation], rules: QueryRules) -> Data:
    """Combine operations of one kind. Raises `_NotPlainData`, and Oxigraph's errors."""
    labels = any("_:" in piece for operation in operations for piece in operation.pieces)
    size = sum(len(piece) for operation in operations for piece in operation.pieces)
    if labels and size > _PIECE:
        with suppress(_UnusualLabel):
            return _labelled(inserts, declared, operations, rules)
    if labels:
        return _parsed(inserts, [_whole(declared, operations)], rules)
    return _parsed(inserts, _texts(declared, operations), rules)


def _labelled(inserts: bool, declared: str, operations: Sequence[_Operation], rules: QueryRules) -> Data:
    """Combine operations of one kind, with an IRI in place of each label. Raises `_UnusualLabel`, too."""
    start = f"urn:{secrets.token_hex(8)}:"
    """Prefix of these IRIs. It is random, so no other IRI starts with it."""
    owners: dict[str, int] = {}
    """Number of the operation of each label."""

    def without(number: int, piece: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            label = match["label"]
            if label is None:
                if match.lastgroup is not None:
                    raise _UnusualLabel
                return match[0]
            if owners.setdefault(label, number) != number:
                raise _NotPlainData
            return f"<{start}{label}>"

        return _LABEL.sub(replaced, piece)

    changed = (
        operation._replace(pieces=map(partial(without, number), operation.pieces))
        for number, operation in enumerate(operations)
    )
    data = _parsed(inserts, _texts(declared, changed), rules)
    terms = [tuple(ox.BlankNode() if _starts(term, start) else term for term in piece) for piece in data.terms.pieces]
    own = [type(term) is ox.BlankNode for piece in terms for term in piece]
    # One by one: in a single call, 100,000 quads would hold the GIL for milliseconds.
    if any(own[place] for first in (1, 3) for place in islice(data.places, first, None, 4)):
        raise _NotPlainData  # predicates and graphs cannot be blank nodes
    return Data(inserts, Pieces(terms), data.places)


def _starts(term: Term | ox.DefaultGraph, start: str) -> bool:
    return type(term) is ox.NamedNode and term.value.startswith(start)


def _parsed(inserts: bool, texts: Iterable[str], rules: QueryRules) -> Data:
    """Return the quads that requests insert, as one operation."""
    shards: list[dict[Term | ox.DefaultGraph, int]] = [{} for _ in range(_SHARDS)]
    """Numbers of the terms, by their hashes."""
    pieces: list[tuple[Term | ox.DefaultGraph, ...]] = []
    waiting: list[Term | ox.DefaultGraph] = []
    """Terms for the next piece."""
    size = 0
    quads = array("I")
    # No call in this loop handles more than one term, so the GIL can be released after each.
    for text in texts:
        store = ox.Store()
        store.update(text, base_iri=rules.settings.base_iri)
        for term in chain.from_iterable(store):
            shard = shards[hash(term) % _SHARDS]
            number = shard.get(term)
            if number is None:
                number = shard[term] = size
                size += 1
                waiting.append(term)
                if len(waiting) == _TOGETHER:
                    pieces.append(tuple(waiting))
                    waiting.clear()
            quads.append(number)
    pieces.append(tuple(waiting))
    while shards:  # one by one, for the same reason
        shards.pop()
    return Data(inserts, Pieces(pieces), quads)


def _whole(declared: str, operations: Iterable[_Operation]) -> str:
    """Join the operations into one inserting request."""
    return declared + ";".join([_insert(opening, "".join(pieces)) for _, _, opening, pieces in operations])


def _texts(declared: str, operations: Iterable[_Operation]) -> Iterator[str]:
    """Yield the operations as inserting requests of about one piece each."""
    # Each request parses all declarations again, so long declarations require longer requests.
    enough = max(_PIECE, 4 * len(declared))
    waiting: list[str] = []
    size = 0
    for _, _, opening, pieces in operations:
        for piece in pieces:
            waiting.append(_insert(opening, piece))
            size += len(piece)
            if size >= enough:
                yield declared + ";".join(waiting)
                waiting, size = [], 0
    if waiting:
        yield declared + ";".join(waiting)


def _insert(opening: str, data: str) -> str:
    return f"INSERT{opening}{data}}}"
