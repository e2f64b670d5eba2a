"""Explain why a text is not a SPARQL 1.1 query or update: the problem, the place, the remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, Literal

from edge.sparql.diagnosis import Diagnosis, line_and_column
from edge.sparql.grammar import Grammar, UnexpectedToken, sparql, symbols
from edge.sparql.rule_fault import rule_fault
from edge.sparql.tokens import Token

NAMESPACES: Final = {
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.opengis.net/ont/geosparql#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "qudt": "http://qudt.org/1.1/schema/qudt#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "saref": "https://saref.etsi.org/core/",
    "schema": "https://schema.org/",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "sosa": "http://www.w3.org/ns/sosa/",
    "ssn": "http://www.w3.org/ns/ssn/",
    "time": "http://www.w3.org/2006/time#",
    "unit": "http://qudt.org/1.1/vocab/unit#",
    "wot": "https://www.w3.org/2019/wot/td#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
"""Common prefixes, for which the remedy can offer the whole declaration."""

_LABELS: Final = {
    "Expression": "an expression",
    "Call": "a function call",
    "BuiltIn": "a function call",
    "Path": "a property path",
    "Object": "a term or variable",
    "Literal": "a literal",
    "VarOrIri": "a variable or IRI",
    "Iri": "an IRI",
    "GraphPattern": "a graph pattern such as OPTIONAL",
    "Comparator": "a comparison",
    "Additive": "an operator",
    "Multiplicative": "an operator",
}
"""Rules whose terminals a message replaces by one phrase, the larger ones first."""

_KINDS: Final = {
    "var": "a variable",
    "iri": "an IRI in < >",
    "name": "a prefix",
    "string": "a string",
    "number": "a number",
    "blank": "a blank node",
    "lang": "a language tag",
}
_SCHEMES: Final = frozenset({"urn", "http", "https", "mailto", "mqtt", "coap", "tag", "file"})
"""Prefixes that were most probably meant as the scheme of an IRI."""

_RDF12: Final = frozenset({"<<", "<<(", ">>", ")>>", "~"})
_OPERATORS: Final = {"AND": "&&", "OR": "||", "==": "=", "<>": "!="}
"""Operators of other languages, with those of SPARQL."""

_PAIRS: Final = {"{": "}", "(": ")", "[": "]"}
_RDF12_PAIRS: Final = {"<<": ">>", "<<(": ")>>"}
_MOST_EXPECTED: Final = 8
"""Alternatives that a message lists."""

_MOST_TOKENS: Final = 5_000
"""Tokens of a text that is checked against the grammar, which takes 10 microseconds for each."""

_CLOSE: Final = 0.77
"""Similarity (`difflib`) from which a keyword is suggested that is allowed here."""

_CLOSE_PREFIX: Final = 0.7
"""Similarity from which a prefix is suggested. Two swapped letters of four have a similarity of 0.75."""

_VERY_CLOSE: Final = 0.8
"""Similarity from which a keyword is suggested that is not allowed here."""


_PLACE: Final = re.compile(r"error at (\d+):(\d+)")
_SENTENCE: Final = re.compile(r"\b[A-Z][a-z]\w*(?: [A-Za-z]+){2,}|\bIRI parsing failed")
"""Prose among the alternatives that the parser of Oxigraph lists."""

_LIMITATIONS: Final = {
    "Duplicated variable": ("SELECT", "A variable occurs twice in SELECT", "Name each variable once."),
    "not authorized with GROUP BY": (
        "GROUP",
        "GROUP BY is supported only in SELECT queries",
        "Put the grouping into a sub-select: { SELECT ... GROUP BY ... }.",
    ),
}
"""Keyword, problem and remedy of valid texts that Oxigraph rejects, by words of its message."""

_CHECKLIST: Final = (
    "Check that BIND and AS assign new variables, that SELECT with GROUP BY names only grouped variables and "
    "aggregates, and that no blank node label occurs in two groups."
)

_RDF12_FORMS: Final = (
    "Write << ?s ?p ?o >> or <<( ?s ?p ?o )>> in place of a term, and ~ ?reifier or {| ?p ?o |} after an object."
)


def explain(
    form: Literal["query", "update"],
    text: str,
    tokens: Sequence[Token],
    parser_message: str,
    position: int | None = None,
) -> str:
    """Return the message for the author of a text that Oxigraph has rejected. See `diagnose`."""
    return diagnose(form, text, tokens, parser_message, position).message(text)


def diagnose(
    form: Literal["query", "update"],
    text: str,
    tokens: Sequence[Token],
    parser_message: str,
    position: int | None = None,
) -> Diagnosis:
    """Explain why Oxigraph has rejected `text`.

    `tokens`: the whole text. `parser_message`: of Oxigraph's error, which is used only for rules beyond the grammar.
    `position`: the index of the character that it reports; None: that of `reported_position`.
    """
    if position is None:
        position = reported_position(text, parser_message)
    if len(tokens) > _MOST_TOKENS:
        problem = f"This {form} is not valid SPARQL 1.1 at or before this place"
        return Diagnosis(position, problem, "Send a shorter text to learn the exact place.")
    return grammar_fault(form, text, tokens, rdf12=True) or _beyond_grammar(
        form, text, tokens, parser_message, position
    )


def grammar_fault(
    form: Literal["query", "update"], text: str, tokens: Sequence[Token], *, rdf12: bool
) -> Diagnosis | None:
    """Explain the first violation of the grammar, or the first undeclared prefix. None: there is none.

    `rdf12`: whether to ignore faults at signs of RDF 1.2, because the parser accepts them.
    """
    failure = sparql().check(form.capitalize(), symbols(tokens))
    undeclared = _undeclared_prefix(tokens)
    if rdf12 and failure is not None and failure.token < len(tokens) and tokens[failure.token].text in _RDF12:
        failure = None
    # The first problem of the text is reported: a later one may be its consequence.
    if undeclared is not None and (failure is None or _position(failure, tokens, text) > undeclared.position):
        return undeclared
    if failure is None:
        return None
    if failure.token < len(tokens):
        return _unexpected(form, tokens, failure)
    return _too_short(text, tokens, failure)


def _position(failure: UnexpectedToken, tokens: Sequence[Token], text: str) -> int:
    return tokens[failure.token].start if failure.token < len(tokens) else len(text)


# Rules of the grammar


def _unexpected(form: str, tokens: Sequence[Token], failure: UnexpectedToken) -> Diagnosis:
    """Explain a token that the grammar does not allow."""
    token = tokens[failure.token]
    expected = _phrase(sparql(), failure)
    allowed = {symbol.text or symbol.kind for symbol in failure.expected}
    problem, remedy = f'"{_short(token.text)}" is not allowed here', f"Expected: {expected}."
    if token.kind == "word":
        problem, remedy = _unexpected_word(tokens, failure.token, allowed, expected)
    elif token.text in _PAIRS.values() and not _open_brackets(tokens[: failure.token]):
        problem, remedy = f'"{token.text}" closes no bracket', f"Remove it. Expected: {expected}."
    elif failure.token and (before := tokens[failure.token - 1]).text + token.text in _OPERATORS:
        operator = before.text + token.text
        return Diagnosis(before.start, f"{operator} is not an operator of SPARQL", f"Write {_OPERATORS[operator]}.")
    elif failure.token and tokens[failure.token - 1].word() == "NOT" and allowed == {"EXISTS"}:
        remedy = "Write NOT EXISTS { ... }, or ! before a condition."
    # As in SQL: `SELECT ?a, ?b`.
    elif token.text == "," and "var" in allowed:
        remedy = "Separate variables by spaces."
    # The tokenizer reads < as an operator if no IRI follows it.
    elif token.text == "<" and "iri" in allowed:
        problem, remedy = "This IRI is not closed", "Add >, and write a space in it as %20."
    elif token.text == "@" and "lang" in allowed:
        problem, remedy = "The language tag is missing", "Write for example @en."
    elif failure.token and tokens[failure.token - 1].kind == "lang" and _touch(tokens[failure.token - 1], token):
        problem, remedy = (
            f"{tokens[failure.token - 1].text}{token.text} is not a language tag",
            "Write for example @de-1996.",
        )
    return Diagnosis(token.start, problem, remedy)


def _unexpected_word(tokens: Sequence[Token], index: int, allowed: Collection[str], expected: str) -> tuple[str, str]:
    """Return problem and remedy for a word. `allowed`: texts and kinds of terminals."""
    name, word = _short(tokens[index].text), tokens[index].text.upper()
    keywords = _keywords(sparql())
    problem = f"{name} is not allowed here" if word in keywords else f"{name} is not a SPARQL 1.1 keyword"
    if index and tokens[index - 1].text.upper() == "PREFIX":
        return f'The prefix "{name}" has no colon', f"Write PREFIX {name}: before its IRI."
    calls = index + 1 < len(tokens) and tokens[index + 1].text == "("
    if _OPERATORS.get(word) in allowed:
        return f"{name} is not an operator of SPARQL", f"Write {_OPERATORS[word]}."
    # A keyword in the wrong place is no misspelling of another one.
    near = None if word in keywords else _nearest(word, keywords.intersection(allowed), _CLOSE)
    if near is not None:
        return problem, f"Did you mean {near}?"
    if word in keywords:
        # `SELECT COUNT(?x)` is accepted by some stores, and is not SPARQL 1.1.
        functions = {symbol.text for symbol in sparql().first("BuiltIn").symbols}
        computed = calls and word in functions and {"var", "("} <= {*allowed}
        return problem, f"Write ({name}(...) AS ?name)." if computed else f"Expected: {expected}."
    if calls and "STR" in allowed:
        return f"{name} is not a SPARQL 1.1 function", "Use a built-in function, or the IRI of another function."
    near = _nearest(word, keywords, _VERY_CLOSE)
    if near is not None:
        return problem, f"Did you mean {near}?"
    if "iri" in allowed:
        problem = f"{name} is neither a keyword nor a term"
        return problem, f'Write an IRI as <{name}> or prefix:{name}, a string as "{name}", a variable as ?{name}.'
    return problem, f"Expected: {expected}."


def _too_short(text: str, tokens: Sequence[Token], failure: UnexpectedToken) -> Diagnosis:
    """Explain a text that ends where the grammar requires more."""
    expected = _phrase(sparql(), failure)
    if not tokens:
        return Diagnosis(len(text), "The text is empty", f"Expected: {expected}.")
    opened = _open_brackets(tokens)
    if opened:
        last = opened[-1]
        line, column = line_and_column(text, last.start)
        problem = f'The bracket "{last.text}" at line {line}, column {column} is not closed'
        return Diagnosis(len(text), problem, f'Add "{_PAIRS[last.text]}", or continue with: {expected}.')
    return Diagnosis(len(text), "The text ends too early", f"Expected: {expected}.")


def _open_brackets(tokens: Sequence[Token]) -> list[Token]:
    """Return the brackets that are open after the tokens, the innermost last."""
    opened: list[Token] = []
    for token in tokens:
        if token.text in _PAIRS:
            opened.append(token)
        elif token.text in _PAIRS.values() and opened:
            opened.pop()
    return opened


def _phrase(grammar: Grammar, failure: UnexpectedToken) -> str:
    """Return the alternatives in words, the most general ones first."""
    left = set(failure.expected)
    phrases: dict[str, None] = {}
    for rule, label in _LABELS.items():
        begin = grammar.first(rule).symbols
        if begin <= left:
            phrases[label] = None
            left -= begin
    phrases |= dict.fromkeys(_KINDS[symbol.kind] for symbol in sorted(left) if symbol.kind in _KINDS)
    phrases |= dict.fromkeys(sorted(symbol.text for symbol in left if symbol.kind == "word" and symbol.text != "A"))
    phrases |= dict.fromkeys(f'"{symbol.text}"' for symbol in sorted(left) if symbol.kind == "sign")
    shown = list(phrases)
    if failure.ends:
        shown.append("the end of the text")
    if len(shown) > _MOST_EXPECTED:
        return ", ".join(shown[:_MOST_EXPECTED]) + " and others"
    return " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _keywords(grammar: Grammar) -> frozenset[str]:
    """Return all keywords and functions of the grammar."""
    return frozenset(symbol.text for symbol in grammar.terminals() if symbol.kind == "word" and len(symbol.text) > 1)


def _nearest(word: str, words: Collection[str], similarity: float) -> str | None:
    import difflib  # 3 ms, and only suggestions need it

    close = difflib.get_close_matches(word, sorted(words), n=1, cutoff=similarity)
    return close[0] if close else None


def _touch(token: Token, other: Token) -> bool:
    """Return whether nothing is between two tokens."""
    return token.start + len(token.text) == other.start


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."


# Rules beyond the grammar


def _undeclared_prefix(tokens: Sequence[Token]) -> Diagnosis | None:
    """Explain the first prefixed name whose prefix is not declared before it."""
    declared: set[str] = set()
    declaring = False
    for token in tokens:
        if token.kind == "name":
            prefix = token.text.partition(":")[0]
            if declaring:
                declared.add(prefix)
            elif prefix not in declared:
                near = None if prefix in NAMESPACES else _nearest(prefix, declared, _CLOSE_PREFIX)
                remedy = f"Add: PREFIX {prefix}: <{NAMESPACES.get(prefix, 'the IRI that it stands for')}>"
                if prefix in _SCHEMES:
                    remedy = f"Write an IRI in angle brackets: <{prefix}:...>"
                elif near is not None:
                    remedy = f"Did you mean {near}:?"
                return Diagnosis(token.start, f'The prefix "{prefix}:" is not declared', remedy)
        declaring = token.kind == "word" and token.text.upper() == "PREFIX"
    return None


def _beyond_grammar(
    form: Literal["query", "update"], text: str, tokens: Sequence[Token], parser_message: str, position: int
) -> Diagnosis:
    """Explain a violation of rules on IRIs, strings, variables or blank nodes that the grammar does not express."""
    rdf12 = any(token.text in _RDF12 for token in tokens)
    found = _unclosed_rdf12(tokens) if rdf12 else rule_fault(form, text, tokens)
    if found is not None:
        return found
    for words, (keyword, problem, remedy) in _LIMITATIONS.items():
        if words in parser_message:
            places = [token.start for token in tokens if token.start < position and token.word() == keyword]
            return Diagnosis(places[-1] if places else position, problem, remedy)
    sentence = _SENTENCE.search(parser_message)
    iris = [token for token in tokens if token.kind == "iri" and token.start < position]
    if sentence is None or (rdf12 and not iris):
        if rdf12:
            return Diagnosis(
                position, f"This {form} is not valid: it has RDF 1.2 syntax before this place", _RDF12_FORMS
            )
        return Diagnosis(position, f"This {form} is not valid, although each of its parts is well formed", _CHECKLIST)
    if sentence[0] == "IRI parsing failed":
        # Oxigraph reports a place after the IRI, so the last one before it is meant.
        place = iris[-1].start if iris else position
        problem = f"{_short(iris[-1].text)} is not a valid IRI" if iris else "An IRI is not valid"
        return Diagnosis(place, problem, "Write characters that an IRI cannot have as % and two hexadecimal digits.")
    return Diagnosis(position, sentence[0], _CHECKLIST)


def _unclosed_rdf12(tokens: Sequence[Token]) -> Diagnosis | None:
    """Explain the first bracket of RDF 1.2 that another closing bracket or the end of the text leaves open."""
    opened: list[Token] = []
    for token in tokens:
        sign = token.text
        if sign in _PAIRS or sign in _RDF12_PAIRS:
            opened.append(token)
        # The tokenizer reads the end of `<< ?s ?p (1 2)>>` as one sign.
        elif sign == ")>>" and opened and opened[-1].text == "(":
            del opened[-2:]
        elif sign in _PAIRS.values() or sign in _RDF12_PAIRS.values():
            if opened and opened[-1].text in _RDF12_PAIRS and _RDF12_PAIRS[opened[-1].text] != sign:
                break
            del opened[-1:]
    unclosed = [token for token in opened if token.text in _RDF12_PAIRS]
    if not unclosed:
        return None
    last = unclosed[-1]
    problem = f'The bracket "{last.text}" of RDF 1.2 is not closed'
    return Diagnosis(last.start, problem, f'Add "{_RDF12_PAIRS[last.text]}" after its three terms.')


def reported_position(text: str, parser_message: str) -> int:
    """Return the position that Oxigraph reports, which is at or after the error."""
    place = _PLACE.search(parser_message)
    if place is None:
        return len(text)
    # Oxigraph counts lines by LF alone: a CR is a character of its line.
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    line, column = int(place[1]), int(place[2])
    return min(starts[min(line, len(starts)) - 1] + column - 1, len(text))
