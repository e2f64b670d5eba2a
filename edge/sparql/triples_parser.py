"""Parser of triples and property paths (SPARQL 1.1 Query Language, 19.8, rules 75 to 111; 18.2.2.3 and 18.2.2.4)."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Final

from edge.sparql.algebra import (
    Alternative,
    Blank,
    Fresh,
    Inverse,
    Negated,
    Node,
    Path,
    PathExpression,
    PathLink,
    Repeat,
    Sequence,
    Slot,
    Triple,
)
from edge.sparql.cursor import NO_PARAMETERS, Cursor, Parameters
from edge.sparql.terms_text import Declarations
from edge.sparql.tokens import Token

_NODES: Final = frozenset({"var", "iri", "name", "string", "number", "blank"})
_NODE_TEXTS: Final = frozenset({"[", "(", "+", "-", "true", "false"})
_VERBS: Final = frozenset({"var", "iri", "name"})
_PATH_TEXTS: Final = frozenset({"a", "^", "!", "("})
_PATH_OPERATORS: Final = frozenset({"/", "|", "*", "+", "?"})


class TriplesParser(Cursor):
    """Reads triples, with all their abbreviations."""

    label_scope = "group"
    """What has its own labels of blank nodes, in the error for a label that occurs in two of them."""

    def __init__(
        self,
        tokens: Tokens[Token],
        names: Declarations,
        parameters: Parameters = NO_PARAMETERS,
        *,
        graph: Slot | None = None,
        blank: type[Blank] | type[Fresh] = Blank,
        paths: bool = True,
    ) -> None:
        """`blank`: node class of blank nodes. `paths`: whether a predicate may be a path."""
        super().__init__(tokens, names, parameters)
        self.graph = graph
        """Graph of the triples that are read."""
        self.triples: list[Node] = []
        """Collects the Triples and Paths that are read."""
        self._blank = blank
        self._paths = paths
        self._vocabulary = names.vocabulary
        self._labels: set[str] = set()
        """Labels of blank nodes of the group that is read."""
        self._closed_labels: set[str] = set()
        """Labels of groups that have ended: no other group can use them (SPARQL 1.1 Query Language, 5.1.1)."""

    def close_labels(self) -> None:
        """Begin or end a group, in which the labels of blank nodes are its own."""
        if self._labels:
            self._closed_labels |= self._labels
            self._labels = set()

    def at_triples(self) -> bool:
        """Return whether triples begin at the cursor."""
        return self.token.kind in _NODES or self.token.text in _NODE_TEXTS

    def triples_block(self) -> None:
        """Read triples, and the dots between and after them."""
        while self.at_triples():
            subject, described = self.subject()
            if not described or self._at_verb():
                self._property_list(subject)
            if not self.accept("."):
                return

    def subject(self) -> tuple[Slot, bool]:
        """Read the subject of triples. Returns it, and whether it has triples already, so that none need to follow."""
        # `[ :p 1 ] .` and `(1 2) .` may stand alone (rule 75, TriplesSameSubject), `[] .` and `() .` may not.
        described = self.token.text in ("[", "(") and self.following().text not in ("]", ")")
        return self.node(), described

    def node(self) -> Slot:
        """Read a subject or object, with the triples of a collection or of a blank node in brackets."""
        token = self.token
        kind = token.kind
        if kind == "var":
            return self.binding()
        if kind == "blank":
            label = token.text[2:]
            if label in self._closed_labels:
                problem = f"The blank node label {token.text} is already used in another {self.label_scope}"
                self.refuse(problem, "Use another label, or a variable for a node that both have in common.")
            self._labels.add(label)
            self.advance()
            return self._blank(label)
        if self.accept("["):
            node = self._blank(self.next_name())
            if not self.accept("]"):
                self._property_list(node)
                self.expect("]")
            return node
        if self.accept("("):
            return self._collection()
        return self.term()

    def _collection(self) -> Slot:
        if self.accept(")"):
            return self._vocabulary.nil
        first = cell = self._blank(self.next_name())
        self._emit(cell, self._vocabulary.first, self.node())
        while not self.accept(")"):
            following = self._blank(self.next_name())
            self._emit(cell, self._vocabulary.rest, following)
            cell = following
            self._emit(cell, self._vocabulary.first, self.node())
        self._emit(cell, self._vocabulary.rest, self._vocabulary.nil)
        return first

    def _property_list(self, subject: Slot) -> None:
        while True:
            verb = self._verb()
            self._emit(subject, verb, self.node())
            while self.accept(","):
                self._emit(subject, verb, self.node())
            if not self.accept(";"):
                return
            # Several semicolons, and one at the end, are allowed (rule 77, PropertyListNotEmpty).
            while self.accept(";"):
                pass
            if not self._at_verb():
                return

    def _at_verb(self) -> bool:
        return self.token.kind in _VERBS or self.token.text in _PATH_TEXTS

    def _verb(self) -> Slot | PathExpression:
        if self.token.kind == "var":
            return self.binding()
        # Most predicates are a single IRI, which needs no path.
        if not self._paths or self.following().text not in _PATH_OPERATORS:
            if self.token.kind in _VERBS:
                return self.name()
            if self.token.text == "a":
                self.advance()
                return self._vocabulary.type
        if not self._paths:
            self.fail("a predicate")
        path = self._path()
        return path.predicate if isinstance(path, PathLink) else path

    def _emit(self, subject: Slot, verb: Slot | PathExpression, object_: Slot) -> None:
        if isinstance(verb, PathLink):
            self.triples.append(Triple(subject, verb.predicate, object_, self.graph))
        elif isinstance(verb, Inverse):
            self._emit(object_, verb.path, subject)
        elif isinstance(verb, Sequence):
            # A sequence path is a chain of triples over blank nodes (18.2.2.4).
            for step in verb.steps[:-1]:
                middle = self._blank(self.next_name())
                self._emit(subject, step, middle)
                subject = middle
            self._emit(subject, verb.steps[-1], object_)
        elif isinstance(verb, Alternative | Repeat | Negated):
            self.triples.append(Path(subject, verb, object_, self.graph))
        else:
            self.triples.append(Triple(subject, verb, object_, self.graph))

    # Paths

    def _path(self) -> PathExpression:
        choices = [self._sequence()]
        while self.accept("|"):
            choices.append(self._sequence())
        return choices[0] if len(choices) == 1 else Alternative(tuple(choices))

    def _sequence(self) -> PathExpression:
        steps = [self._step()]
        while self.accept("/"):
            steps.append(self._step())
        return steps[0] if len(steps) == 1 else Sequence(tuple(steps))

    def _step(self) -> PathExpression:
        if self.accept("^"):
            # `^` binds weaker than `*`, `+` and `?` (rule 92, PathEltOrInverse).
            return Inverse(self._repeated())
        return self._repeated()

    def _repeated(self) -> PathExpression:
        path = self._primary_path()
        if self.accept("*"):
            return Repeat(path, 0, once=False)
        if self.accept("?"):
            return Repeat(path, 0, once=True)
        if self.token.text == "+":
            if self.at_signed_number():
                self.sign_after_path()
                return path
            self.advance()
            return Repeat(path, 1, once=False)
        return path

    def sign_after_path(self) -> None:
        """Accept `:p +1`, in which the sign belongs to the number. May raise `SparqlError` instead."""

    def _primary_path(self) -> PathExpression:
        if self.accept("("):
            path = self._path()
            self.expect(")")
            return path
        if self.accept("!"):
            return self._negated()
        return PathLink(self._predicate())

    def _negated(self) -> Negated:
        forward: list[Slot] = []
        backward: list[Slot] = []
        if not self.accept("("):
            (backward if self.accept("^") else forward).append(self._predicate())
        elif not self.accept(")"):
            while True:
                (backward if self.accept("^") else forward).append(self._predicate())
                if not self.accept("|"):
                    break
            self.expect(")")
        return Negated(tuple(forward), tuple(backward))

    def _predicate(self) -> Slot:
        if self.token.text == "a":
            self.advance()
            return self._vocabulary.type
        if self.token.kind not in ("iri", "name"):
            self.fail("a predicate")
        return self.name()
