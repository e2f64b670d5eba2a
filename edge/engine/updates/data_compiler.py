"""Long requests that are nothing but INSERT DATA and DELETE DATA, made into plans by way of Oxigraph's parser.

Nothing here is read token by token. A regular expression finds where the operations end; an empty store that is given
their text then holds their quads, in value form. The expression skips strings, IRIs and comments, so that it takes none
of their characters for a bracket, and gives up at the first character that it is not sure of: such a request is taken
apart, judged and refused as any other.

As far as a text is legal, Oxigraph sees the same strings, IRIs, comments and brackets in it. In legal data brackets
come in pairs, so an operation ends where counting them says, or Oxigraph refuses what was counted.

Data is parsed in pieces that are legal for themselves: a graph that is cut ends with one piece, and is opened again by
the next. The label of a blank node means the same node in all of them, so Oxigraph is given an IRI in its place.
"""

from __future__ import annotations

import re
import secrets
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count, groupby, islice, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.sparql.fingerprint import IRI, QUOTED
from edge.engine.updates.update_plan import Data, UpdatePlan
from edge.protocol.results import Term
from edge.protocol.syntax import MAX_DEPTH

_COMMENT: Final = r"\#[^\r\n]*+"
_GAP: Final = rf"(?>(?:[\x20\t\r\n]++|{_COMMENT})*)"
_SPACE: Final = rf"(?=[\x20\t\r\n\#]){_GAP}"

_START: Final = re.compile(
    rf"{_GAP}((?>(?:(?:PREFIX{_SPACE}[^\s:<\#]*+:|BASE){_GAP}{IRI}{_GAP})*))(INSERT|DELETE)({_SPACE}DATA{_GAP}\{{)",
    re.ASCII | re.IGNORECASE,
)
"""How an operation begins: declarations, a verb, and what is between that and its data."""

# What has no place here: variables, triple terms, reifiers, annotations, languages with a direction.
_OTHER: Final = (
    rf"""{IRI}|{QUOTED['"']}|{QUOTED["'"]}|\^\^|{_COMMENT}"""
    r"""|@[A-Za-z]++(?>(?:-[A-Za-z0-9]++)*)(?!-)|\\[_~.\-!$&'()*+,;=/?\#@%]"""
)
"""What stands in data beside names, numbers, punctuation and space."""

_STRETCH: Final = re.compile(
    rf"""(?>(?:[^"'<>\#{{}}()\[\]\\@~|?$^&=!*/`]{{1,200}}+|{_OTHER}){{0,1000}})([\[({{}})\]]?+)""", re.DOTALL
)
"""Some data, and the bracket after it if there is one. A match is short, since it keeps Python's lock.

It can begin and end within a name or a number, and within nothing else.
"""

_REST: Final = re.compile(
    rf"""(?>(?:[^"'<>\#{{}}()\[\]\\@~|?$^&=!*/`.]++|\.(?![\x20\t\r\n])|{_OTHER}){{0,1000}})\.(?=[\x20\t\r\n])""",
    re.DOTALL,
)
"""The rest of a triple, or of those that share a subject, without brackets: a dot before space ends nothing else."""

_SEPARATOR: Final = re.compile(rf"{_GAP}(;?+){_GAP}")

_EMPTY: Final = re.compile(_GAP)

_WORD: Final = re.compile(rf"""[^"'<>\#{{}}()\[\]\\@~|?$^&=!*/`\x20\t\r\n]++|[\x20\t\r\n]++|{_OTHER}""", re.DOTALL)
"""A word of data, some space, or something else that stands in data, likewise."""

_LABEL: Final = re.compile(
    rf"""{IRI}|{QUOTED['"']}|{QUOTED["'"]}|{_COMMENT}|\\.|(?P<unclear>\^\^{_GAP}_:)"""
    r"""|(?<![^\x20\t\r\n{\[(,;}\])])_:(?P<label>[A-Za-z0-9_\-]++)(?=[\x20\t\r\n,;)\]}]|\.?\Z|\.[\x20\t\r\n])"""
    r"|(?P<other>_:)",
    re.DOTALL,
)
"""The label of a blank node, as most are written; what may be one, or be part of a name; and what has none in it."""

_MOST_RUNS: Final = 16
"""Runs of a request at the most: for each all declarations are parsed again."""

_BATCH: Final = 512
"""Terms that are numbered in one go, which keeps Python's lock."""

_STRETCHES: Final = 16
"""Stretches in which the beginning of a graph is looked for."""

_PIECE: Final = 256 * 1024
"""Characters of data that are parsed in one go. To free a store keeps Python's lock: 2 ms for so many."""


class _Unsure(Exception):
    """This is something else than data, or wrong, or written in an unusual way."""


class _Unclear(Exception):
    """A label of a blank node is written in an unusual way."""


class _Operation(NamedTuple):
    inserts: bool
    declared: str
    """All declarations before it."""
    opening: str
    """What follows the verb, up to the bracket."""
    pieces: Iterable[str]
    """The data. Each piece is legal for itself."""


def data_plan(text: str, rules: QueryRules) -> UpdatePlan | None:
    """The plan of a request that consists of data. None: it must be compiled in the usual way."""
    try:
        data = [_data(*kind, run, rules) for kind, run in _runs(text)]
    except (_Unsure, SyntaxError, ValueError):
        return None
    # DELETE DATA takes no blank nodes, and operations share none: what is parsed in parts is not known to keep to that.
    with_blanks = [part for part in data if any(type(term) is ox.BlankNode for term in part.terms)]
    if len(with_blanks) > 1 or not all(part.inserts for part in with_blanks):
        return None
    return UpdatePlan(tuple(data))


def _runs(text: str) -> list[tuple[tuple[bool, str], list[_Operation]]]:
    """Operations that can be one, with the verb and the declarations that they have in common."""
    runs: list[tuple[tuple[bool, str], list[_Operation]]] = []
    for kind, run in groupby(_operations(text), itemgetter(0, 1)):
        if len(runs) == _MOST_RUNS:
            raise _Unsure
        runs.append((kind, list(run)))
    if not runs:
        raise _Unsure
    return runs


def _operations(text: str) -> Iterator[_Operation]:
    declared = ""
    position = 0
    while position < len(text):
        start = _START.match(text, position)
        if start is None:
            raise _Unsure
        declared += start[1]
        cuts = [(start.end(), ""), *_cuts(text, start.end())]
        pieces = [graph + text[begin:end] + ("}" if cut else "") for (begin, graph), (end, cut) in pairwise(cuts)]
        position = cuts[-1][0] + 1
        yield _Operation(start[2].upper() == "INSERT", declared, start[3], pieces)
        separator = _SEPARATOR.match(text, position)
        assert separator is not None  # noqa: S101  it may be empty
        position = separator.end()
        if not separator[1] and position < len(text):
            raise _Unsure


def _cuts(text: str, position: int) -> Iterator[tuple[int, str]]:
    """Where pieces of the data that begins here end; the last one before the bracket that closes it.

    With each position: how the graph begins that is cut there; empty: none is.
    """
    depth, begin = 1, position
    opened, start = "{", position
    graph: tuple[int, int] | str = ""
    """How the graph begins that goes on; or where this can be found."""
    before: deque[int] = deque(maxlen=_STRETCHES)
    """Where the last stretches begin."""
    while depth:
        stretch = _STRETCH.match(text, position)
        if stretch is None or stretch.end() == position:
            raise _Unsure
        before.append(position)
        position = stretch.end()
        if stretch[1] == "}" and depth > 1 and opened == "{" and _EMPTY.fullmatch(text, start, stretch.start(1)):
            raise _Unsure  # of a graph without triples the store below knows nothing
        if stretch[1]:
            if depth == 1 and stretch[1] == "{":
                graph = before[0], position
            depth += 1 if stretch[1] in "[({" else -1
            opened, start = stretch[1], stretch.end()
            if depth == 1:
                graph = ""
        if depth > MAX_DEPTH:
            raise _Unsure
        if depth <= 2 and position - begin >= _PIECE:
            if not isinstance(graph, str):
                graph = _graph(text, *graph)
            if depth == (2 if graph else 1) and (rest := _REST.match(text, position)):
                begin = position = rest.end()
                yield position, graph
    yield position - 1, ""


def _graph(text: str, begin: int, end: int) -> str:
    """How a graph begins whose bracket is the last of these characters; empty: it is written in an unusual way."""
    words = [word[0] for word in _WORD.finditer(text, begin, end - 1) if not _EMPTY.fullmatch(word[0])]
    if len(words) < 2 or words[-2].upper() != "GRAPH":
        return ""
    name = words[-1]
    return f"GRAPH {name} {{" if name[0] == "<" or (":" in name and name[0] != "_") else ""


def _data(inserts: bool, declared: str, operations: Sequence[_Operation], rules: QueryRules) -> Data:
    """Operations of one kind as one. Raises what Oxigraph says against them, and `_Unsure`."""
    labels = any("_:" in piece for operation in operations for piece in operation.pieces)
    size = sum(len(piece) for operation in operations for piece in operation.pieces)
    if labels and size > _PIECE:
        with suppress(_Unclear):
            return _labelled(inserts, declared, operations, rules)
    if labels:
        return _parsed(inserts, [_whole(declared, operations)], rules)
    return _parsed(inserts, _texts(declared, operations), rules)


def _labelled(inserts: bool, declared: str, operations: Sequence[_Operation], rules: QueryRules) -> Data:
    """Operations of one kind as one, with an IRI in place of each label. Raises `_Unclear` as well."""
    start = f"urn:{secrets.token_hex(8)}:"
    """Of these IRIs; no text has another one that begins so."""
    owners: dict[str, int] = {}
    """By label: the number of its operation."""

    def without(number: int, piece: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            label = match["label"]
            if label is None:
                if match.lastgroup is not None:
                    raise _Unclear
                return match[0]
            if owners.setdefault(label, number) != number:
                raise _Unsure
            return f"<{start}{label}>"

        return _LABEL.sub(replaced, piece)

    changed = (
        operation._replace(pieces=map(partial(without, number), operation.pieces))
        for number, operation in enumerate(operations)
    )
    data = _parsed(inserts, _texts(declared, changed), rules)
    own = {
        number for number, term in enumerate(data.terms) if type(term) is ox.NamedNode and term.value.startswith(start)
    }
    if not own.isdisjoint(data.places[1::4]) or not own.isdisjoint(data.places[3::4]):
        raise _Unsure  # there no blank node can stand
    terms = [ox.BlankNode() if number in own else term for number, term in enumerate(data.terms)]
    return Data(inserts, tuple(terms), data.places)


def _parsed(inserts: bool, texts: Iterable[str], rules: QueryRules) -> Data:
    """What requests insert, as one operation."""
    seen: defaultdict[Term | ox.DefaultGraph, int] = defaultdict(count().__next__)
    quads = array("I")
    for text in texts:
        store = ox.Store()
        store.update(text, base_iri=rules.base_iri)
        places = map(seen.__getitem__, chain.from_iterable(store))
        while batch := list(islice(places, _BATCH)):
            quads.extend(batch)
    return Data(inserts, tuple(seen), quads)


def _whole(declared: str, operations: Iterable[_Operation]) -> str:
    """The operations as one request that inserts."""
    return declared + ";".join([_insert(opening, "".join(pieces)) for _, _, opening, pieces in operations])


def _texts(declared: str, operations: Iterable[_Operation]) -> Iterator[str]:
    """The operations as requests that insert, each of about a piece."""
    # All declarations are parsed again with each request.
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
