"""Properties of both front ends: any text has a query or an error, and windows survive a round trip as text."""

from __future__ import annotations

import contextlib
import sys

import pyoxigraph as ox
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from edge.protocol.errors import LimitExceeded, ParsingFailed
from edge.sparql.query import read_query
from edge.sparql.tokens import tokenize
from edge.streams.language import BASE, MAX_TEXT, brackets_text, describe, parse, report_text
from edge.streams.language.durations import (
    LONGEST,
    SHORTEST,
    InvalidValueError,
    duration_text,
    read_duration,
    read_time,
    time_text,
)
from edge.streams.model import ReportPolicy, WindowDefinition, WindowKind

WORDS = (
    *(
        "REGISTER",
        "QUERY",
        "STREAM",
        "RSTREAM",
        "ISTREAM",
        "COMPUTED",
        "EVERY",
        "AS",
        "SELECT",
        "*",
        "ASK",
        "CONSTRUCT",
    ),
    *(
        "DESCRIBE",
        "FROM",
        "NAMED",
        "WINDOW",
        "ON",
        "WHERE",
        "GRAPH",
        "RANGE",
        "STEP",
        "TUMBLING",
        "TRIPLES",
        "ELEMENTS",
    ),
    *(
        "LANDMARK",
        "SESSION",
        "NOW",
        "START",
        "REPORT",
        "CLOSE",
        "CHANGE",
        "NON",
        "EMPTY",
        "PREFIX",
        "BASE",
        "GROUP",
        "BY",
    ),
    *("FILTER", "timestamp", "AGGREGATE", "(", ")", "[", "]", "{", "}", "<", ">", "-", ".", ";", "^^", "<<(", ")>>"),
    *("<urn:w>", "<urn:s>", "<w>", "e:w", "e:", ":", "?s", "_:b", "'x'", '"2026-01-01T00:00:00Z"', "@en", "# x\n"),
    *(
        "10s",
        "PT10S",
        "P1M",
        "10",
        "1.5",
        "-1",
        "1e9",
        "0",
        "s",
        "q",
        "a",
        "true",
        "10:s",
        "\\",
        "\u00e9",
        "\ud800",
        "\0",
    ),
)
TEXTS = (
    "REGISTER QUERY q COMPUTED EVERY 2s AS PREFIX e: <urn:> SELECT ?s FROM STREAM e:s [RANGE 10s STEP 5s] "
    "FROM NAMED STREAM <urn:t> [RANGE TRIPLES 10] FROM <urn:g> WHERE { ?s ?p ?o GRAPH <urn:t> { ?s ?q ?r } }",
    "PREFIX : <urn:> REGISTER DSTREAM :out AS CONSTRUCT { ?s ?p 1 } FROM NAMED WINDOW :w ON :s [RANGE PT10S STEP "
    'PT5S START "2026-01-01T00:00:00Z"] NON EMPTY FROM NAMED :g { WINDOW :w { ?s ?p ?o } GRAPH :g { ?s ?p ?o } }',
    "REGISTER RSTREAM <out> AS ASK FROM NAMED WINDOW <w> ON <s> [LANDMARK NOW STEP 1m] EVERY PT5S { WINDOW <w> {} }",
)


def parsed(text):
    """Return the query of a text and no error, or no query and the error."""
    try:
        return parse(text), ""
    except ParsingFailed as error:
        return None, error.description


def check(text):
    """Parse a text; check its query or its error."""
    query, error = parsed(text)
    if query is None:
        assert " (line " in error
        return
    assert len(query.sparql) == len(text)
    assert query.sparql.count("\n") == text.count("\n")
    assert read_query(query.sparql, BASE).form == query.form
    ox.Store().query(query.sparql, base_iri=BASE)
    # Each token of the query is one of the text, at the same position.
    tokens = {token.start: token.text for token in tokenize(text)}
    for token in tokenize(query.sparql):
        assert token.text == tokens[token.start] or (token.word(), tokens[token.start].upper()) == ("GRAPH", "WINDOW")
    assert parse(query.text) == query
    assert describe(query)


@given(st.lists(st.sampled_from(WORDS), max_size=30), st.sampled_from(["", " "]))
def test_any_sequence_of_words_parses_or_is_refused(words, space):
    check(space.join(words))


@given(st.sampled_from(TEXTS), st.data())
def test_any_change_of_a_registration_parses_or_is_refused(text, data):
    tokens = [token.text for token in tokenize(text)]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(tokens)))
        kept = data.draw(st.integers(0, 1))
        tokens[at : at + kept] = data.draw(st.lists(st.sampled_from([*WORDS, *tokens]), max_size=3))
    check(" ".join(tokens))


@given(st.sampled_from(TEXTS), st.text(max_size=5), st.integers(0, 300), st.integers(0, 3))
@example(TEXTS[0], "\ud800", 10, 0)
@example(TEXTS[1], "\r\n", 40, 0)
@example(TEXTS[2], "#\ud800\n", 60, 0)
@example("", "\0", 0, 0)
def test_any_change_of_characters_parses_or_is_refused(text, inserted, at, removed):
    check(text[:at] + inserted + text[at + removed :])


def test_examples_parse():
    for text in TEXTS:
        check(text)
        parse(text)


def steps(text):
    """Return the number of lines that Python executes while a text is parsed."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event in ("line", "call")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.suppress(ParsingFailed):
            parse(text)
    finally:
        sys.settrace(before)
    return count


STREAM = "FROM STREAM <urn:s> [RANGE 1s]"
HEAD = f"REGISTER QUERY q AS SELECT * {STREAM} "


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda n: "{" * n, id="braces"),
        pytest.param(lambda n: "REGISTER " * n, id="keywords"),
        pytest.param(lambda n: f"REGISTER QUERY {'a-' * n} AS", id="name"),
        pytest.param(lambda n: "PREFIX e: <urn:e> " * n, id="declarations"),
        pytest.param(lambda n: HEAD + "{ ?s ?p " + "1, " * n, id="objects"),
        pytest.param(lambda n: HEAD + STREAM * n, id="the same stream"),
        pytest.param(
            lambda n: HEAD + "".join(f"FROM STREAM <urn:{i}> [RANGE 1s] " for i in range(n)) + "{}", id="streams"
        ),
        pytest.param(lambda n: HEAD + "FROM <urn:g> " * n + "{}", id="graphs"),
        pytest.param(lambda n: HEAD + "{ VALUES ?s { " + "1 " * n + "} }", id="values"),
        pytest.param(
            lambda n: f"REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE {'1' * n}s] {{}}", id="digits"
        ),
        pytest.param(lambda n: HEAD + '{ ?s ?p "' + "\\" * n, id="string"),
        pytest.param(lambda n: HEAD + "{ ?s ?p ?o FILTER(" + "!" * n + "?o) }", id="operators"),
        pytest.param(lambda n: HEAD + "{ ?s ?p ?o FILTER(" + "?o<" * n + "?o) }", id="comparisons"),
        pytest.param(lambda n: HEAD + "WHERE { } #" + "x" * n, id="comment"),
        pytest.param(
            lambda n: f"{'# x' * n}\nREGISTER RSTREAM <o> AS ASK {{ {'WINDOW <w> {} ' * n} }}", id="undeclared windows"
        ),
    ],
)
def test_the_time_of_parsing_is_linear(make):
    parse(TEXTS[0])  # the grammar is built on first use
    small, large = steps(make(250)), steps(make(1000))
    assert large <= 4 * small + 20_000


@pytest.mark.parametrize("part", ["{", "a ", "?", "<", "1", "\u00e9", "'", "#", "\n", "[RANGE "])
def test_a_megabyte_is_refused(part):
    with pytest.raises(LimitExceeded) as found:
        parse((HEAD + part * 1_000_000)[:1_000_000])
    assert "more than 65,536" in found.value.description
    assert len(found.value.description) < 300
    assert MAX_TEXT == 65_536


# Windows as text

spans = st.integers(SHORTEST, LONGEST) | st.sampled_from([SHORTEST, LONGEST, 1_000_000, 60_000_000, 86_400_000_000])
times = st.integers(0, 253_402_300_799_999_999)
counts = st.integers(1, 1_000_000)
brackets = st.one_of(
    st.builds(WindowDefinition, st.just("urn:s"), st.just(WindowKind.TIME), spans, spans, times),
    st.builds(
        WindowDefinition, st.just("urn:s"), st.sampled_from([WindowKind.COUNT, WindowKind.TRIPLES]), counts, counts
    ),
    st.builds(WindowDefinition, st.just("urn:s"), st.just(WindowKind.LANDMARK), st.just(0), spans, times),
    st.builds(WindowDefinition, st.just("urn:s"), st.just(WindowKind.SESSION), spans, st.just(0)),
)


@st.composite
def definitions(draw):
    window = draw(brackets)
    report = draw(st.sampled_from(ReportPolicy))
    period = draw(spans) if report is ReportPolicy.PERIODIC else 0
    return WindowDefinition(window.stream, window.kind, window.size, window.step, window.start, report, period)


@given(st.lists(definitions(), min_size=1, max_size=4))
def test_windows_survive_a_round_trip_as_text(windows):
    clauses = [
        f"FROM NAMED WINDOW <urn:{number}> ON <urn:s> {brackets_text(window)} {report_text(window)}"
        for number, window in enumerate(windows)
    ]
    groups = " ".join(f"WINDOW <urn:{number}> {{ ?s ?p ?o }}" for number in range(len(windows)))
    query = parse(f"REGISTER RSTREAM <urn:out> AS SELECT * {' '.join(clauses)} WHERE {{ {groups} }}")
    assert [window.definition for window in query.windows] == windows


@given(spans)
def test_durations_survive_a_round_trip(span):
    assert read_duration(duration_text(span)) == span


@given(times)
def test_times_survive_a_round_trip(time):
    assert read_time(time_text(time)) == time


@given(st.text(max_size=20) | st.from_regex(r"P?[0-9]{0,20}[YMWD]?T?[0-9.]{0,20}[HMSms]?", fullmatch=True))
def test_durations_of_any_text(text):
    with contextlib.suppress(InvalidValueError):
        assert SHORTEST <= read_duration(text) <= LONGEST


@given(
    st.text(max_size=30)
    | st.from_regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-9:.]{8,12}(Z|[+-][0-9:]{5})?", fullmatch=True)
)
def test_times_of_any_text(text):
    try:
        time = read_time(text)
    except InvalidValueError:
        return
    assume(text.isascii())
    assert read_time(time_text(time)) == time


@pytest.mark.parametrize("text", TEXTS[:1] + TEXTS[-1:], ids=["first", "last"])
@pytest.mark.parametrize(
    "part",
    [
        "BIND(STRLANGDIR('a', 'en', 'ltr') AS ?made)",
        "BIND('a'@en--ltr AS ?made)",
        "?made <urn:p> 'a'@en--ltr",
        "FILTER(hasLANGDIR(?made))",
        "BIND(TRIPLE(<urn:a>, <urn:b>, 1) AS ?made)",
        "BIND(<<( <urn:a> <urn:b> 1 )>> AS ?made)",
    ],
    ids=["strlangdir", "literal", "pattern", "haslangdir", "triple", "term"],
)
def test_terms_of_rdf_12_are_refused(text, part):
    """Reports could not have them: a continuous query can be the source of a stream, whose elements are RDF 1.1."""
    end = text.rindex("}")
    assert parsed(text)[0] is not None
    query, error = parsed(f"{text[:end]} {part} {text[end:]}")
    assert query is None
    assert " (line " in error
