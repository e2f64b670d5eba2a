"""A cursor over the tokens of a request, with methods that read terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from edge.sparql.algebra import Parameter, Slot, Variable
from edge.sparql.errors import SparqlError
from edge.sparql.terms import AnyTerm
from edge.sparql.terms_text import Declarations, string_value
from edge.sparql.tokens import Token

Parameters = Mapping[int, tuple[int, int]]
"""Constants that a template leaves open: start in the text -> end, index."""

References: TypeAlias = list[tuple[Variable, Token]]
"""Variables, with the tokens that name them."""

NO_PARAMETERS: Final[Parameters] = {}

_BOOLEANS: Final = frozenset({"true", "false"})
_NO_TOKEN: Final = Token("end", "", -1, -1)
_IRIS: Final = frozenset({"iri", "name"})


class Cursor:
    """Reads terms, token by token. Every method raises `SparqlError` if the expected token is missing."""

    def __init__(self, tokens: Sequence[Token], names: Declarations, parameters: Parameters) -> None:
        # The sentinel makes look-ahead safe at the end.
        self._tokens = [*tokens, _NO_TOKEN]
        self._index = 0
        self.token = self._tokens[0]
        self.used: set[int] = set()
        """Indexes of the constants that became Parameters. All others are fixed parts of the template."""
        self.visible: dict[Variable, None] = {}
        """Variables in scope in the group that is read (18.2.1), in order of first appearance."""
        self.references: References = []
        """Variables of the expressions that are read, outside of aggregates and EXISTS."""
        self._names = names
        self._parameters = parameters
        self._numbers = 0

    # Tokens

    def advance(self) -> Token:
        """Return the token at the cursor and move on."""
        token = self.token
        self._index += 1
        self.token = self._tokens[self._index]
        return token

    def following(self) -> Token:
        """Return the token after the one at the cursor."""
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def end(self) -> None:
        """Check that all tokens are read."""
        if self.token is not _NO_TOKEN:
            self.fail("the end")

    def accept(self, text: str) -> bool:
        """Move on if the cursor is at this punctuation. Returns whether it was."""
        if self.token.text == text and self.token.kind == "punct":
            self.advance()
            return True
        return False

    def accept_word(self, word: str) -> bool:
        """Move on if the cursor is at this keyword (upper case). Returns whether it was."""
        if self.token.kind == "word" and self.token.text.upper() == word:
            self.advance()
            return True
        return False

    def expect(self, text: str) -> None:
        """Move over punctuation."""
        if not self.accept(text):
            self.fail(text)

    def expect_word(self, word: str) -> None:
        """Move over a keyword."""
        if not self.accept_word(word):
            self.fail(word)

    def fail(self, expected: str) -> NoReturn:
        """Raise the error for the token at the cursor."""
        if self.token.text.lower() in _BOOLEANS:
            self.refuse(f"{self.token.text} is not a keyword", f"Write {self.token.text.lower()} in lower case.")
        if self.token.text == "A":
            self.refuse("A is not a keyword", "Write a in lower case, or rdf:type.")
        self.refuse(f"{expected} expected instead of {f'{self.token.text!r}' if self.token.text else 'the end'}")

    def refuse(self, problem: str, remedy: str = "", token: Token | None = None) -> NoReturn:
        """Raise the error for a token: the one at the cursor if not given."""
        token = token or self.token
        # The sentinel has no place. `all_of` replaces None by the place of the last token.
        raise SparqlError(problem, None if token is _NO_TOKEN else token.start, remedy)

    def tokens_read(self) -> Sequence[Token]:
        """Return the tokens before the cursor."""
        return self._tokens[: self._index]

    # Names

    def next_name(self) -> str:
        """Return a new name that no text can contain."""
        self._numbers += 1
        return f".{self._numbers - 1}"

    # Terms

    def variable(self) -> Variable:
        """Read a variable."""
        if self.token.kind != "var":
            self.fail("a variable")
        return Variable(self.advance().text[1:])

    def binding(self) -> Variable:
        """Read a variable that is in scope from here on (18.2.1)."""
        variable = self.variable()
        self.visible[variable] = None
        return variable

    def new_variable(self, problem: str = "already has a value, so AS cannot assign it") -> Variable:
        """Read a variable after AS, which must not be in scope before (18.2.1, 19.8 note 13)."""
        token = self.token
        variable = self.variable()
        if variable in self.visible:
            self.refuse(f"{token.text} {problem}", "Use a new variable after AS.", token)
        self.visible[variable] = None
        return variable

    def iri(self) -> AnyTerm:
        """Read an IRI that is a fixed part of the template."""
        if self.token.kind not in _IRIS:
            self.fail("an IRI")
        return self._names.iri(self.advance().text)

    def name(self) -> Slot:
        """Read a variable or an IRI."""
        if self.token.kind == "var":
            return self.binding()
        start = self.token.start
        return self._constant(start, self.iri())

    def string(self) -> str:
        """Read a string that is a fixed part of the template, and return its value."""
        if self.token.kind != "string":
            self.fail("a string")
        return string_value(self.advance().text)

    def term(self) -> Slot:
        """Read an IRI or a literal."""
        token = self.token
        kind = token.kind
        if kind in _IRIS:
            return self._constant(token.start, self._names.iri(self.advance().text))
        if kind == "string":
            return self._constant(token.start, self._literal())
        if kind == "number":
            return self._constant(token.start, self._names.number(self.advance().text))
        if kind == "word" and token.text in _BOOLEANS:
            return self._names.boolean(self.advance().text)
        if self.at_signed_number():
            self.advance()
            digits = self.advance()
            literal = self._names.number(token.text + digits.text)
            return self._constant(digits.start, literal, negative=True) if token.text == "-" else literal
        return self.fail("a term")

    def at_signed_number(self) -> bool:
        """Return whether a sign and a number, without space between them, are at the cursor."""
        if self.token.text not in ("+", "-"):
            return False
        following = self.following()
        # INTEGER_POSITIVE and its relatives are single terminals (19.8), which contain no space.
        return following.kind == "number" and following.start == self.token.end

    def _literal(self) -> AnyTerm:
        string = self.advance().text
        if self.token.kind == "lang":
            return self._names.literal(string, self.advance().text)
        if self.accept("^^"):
            if self.token.kind not in _IRIS:
                self.fail("a datatype")
            return self._names.literal(string, "^^" + self.advance().text)
        return self._names.literal(string, "")

    def _constant(self, start: int, term: AnyTerm, *, negative: bool = False) -> Slot:
        """Return the constant that was just read from `start`, as a Parameter if the template leaves it open."""
        found = self._parameters.get(start)
        # The fingerprint may have split the text at another place than the tokenizer. Such a constant stays fixed.
        if found is None or found[0] != self._tokens[self._index - 1].end:
            return term
        self.used.add(found[1])
        return Parameter(found[1], negative, term)
