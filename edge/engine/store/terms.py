"""The dictionary: RDF terms interned as small integers, and the literal normalization of the engine.

Literals have the value form that Oxigraph gives them (`"01"^^xsd:integer` becomes `"1"^^xsd:integer`, `@EN` becomes
`@en`), whatever their source. So index, mirror and deltas always agree on which terms are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import pyoxigraph as ox

from edge.engine.store.lru_cache import bounded_cache
from edge.protocol.results import Term

XSD: Final = "http://www.w3.org/2001/XMLSchema#"

IRI: Final = 0
BLANK: Final = 1
LITERAL: Final = 2
TRIPLE: Final = 3

SHORT: Final = 256
"""Characters up to which reading a term costs no steps."""

LONGEST_TERM: Final = 15 * 1024 * 1024
"""Bytes of a term as N-Quads. Oxigraph's parser rejects tokens of 16 MiB, so the journal could not be read back."""

_KINDS: Final[dict[type, int]] = {ox.NamedNode: IRI, ox.BlankNode: BLANK, ox.Literal: LITERAL, ox.Triple: TRIPLE}

# Datatypes whose lexical forms Oxigraph does not change, and patterns of forms that are already in value form. Any
# other literal takes a round trip through Oxigraph, about 20 us.
_LANGUAGE_STRING: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
_DATE_TIME: Final = ox.NamedNode(XSD + "dateTime")
_STAMP: Final = XSD + "dateTimeStamp"
_PLAIN: Final = frozenset({XSD + "string", XSD + "anyURI", _LANGUAGE_STRING})
_VALUE_FORMS: Final = {
    XSD + "integer": re.compile(r"0|-?[1-9]\d{0,17}"),
    XSD + "decimal": re.compile(r"0|-?[1-9]\d{0,14}|-?(?:0|[1-9]\d{0,8})\.\d{0,8}[1-9]"),
    # Up to 15 digits, a decimal notation is the shortest one of its double.
    XSD + "double": re.compile(r"0|-?[1-9]\d{0,14}|-?(?:0|[1-9]\d{0,5})\.\d{0,8}[1-9]"),
    XSD + "boolean": re.compile(r"true|false"),
    XSD + "dateTime": re.compile(
        r"[12]\d{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
        r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{0,8}[1-9])?Z"
    ),
}


def size(term: Term) -> int:
    """Return the characters of a term. A datatype or language counts only if it is longer than `SHORT`."""
    kind = type(term)
    if kind is ox.Literal:
        literal: ox.Literal = term  # type: ignore[assignment]
        datatype = literal.datatype.value
        suffix = len(literal.language or "") if datatype == _LANGUAGE_STRING else len(datatype)
        return len(literal.value) + (suffix if suffix > SHORT else 0)
    return len(str(term)) if kind is ox.Triple else len(term.value)  # type: ignore[union-attr]


@bounded_cache(4096, size)
def _by_oxigraph(literal: ox.Literal) -> ox.Literal:
    name = ox.NamedNode("urn:x-edge:x")
    store = ox.Store()
    store.add(ox.Quad(name, name, literal))
    (quad,) = store
    assert isinstance(quad.object, ox.Literal)  # noqa: S101
    return quad.object


def canonical(term: Term) -> Term:
    """Return the term in the engine's form: literals in value form, other terms unchanged."""
    kind = type(term)
    if kind is ox.Literal:
        literal: ox.Literal = term  # type: ignore[assignment]
        datatype = literal.datatype.value
        if datatype in _PLAIN:
            language = literal.language
            return literal if language is None or language.islower() else _by_oxigraph(literal)
        form = _VALUE_FORMS.get(datatype)
        if form is not None and form.fullmatch(literal.value):
            return literal
        # Oxigraph stores a dateTimeStamp, the time of every reading, as a dateTime.
        if datatype == _STAMP and _VALUE_FORMS[_DATE_TIME.value].fullmatch(value := literal.value):
            return ox.Literal(value, datatype=_DATE_TIME)
        return _by_oxigraph(literal)
    if kind is ox.Triple:
        triple: ox.Triple = term  # type: ignore[assignment]
        return ox.Triple(triple.subject, triple.predicate, canonical(triple.object))
    return term


def problem(term: Term, length: int = 0) -> str | None:
    """Return why the live graph cannot hold a term, and the remedy, or None if it can. `length`: its size, if known.

    The graph holds terms of RDF 1.1 that the journal can read back after it has written them. SPARQL makes others from
    them: `TRIPLE()` a triple term, `STRLANGDIR()` a direction, `BNODE("a:b")` a label that N-Quads does not have.
    IRIs need no check except for their length, since every constructor and parser that makes them validates them.
    """
    kind = type(term)
    if kind is ox.Triple:
        return (
            "is a triple term of RDF 1.2; describe the statement by a node of its own, with rdf:subject, "
            "rdf:predicate and rdf:object"
        )
    if kind is ox.Literal and term.direction is not None:  # type: ignore[union-attr]
        return "has a base direction of RDF 1.2; leave it out, as STRLANG(STR(?x), LANG(?x)) does"
    if kind is ox.BlankNode and not _has_plain_label(term):  # type: ignore[arg-type]
        return "has a label that N-Quads does not allow; use letters and digits, or BNODE() without a label"
    # A character takes at most 6 bytes, as \u0000 does. The parser also has room for a short datatype.
    if (length or size(term)) >= LONGEST_TERM // 6 and len(str(term).encode()) > LONGEST_TERM:
        return (
            f"is longer than {LONGEST_TERM // 1024 // 1024} MiB as N-Quads; split it, or store it elsewhere and insert "
            "its IRI"
        )
    return None


POSITIONS: Final = ("subject", "predicate", "object", "graph name")


def describe_problem(position: str, term: Term) -> str:
    """Return the error message for a quad that cannot be inserted because of its term at `position`."""
    text = f"<<( {term} )>>" if isinstance(term, ox.Triple) else str(term)
    excerpt = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
    return f"The graph cannot hold the {position} of a quad that is inserted: {excerpt} {problem(term)}"


_EXCERPT: Final = 120
"""Characters of a term in an error message."""


def _has_plain_label(node: ox.BlankNode) -> bool:
    label = node.value
    if label.isascii() and label.isalnum():
        return True
    try:
        quads: list[ox.Quad] = list(ox.parse(f"{node} <urn:x> <urn:x> .", ox.RdfFormat.N_QUADS))
    except SyntaxError:
        return False
    return [quad.subject for quad in quads] == [node]


_FIRST: Final = 80_000
"""Terms in the first map. Python enlarges a full map at once, while all clients wait: 7 ms at 87,381 terms, 77 ms at
699,050.
"""
_FURTHER: Final = 16
"""Number of maps for the other terms. They are only asked for terms that the first map does not have."""


class Dictionary:
    """Terms to ints and back. An id is valid while something refers to it, and at least until the next `sweep`.

    `retain` and `release` count the references from quads, results and patterns. `sweep` forgets unreferenced terms.
    The engine calls it only between requests, so an id keeps its meaning during a request.
    """

    def __init__(self) -> None:
        self._first: dict[Term, int] = {}
        # With an entry, which equals no term, the maps belong to the objects of the start, which young collections do
        # not visit. Empty ones would become young all together when the first map is full, and two collections would
        # visit 85,000 terms at once.
        self._further: tuple[dict[object, int], ...] = tuple({Dictionary: 0} for _ in range(_FURTHER))
        self._spread = False
        """Whether a further map has been used."""
        self.terms: list[Term] = []
        """id -> term. Inner loops read it directly; only this class may change it."""
        self.kinds = bytearray()
        """id -> IRI, BLANK, LITERAL or TRIPLE."""
        self.long: dict[int, int] = {}
        """id -> characters, for terms longer than `SHORT`. Only this class may change it."""
        self.longest = SHORT
        """Upper bound of the characters of any term."""
        self.unstorable: set[int] = set()
        """Ids of terms that the live graph cannot hold (see `problem`). Only this class may change it."""
        self._references: list[int] = []
        self._idle: set[int] = set()
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.terms) - len(self._free)

    def find(self, term: Term) -> int | None:
        """Return the id of a term in value form, or None."""
        found = self._first.get(term)
        return self._further[hash(term) % _FURTHER].get(term) if found is None and self._spread else found

    def intern(self, term: Term) -> int:
        """Return the id of a term; assign one if needed. The term may have any form: it is normalized."""
        found = self.find(term)
        if found is not None:
            return found
        value = canonical(term)
        return self.intern_value(value) if value is not term else self._assign_id(term)

    def intern_value(self, term: Term) -> int:
        """Return the id of a term in value form; assign one if needed."""
        found = self.find(term)
        return self._assign_id(term) if found is None else found

    def intern_values(self, terms: Sequence[Term]) -> list[int]:
        """Return the ids of terms in value form."""
        found = list(map(self._first.get, terms))
        if None in found:
            # Usually all terms are known except for one or two values, and hashing a term is the largest part of this.
            return [self.intern_value(term) if id_ is None else id_ for term, id_ in zip(terms, found, strict=True)]
        return found  # type: ignore[return-value]

    def _assign_id(self, term: Term) -> int:
        kind = _KINDS[type(term)]
        if self._free:
            new = self._free.pop()
            self.terms[new] = term
            self.kinds[new] = kind
            self._references[new] = 0
        else:
            new = len(self.terms)
            self.terms.append(term)
            self.kinds.append(kind)
            self._references.append(0)
        if len(self._first) < _FIRST:
            self._first[term] = new
        else:
            self._further[hash(term) % _FURTHER][term] = new
            self._spread = True
        # The next sweep removes it unless something refers to it by then.
        self._idle.add(new)
        length = size(term) if kind >= LITERAL else len(term.value)  # type: ignore[union-attr]
        plain = kind == IRI or (kind == LITERAL and term.direction is None)  # type: ignore[union-attr]
        if length > SHORT:
            self.long[new] = length
            self.longest = max(self.longest, length)
            plain = False
        if not plain and problem(term, length) is not None:
            self.unstorable.add(new)
        return new

    def retain(self, term_id: int) -> None:
        """Count one more reference to a term."""
        self._references[term_id] += 1

    def release(self, term_id: int) -> None:
        """Count one reference less. `sweep` removes the term when none is left."""
        left = self._references[term_id] = self._references[term_id] - 1
        if not left:
            self._idle.add(term_id)

    def retain_triple(self, s: int, p: int, o: int) -> None:
        """Count one more reference to each term. One call instead of three, because it runs for every triple."""
        references = self._references
        references[s] += 1
        references[p] += 1
        references[o] += 1

    def retain_triples(self, quads: Iterable[tuple[int, int, int, int]]) -> None:
        """Count one more reference to each term of the triples of these quads."""
        references = self._references
        for s, p, o, _ in quads:
            references[s] += 1
            references[p] += 1
            references[o] += 1

    def release_triple(self, s: int, p: int, o: int) -> None:
        """Count one reference less to each term."""
        references = self._references
        for term_id in (s, p, o):
            left = references[term_id] = references[term_id] - 1
            if not left:
                self._idle.add(term_id)

    @property
    def plain(self) -> bool:
        """Whether there are neither long terms nor terms that the live graph cannot hold."""
        return not (self.long or self.unstorable)

    @property
    def idle(self) -> int:
        """Number of terms that are new, or have lost their last reference, since the last sweep."""
        return len(self._idle)

    def sweep(self, most: int | None = None) -> None:
        """Forget unreferenced terms. `most`: number of terms to check in this call; the next call continues."""
        idle = self._idle
        if not idle:
            return
        some = idle if most is None or len(idle) <= most else [idle.pop() for _ in range(most)]
        longest_gone = 0
        for term_id in some:
            if self._references[term_id] == 0:
                term = self.terms[term_id]
                if self._first.pop(term, None) is None:
                    del self._further[hash(term) % _FURTHER][term]
                self.terms[term_id] = _FORGOTTEN
                self._free.append(term_id)
                if self.long:
                    longest_gone = max(longest_gone, self.long.pop(term_id, 0))
                if self.unstorable:
                    self.unstorable.discard(term_id)
        if some is idle:
            idle.clear()
        if longest_gone == self.longest:
            # Once for all: many terms often have the same length, and this reads the lengths of all that are left.
            self.longest = max(self.long.values(), default=SHORT)


_FORGOTTEN: Final = ox.NamedNode("urn:x-edge:forgotten")
