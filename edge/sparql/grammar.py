"""The grammar of SPARQL 1.1, and a recognizer that names the first token that the grammar does not allow.

Oxigraph decides whether a text is valid. It reports the furthest character that its parser has tried, with parts of its
own grammar, SPARQL 1.2 included. The recognizer runs only after Oxigraph has rejected a text, to explain the rejection.

The rules are those of SPARQL 1.1 Query Language, section 19.8, arranged such that one token of look-ahead decides: for
example INSERT and INSERT DATA share a rule. They accept a few more texts than the original, as Oxigraph does: `[] .`,
`() .`, `!!?x`, `- -1`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from edge.sparql.tokens import Token

_RULES: Final = r"""
Query       = Prologue ( Select | Construct | Describe | Ask ) Values?
Update      = Prologue ( Operation ( ';' Update )? )?
Prologue    = ( 'BASE' iri | 'PREFIX' name iri )*

Select      = SelectClause Dataset* Where Modifiers
SubSelect   = SelectClause Where Modifiers Values?
SelectClause= 'SELECT' ( 'DISTINCT' | 'REDUCED' )? ( '*' | ( var | '(' Expression 'AS' var ')' )+ )
Construct   = 'CONSTRUCT' ( '{' TemplateTriples? '}' Dataset* Where | Dataset* 'WHERE' '{' TemplateTriples? '}' )
              Modifiers
Describe    = 'DESCRIBE' ( '*' | VarOrIri+ ) Dataset* Where? Modifiers
Ask         = 'ASK' Dataset* Where Modifiers
Dataset     = 'FROM' 'NAMED'? Iri
Where       = 'WHERE'? Group
Modifiers   = ( 'GROUP' 'BY' GroupKey+ )? ( 'HAVING' Constraint+ )? ( 'ORDER' 'BY' OrderKey+ )? Slice
GroupKey    = Call | '(' Expression ( 'AS' var )? ')' | var
OrderKey    = ( 'ASC' | 'DESC' ) '(' Expression ')' | Constraint | var
Slice       = ( 'LIMIT' number ( 'OFFSET' number )? | 'OFFSET' number ( 'LIMIT' number )? )?
Values      = 'VALUES' ValuesBlock

Operation   = 'LOAD' 'SILENT'? Iri ( 'INTO' 'GRAPH' Iri )?
            | ( 'CLEAR' | 'DROP' ) 'SILENT'? ( 'GRAPH' Iri | 'DEFAULT' | 'NAMED' | 'ALL' )
            | 'CREATE' 'SILENT'? 'GRAPH' Iri
            | ( 'ADD' | 'MOVE' | 'COPY' ) 'SILENT'? OneGraph 'TO' OneGraph
            | 'INSERT' ( 'DATA' Quads | Quads UpdateWhere )
            | 'DELETE' ( 'DATA' Quads | 'WHERE' Quads | Quads ( 'INSERT' Quads )? UpdateWhere )
            | 'WITH' Iri ( 'INSERT' Quads | 'DELETE' Quads ( 'INSERT' Quads )? ) UpdateWhere
OneGraph    = 'DEFAULT' | 'GRAPH'? Iri
UpdateWhere = ( 'USING' 'NAMED'? Iri )* 'WHERE' Group
Quads       = '{' TemplateTriples? ( 'GRAPH' VarOrIri '{' TemplateTriples? '}' '.'? TemplateTriples? )* '}'

Group       = '{' ( SubSelect | Triples? ( GraphPattern '.'? Triples? )* ) '}'
GraphPattern= Group ( 'UNION' Group )* | 'OPTIONAL' Group | 'MINUS' Group | 'GRAPH' VarOrIri Group
            | 'SERVICE' 'SILENT'? VarOrIri Group | 'FILTER' Constraint
            | 'BIND' '(' Expression 'AS' var ')' | 'VALUES' ValuesBlock
ValuesBlock = var '{' ValuesTerm* '}' | '(' var* ')' '{' ( '(' ValuesTerm* ')' )* '}'
ValuesTerm  = Iri | Literal | 'UNDEF'

Path        = PathSequence ( '|' PathSequence )*
PathSequence= PathStep ( '/' PathStep )*
PathStep    = '^'? ( Iri | 'A' | '!' NegatedPath | '(' Path ')' ) ( '?' | '*' | '+' )?
NegatedPath = InverseStep | '(' ( InverseStep ( '|' InverseStep )* )? ')'
InverseStep = '^'? ( Iri | 'A' )

Constraint  = '(' Expression ')' | Call
Call        = BuiltIn | Iri Arguments
Arguments   = '(' ( 'DISTINCT'? Expression ( ',' Expression )* )? ')'
Expression  = Conjunction ( '||' Conjunction )*
Conjunction = Relation ( '&&' Relation )*
Relation    = Sum ( Comparator Sum | 'NOT'? 'IN' '(' ( Expression ( ',' Expression )* )? ')' )?
Comparator  = '=' | '!=' | '<' | '>' | '<=' | '>='
Sum         = Product ( Additive Product )*
Additive    = '+' | '-'
Product     = Unary ( Multiplicative Unary )*
Multiplicative = '*' | '/'
Unary       = ( '!' | Additive )* Primary
Primary     = '(' Expression ')' | BuiltIn | Iri Arguments? | Text | number | 'TRUE' | 'FALSE' | var
BuiltIn     = 'COUNT' '(' 'DISTINCT'? ( '*' | Expression ) ')'
            | 'GROUP_CONCAT' '(' 'DISTINCT'? Expression ( ';' 'SEPARATOR' '=' string )? ')'
            | ( 'SUM' | 'MIN' | 'MAX' | 'AVG' | 'SAMPLE' ) '(' 'DISTINCT'? Expression ')'
            | ( 'RAND' | 'NOW' | 'UUID' | 'STRUUID' ) '(' ')'
            | 'BNODE' '(' Expression? ')' | 'BOUND' '(' var ')'
            | ( 'STR' | 'LANG' | 'DATATYPE' | 'IRI' | 'URI' | 'ABS' | 'CEIL' | 'FLOOR' | 'ROUND' | 'STRLEN' | 'UCASE'
              | 'LCASE' | 'ENCODE_FOR_URI' | 'YEAR' | 'MONTH' | 'DAY' | 'HOURS' | 'MINUTES' | 'SECONDS' | 'TIMEZONE'
              | 'TZ' | 'MD5' | 'SHA1' | 'SHA256' | 'SHA384' | 'SHA512' | 'ISIRI' | 'ISURI' | 'ISBLANK' | 'ISLITERAL'
              | 'ISNUMERIC' ) '(' Expression ')'
            | ( 'LANGMATCHES' | 'CONTAINS' | 'STRSTARTS' | 'STRENDS' | 'STRBEFORE' | 'STRAFTER' | 'STRLANG' | 'STRDT'
              | 'SAMETERM' ) '(' Expression ',' Expression ')'
            | 'IF' '(' Expression ',' Expression ',' Expression ')'
            | ( 'SUBSTR' | 'REGEX' ) '(' Expression ',' Expression ( ',' Expression )? ')'
            | 'REPLACE' '(' Expression ',' Expression ',' Expression ( ',' Expression )? ')'
            | ( 'COALESCE' | 'CONCAT' ) '(' ( Expression ( ',' Expression )* )? ')'
            | 'NOT'? 'EXISTS' Group

VarOrIri    = var | Iri
Iri         = iri | name
Literal     = Text | Additive? number | 'TRUE' | 'FALSE'
Text        = string ( lang | '^^' Iri )?
"""
"""One rule per line: 'A' is a keyword or sign, a lower-case name a token kind (`edge.sparql.tokens`), others are
rules.
"""

_TRIPLES: Final = r"""
Triples     = SameSubject ( '.' Triples? )?
SameSubject = ( var | Iri | Literal | blank ) Properties | ( BlankNode | Collection ) Properties?
Properties  = Verb Objects ( ';' ( Verb Objects )? )*
Verb        = var | Path
Objects     = Object ( ',' Object )*
Object      = var | Iri | Literal | blank | BlankNode | Collection
BlankNode   = '[' Properties? ']'
Collection  = '(' Object* ')'
"""
"""Triples of a pattern, in which the verb can be a path."""

_VERB: Final = "Verb        = var | Path\n"
_TEMPLATE: Final = re.sub(
    r"\b(Triples|SameSubject|Properties|Verb|Objects|Object|BlankNode|Collection)\b",
    r"Template\1",
    _TRIPLES.replace(_VERB, "Verb = VarOrIri | 'A'\n"),
)
"""Triples of a template or of data, which have no paths."""


class Symbol(NamedTuple):
    """A terminal: a keyword (upper case) or a sign by its `text`, or every token of a `kind`."""

    kind: str
    text: str


# Compared by identity, because parts are keys of `Grammar._first`: otherwise each look-up would hash a whole tree.
@dataclass(frozen=True, eq=False)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, eq=False)
class _Choice:
    branches: tuple[_Node, ...]


@dataclass(frozen=True, eq=False)
class _Repeat:
    """Zero or more times; `once`: zero or one time."""

    part: _Node
    once: bool


_Node: TypeAlias = "Symbol | str | _Sequence | _Choice | _Repeat"
"""A part of a rule. A string is the name of another rule."""


class First(NamedTuple):
    """The terminals with which a part of the grammar can begin, and whether it can be empty."""

    symbols: frozenset[Symbol]
    empty: bool


class UnexpectedToken(NamedTuple):
    """The first token that is not allowed: its number, which is the number of tokens if the text ends too early.

    `expected` has all terminals that are allowed there; with `ends` the text may also end there.
    """

    token: int
    expected: frozenset[Symbol]
    ends: bool


class Grammar:
    """An LL(1) grammar: one token decides between the branches of a rule."""

    def __init__(self, rules: str) -> None:
        """`rules`: see `_RULES`."""
        self.rules: Final = dict(_read_rules(rules))
        self._first: dict[object, First] = {}

    def check(self, start: str, tokens: Iterable[Symbol]) -> UnexpectedToken | None:
        """Return the failure at which the tokens leave the rule `start`; None if they follow it to the end."""
        sequence = tuple(tokens)
        index = 0
        expected: set[Symbol] = set()
        # A stack of its own instead of recursion, so that nested texts cannot exceed Python's recursion limit.
        stack: list[_Node] = [start]
        while stack:
            node = stack.pop()
            at = sequence[index] if index < len(sequence) else None
            if isinstance(node, Symbol):
                if node != at:
                    return UnexpectedToken(index, frozenset({*expected, node}), ends=False)
                index += 1
                # Once a token is read, the alternatives before it are obsolete.
                expected.clear()
            elif isinstance(node, str):
                stack.append(self.rules[node])
            elif isinstance(node, _Sequence):
                stack.extend(reversed(node.parts))
            elif isinstance(node, _Choice):
                # LL(1): the next token selects the branch.
                branch = next((branch for branch in node.branches if at in self.first(branch).symbols), None)
                first = self.first(node)
                if branch is not None:
                    stack.append(branch)
                elif first.empty:
                    # An empty choice is allowed, so its terminals stay possible alternatives for the message.
                    expected |= first.symbols
                else:
                    return UnexpectedToken(index, frozenset(expected | first.symbols), ends=False)
            elif at in self.first(node.part).symbols:
                stack.extend((node.part,) if node.once else (node, node.part))
            else:
                expected |= self.first(node.part).symbols
        return None if index == len(sequence) else UnexpectedToken(index, frozenset(expected), ends=True)

    def first(self, node: _Node) -> First:
        """Return the terminals with which a rule, given by its name, or a part of one can begin."""
        found = self._first.get(node)
        if found is None:
            found = self._first[node] = self._begin(node)
        return found

    def terminals(self) -> frozenset[Symbol]:
        """Return all terminals of the rules."""
        found: set[Symbol] = set()
        nodes: list[_Node] = list(self.rules.values())
        while nodes:
            node = nodes.pop()
            if isinstance(node, Symbol):
                found.add(node)
            elif isinstance(node, _Sequence):
                nodes.extend(node.parts)
            elif isinstance(node, _Choice):
                nodes.extend(node.branches)
            elif isinstance(node, _Repeat):
                nodes.append(node.part)
        return frozenset(found)

    def _begin(self, node: _Node) -> First:
        if isinstance(node, Symbol):
            return First(frozenset({node}), empty=False)
        if isinstance(node, str):
            return self.first(self.rules[node])
        if isinstance(node, _Repeat):
            return First(self.first(node.part).symbols, empty=True)
        if isinstance(node, _Choice):
            firsts = [self.first(branch) for branch in node.branches]
            return First(frozenset().union(*(first.symbols for first in firsts)), any(first.empty for first in firsts))
        symbols: set[Symbol] = set()
        for part in node.parts:
            first = self.first(part)
            symbols |= first.symbols
            if not first.empty:
                return First(frozenset(symbols), empty=False)
        return First(frozenset(symbols), empty=True)


@functools.cache
def sparql() -> Grammar:
    """Return the grammar of SPARQL 1.1, built on first use."""
    return Grammar(_RULES + _TRIPLES + _TEMPLATE)


def symbols(tokens: Iterable[Token]) -> Iterator[Symbol]:
    """Return the terminals that tokens stand for."""
    for token in tokens:
        if token.kind == "punct":
            yield Symbol("sign", token.text)
        elif token.kind == "word":
            yield Symbol("word", token.text.upper())
        else:
            yield Symbol(token.kind, "")


# The notation of the rules

_ITEM: Final = re.compile(r"\s*(?:'([^']+)'|([A-Za-z]+)|([()|?*+]))")


def _read_rules(text: str) -> Iterator[tuple[str, _Node]]:
    """Yield the rules by name. A line that does not begin with a name continues the previous rule."""
    for found in re.finditer(r"^(\w+) *=(.*(?:\n[ ]+.*)*)", text, re.MULTILINE):
        items = [(match[1], match[2], match[3]) for match in _ITEM.finditer(found[2])]
        # Items are taken from the end of the list, which needs no shifting.
        items.reverse()
        yield found[1], _read_choice(items)


def _read_choice(items: list[tuple[str, str, str]]) -> _Node:
    branches = [_read_sequence(items)]
    while items and items[-1][2] == "|":
        items.pop()
        branches.append(_read_sequence(items))
    return branches[0] if len(branches) == 1 else _Choice(tuple(branches))


def _read_sequence(items: list[tuple[str, str, str]]) -> _Node:
    parts: list[_Node] = []
    while items and items[-1][2] not in ("|", ")"):
        quoted, name, sign = items.pop()
        if sign == "(":
            part = _read_choice(items)
            items.pop()
        elif quoted:
            part = Symbol("word" if quoted[0].isalpha() else "sign", quoted)
        else:
            part = Symbol(name, "") if name.islower() else name
        mark = items[-1][2] if items else ""
        if mark and mark in "?*+":
            items.pop()
            repeat = _Repeat(part, once=mark == "?")
            part = _Sequence((part, repeat)) if mark == "+" else repeat
        parts.append(part)
    return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))
