"""The processor against an oracle: any query, window and order of elements, late ones, restarts and live changes."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter

import pyoxigraph as ox
import pytest
from processor_oracle import Arrival, Question, reports_of
from story_seeds import check_stories, seeds

from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.streams.language import parse
from edge.streams.model import Element, NamedWindow, QueryForm, ReportPolicy, StreamOperator, WindowKind
from edge.streams.names import stream_iri
from edge.streams.processor import AdvanceInProgress, NewElement, Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

SECOND = 1_000_000
BEGIN = 1_000_000
"""Seconds since 1970 at which all stories begin."""

ONE = [
    "SELECT ?s ?v WHERE { A[ ?s <urn:v> ?v FILTER(?v > 4) ] }",
    "SELECT ?s ?v ?n WHERE { A[ ?s <urn:v> ?v ] L[ ?s <urn:name> ?n ] }",
    "SELECT * WHERE { A[ ?s <urn:v> ?v OPTIONAL { ?s <urn:w> ?w } ] }",
    "SELECT ?s (COUNT(?v) AS ?n) (MAX(?v) AS ?m) (SUM(?v) AS ?t) WHERE { A[ ?s <urn:v> ?v ] } GROUP BY ?s "
    "HAVING(?n > 1)",
    "SELECT (AVG(?v) AS ?a) WHERE { A[ ?s <urn:v> ?v ] }",
    "SELECT DISTINCT ?v WHERE { A[ ?s ?p ?v ] }",
    "SELECT ?s ?x WHERE { { A[ ?s <urn:v> ?x ] } UNION { A[ ?s <urn:w> ?x ] } }",
    "SELECT ?s ?v WHERE { A[ ?s <urn:v> ?v FILTER NOT EXISTS { ?s <urn:w> ?w } ] }",
    "SELECT ?s ?v WHERE { A[ ?s <urn:v> ?v MINUS { ?s <urn:w> ?v } ] }",
    "SELECT ?s ?o WHERE { A[ ?s <urn:next>+ ?o ] }",
    "SELECT ?s ?o WHERE { A[ ?s (<urn:v>|<urn:w>) ?o ] }",
    "ASK { A[ ?s <urn:v> ?v FILTER(?v = 3) ] }",
    "CONSTRUCT { ?s <urn:hot> ?v } WHERE { A[ ?s <urn:v> ?v FILTER(?v > 3) ] }",
    "SELECT ?s ?d WHERE { A[ ?s <urn:v> ?v BIND(?v * 2 AS ?d) ] }",
]
TWO = [
    "SELECT ?s ?v ?w WHERE { A[ ?s <urn:v> ?v ] B[ ?s <urn:v> ?w ] }",
    "SELECT ?s ?v ?w WHERE { A[ ?s <urn:v> ?v ] OPTIONAL { B[ ?s <urn:w> ?w ] } }",
    "SELECT ?s (COUNT(*) AS ?n) WHERE { { A[ ?s <urn:v> ?v ] } UNION { B[ ?s <urn:v> ?v ] } } GROUP BY ?s",
    "CONSTRUCT { ?s <urn:both> ?v } WHERE { A[ ?s <urn:v> ?v ] B[ ?s <urn:v> ?v ] }",
    "SELECT ?s ?v WHERE { A[ ?s <urn:v> ?v ] FILTER NOT EXISTS { B[ ?s <urn:v> ?x FILTER(?x > ?v) ] } }",
]
NODES = [ox.NamedNode("urn:a"), ox.NamedNode("urn:b"), ox.BlankNode("x"), ox.BlankNode("y")]
KINDS = [WindowKind.TIME] * 4 + [
    WindowKind.LANDMARK,
    WindowKind.SESSION,
    WindowKind.SESSION,
    WindowKind.COUNT,
    WindowKind.TRIPLES,
]
ALIGNED = (WindowKind.TIME, WindowKind.LANDMARK)


class Live:
    """Live data in a store, which changes at some times."""

    def __init__(self):
        self.triples = {ox.Triple(NODES[0], ox.NamedNode("urn:name"), ox.Literal("a"))}
        self.past = [(0, 0, frozenset(self.triples))]
        self.followers = []

    def follow(self, sparql, access, changed, failed):
        self.followers.append((sparql, changed))
        return list(self.rows(sparql).elements()), lambda: None

    def rows(self, sparql):
        store = ox.Store()
        store.extend(ox.Quad(*triple, ox.DefaultGraph()) for triple in self.triples)
        return Counter(tuple(row) for row in store.query(sparql))

    def change(self, triple, now, turn):
        before = [self.rows(sparql) for sparql, _ in self.followers]
        self.triples ^= {triple}
        self.past.append((now, turn, frozenset(self.triples)))
        for (sparql, changed), old in zip(self.followers, before, strict=True):
            new = self.rows(sparql)
            changed(list((new - old).elements()), list((old - new).elements()))

    def at(self, time, turn):
        """The triples at a time, in a turn: just before the arrival with this number."""
        return [each[2] for each in self.past if each[0] < time or (each[0] == time and each[1] < turn) or not each[0]][
            -1
        ]


class Story:
    """A random query on random windows, with random input."""

    def __init__(self, seed, directory=None):
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.pauses = random.Random(seed)
        self.directory = directory
        self.origin = seed // 2 % 8  # all alignments of steps of up to 8 s, with large and small pieces
        self.lateness = rng.choice([0, 0, 3, 12, 40])
        self.has_restarts = directory is not None and rng.random() < 0.5
        self.streams = ["s", "t"]
        names = rng.choice([1, 1, 1, 2])
        self.windows = [self.window(place) for place in range(names)]
        self.language = rng.choice(["C-SPARQL", "RSP-QL"]) if self._csparql_allowed() else "RSP-QL"
        self.operator = rng.choice([*StreamOperator, "RSTREAM"]) if self.language == "RSP-QL" else "RSTREAM"
        body = rng.choice(ONE if names == 1 else TWO)
        self.is_named = self.language == "RSP-QL" or rng.random() < 0.5
        self.body = body if self.is_named or "L[" not in body else ONE[0]
        if self.language == "C-SPARQL" and "L[" in self.body:
            self.body = ONE[0]
        self.live = Live()
        self.arrivals = []
        self.numbers = Counter()
        self.now = BEGIN
        self.begun = None
        """Time at which the query "q" was registered."""
        self.others = {}
        """Queries that were registered during a slide, by name: question or begin, and the places of the first arrival
        and the first report.
        """
        self.ended = None
        """Number of reports at the end of the query "d"."""
        self.got = []

    def _csparql_allowed(self):
        return len(self.windows) == 1 and self.windows[0].report is ReportPolicy.CLOSE

    def window(self, place):
        rng = self.rng
        kind = rng.choice(KINDS)
        report = rng.choice([ReportPolicy.CLOSE, ReportPolicy.CLOSE, *ReportPolicy])
        size, step = rng.randint(1, 12), rng.randint(1, 8)
        stream = rng.choice(["s", "s", "t"]) if place else "s"
        text = {
            WindowKind.TIME: f"[RANGE PT{size}S STEP PT{step}S]",
            WindowKind.LANDMARK: f'[LANDMARK "1970-01-12T13:46:4{rng.randint(0, 9)}Z" STEP PT{step}S]',
            WindowKind.SESSION: f"[SESSION PT{min(size, 5)}S]",
            WindowKind.COUNT: f"[ELEMENTS {size} STEP {step}]",
            WindowKind.TRIPLES: f"[TRIPLES {size} STEP {step}]",
        }[kind]
        if kind is WindowKind.TIME and rng.random() < 0.3:
            text = f'[RANGE PT{size}S STEP PT{step}S START "1970-01-12T13:46:4{rng.randint(0, 9)}Z"]'
        self.brackets = [*getattr(self, "brackets", ()), text]
        every = f" EVERY PT{rng.randint(1, 6)}S" if report is ReportPolicy.PERIODIC else ""
        reports = {ReportPolicy.CHANGE: " ON CHANGE", ReportPolicy.NON_EMPTY: " NON EMPTY"}.get(report, every)
        probe = parse(
            "REGISTER RSTREAM <urn:q> AS SELECT * "
            f"FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:{stream}> {text}{reports} "
            "WHERE { WINDOW <urn:w> { ?s ?p ?o } }",
            t0=self.origin * SECOND,
        )
        self.reports = [*getattr(self, "reports", ()), reports]
        return probe.windows[0].definition

    def text(self, name="q", longer=0):
        """Return the query in its language, and as SPARQL. `longer`: added to the sizes of its windows."""
        brackets = [
            re.sub(r"\d+(?=S| STEP|\])", lambda n: str(int(n[0]) + longer), each, count=1) for each in self.brackets
        ]
        body = self.body
        if self.language == "C-SPARQL":
            iri = stream_iri("s")
            group = f"GRAPH <{iri}> {{" if self.is_named else "{"
            plain = body.replace("A[", group).replace("]", "}")
            head, _, rest = plain.partition("{" if body.startswith("ASK") else "WHERE")
            where = ("{" if body.startswith("ASK") else "WHERE") + rest
            source = f"FROM {'NAMED ' if self.is_named else ''}STREAM <{iri}> {brackets[0]}"
            return f"REGISTER QUERY {name} AS {head} {source} {where}", plain, (iri if self.is_named else "",)
        clauses = " ".join(
            f"FROM NAMED WINDOW <urn:w{place}> ON <{window.stream}> {text}{reports}"
            for place, (window, text, reports) in enumerate(zip(self.windows, brackets, self.reports, strict=True))
        )
        marked = body.replace("A[", "WINDOW <urn:w0> {").replace("B[", "WINDOW <urn:w1> {").replace("L[", "{")
        marked = marked.replace("]", "}")
        word = "{" if body.startswith("ASK") else "WHERE"
        head, _, rest = marked.partition(word)
        text = f"REGISTER {self.operator} <urn:edge:stream:{name}> AS {head} {clauses} {word}{rest}"
        return text, marked.replace("WINDOW <", "GRAPH <"), tuple(f"urn:w{i}" for i in range(len(self.windows)))

    def processor(self):
        self.store = StreamStore(self.directory)
        self.live.followers.clear()
        settings = StreamSettings(window_origin=f"1970-01-01T00:00:0{self.origin}Z")
        return Processor(settings, self.store, lambda: make_engine(EngineSettings()), self.live, lambda access: access)

    def element(self):
        rng = self.rng
        triples = []
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            kind = rng.random()
            subject = rng.choice(NODES)
            if kind < 0.15:
                triples.append(ox.Triple(subject, ox.NamedNode("urn:next"), rng.choice(NODES)))
            else:
                value = ox.Literal(rng.randint(0, 8))
                triples.append(ox.Triple(subject, ox.NamedNode("urn:v" if kind < 0.7 else "urn:w"), value))
        return tuple(dict.fromkeys(triples))

    @property
    def is_exact(self):
        """Whether late elements make exact corrections."""
        # The content of a session window between its reports is not kept for so long.
        has_session = any(window.kind is WindowKind.SESSION for window in self.windows)
        return len(self.windows) == 1 or not (self._is_by_arrival or has_session)

    @property
    def has_others(self):
        """Whether queries come and end during slides."""
        return self.seed % 4 == 1

    @property
    def earliest(self):
        """The least delay of an element that comes during a slide."""
        if len(self.windows) == 1:
            return -self.lateness - 1
        return -self.lateness if self.is_exact else 0

    @property
    def _is_by_arrival(self):
        return any(
            window.kind in (WindowKind.COUNT, WindowKind.TRIPLES) or window.report is ReportPolicy.CHANGE
            for window in self.windows
        )

    def run(self):
        rng = self.rng
        text, self.sparql, names = self.text()
        late = self.lateness and self.is_exact
        self.story = [text]
        processor = self.processor()
        processor.advance(self.now * SECOND)
        for name in self.streams:
            processor.put_stream(name, self.lateness * SECOND, ANYBODY)
        for _ in range(rng.randint(0, 2)):
            processor = self.add(processor, rng.randint(-2, 0))
        self.begin(processor)
        self.begun = self.now
        self.arrivals.clear()
        for _ in range(rng.randint(5, 25)):
            action = rng.random()
            if action < 0.4:
                self.now += rng.choice([0, 1, 1, 2, 5, 12])
                processor = self.advance(processor, self.now)
                self.report(processor)
            elif action < 0.9:
                for _ in range(rng.choice([1, 1, 1, 2, 4])):
                    delay = rng.randint(-self.lateness, 3) if late and rng.random() < 0.6 else rng.randint(0, 2)
                    if len(self.windows) == 1 and rng.random() < 0.1:
                        delay = -self.lateness - rng.randint(1, 5)
                    processor = self.add(processor, delay)
            elif not late and not self.has_restarts and self.now > BEGIN:
                triple = ox.Triple(rng.choice(NODES[:2]), ox.NamedNode("urn:name"), ox.Literal(rng.choice("ab")))
                processor = self.advance(processor, self.now)
                self.live.change(triple, self.now, len(self.arrivals))
                self.story.append(f"live {triple} at {self.now}")
            if self.has_restarts and rng.random() < 0.3:
                if rng.random() < 0.5:
                    self.report(processor)
                processor = self.restarted(processor, self.now)
                processor = self.advance(processor, self.now)
        self.now += 30
        for now in range(self.now - 30, self.now + 1, 5):
            processor = self.advance(processor, now)
            self.report(processor)
        processor.close()
        self.store.close()
        windows = tuple(NamedWindow(name, window) for name, window in zip(names, self.windows, strict=True))
        self.question = self.asked(windows, self.begun)

    def begin(self, processor):
        processor.register("q", self.text()[0], ANYBODY, self.now * SECOND)
        if self.has_others:
            # It shares the windows, and is paused and ended during slides.
            processor.register("d", self.text("d")[0], ANYBODY, self.now * SECOND)

    def asked(self, windows, begun):
        return Question(self.sparql, StreamOperator(self.operator), windows, begun, self.language == "RSP-QL")

    def restarted(self, processor, now):
        self.got += processor._committer.durable  # durable, so observers get them
        processor.close()
        self.store.close()
        processor = self.processor()
        # A slide that was in progress is made again, with the elements that came meanwhile.
        time = self.store.time // SECOND
        self.arrivals = [each._replace(made=min(each.taken, time)) for each in self.arrivals]
        processor.restore(now * SECOND)
        self.story.append(f"restart at {now}")
        return processor

    def advance(self, processor, now):
        """Let the windows slide. In the middle of a slide, an element can come, or the process ends and starts again.

        Returns the processor.
        """
        restarts = 0
        while not processor.advance(now * SECOND):
            if not processor.is_advancing:
                continue
            self.report(processor)
            action = self.pauses.random()
            if action < 0.2:
                try:
                    self.add_now(processor, self.pauses.randint(self.earliest, 2), now)
                except AdvanceInProgress:
                    self.story.append(f"which waits at {now}")
            elif action < 0.3 and self.has_restarts and restarts < 3:
                restarts += 1  # not too many: each makes the slide again
                processor = self.restarted(processor, now)
            elif action < 0.6 and self.has_others and self.begun is not None:
                self.change(processor, now)
        return processor

    def change(self, processor, now):
        """Register, pause or end a query in the middle of a slide."""
        action = self.pauses.choice(["register", "pause", "restart", "pause", "restart", "end"])
        self.story.append(f"{action} at {now}")
        if action == "register" and len(self.others) < 2:
            self.register(processor, now)
        elif processor.find("d") is not None:
            if action == "end":
                processor.unregister("d", ANYBODY)
                self.ended = len(self.got)
            else:
                processor.pause("d", ANYBODY, paused=action == "pause")

    def register(self, processor, now):
        """Register a query with the same windows, or with longer ones."""
        # Elements of the story come at the time of the slide, and not after it as real ones. So windows that depend on
        # arrivals are those of the other query.
        name, longest = f"p{len(self.others)}", 0 if self._is_by_arrival else 20 + len(self.others)
        longer = self.pauses.choice([0, longest])
        text, _, names = self.text(name, longer)
        try:
            query = processor.register(name, text, ANYBODY, now * SECOND)
        except AdvanceInProgress:
            self.story.append("which waits")
            return
        windows = tuple(
            NamedWindow(name, each.definition) for name, each in zip(names, query.query.windows, strict=True)
        )
        self.others[name] = (
            self.asked(windows, query.begun // SECOND) if longer else query.begun,
            len(self.arrivals),
            len(self.got),
        )

    def add(self, processor, delay):
        processor = self.advance(processor, self.now)
        self.add_now(processor, delay, self.now)
        return processor

    def add_now(self, processor, delay, now):
        triples, stream = self.element(), self.rng.choice(self.streams)
        time = now + delay
        processor.add(stream, [NewElement(triples, time * SECOND)], ANYBODY, now * SECOND)
        self.numbers[stream] += 1
        self.arrivals.append(Arrival(stream_iri(stream), Element(time, self.numbers[stream], triples), now))
        self.story.append(f"{stream} {self.numbers[stream]}: {time} at {now}: {' . '.join(map(str, triples))}")

    def report(self, processor):
        self.got += processor.store_reports()

    def check(self):
        self.run()
        self.check_query(self.question, self.arrivals, self.made("q"))
        for name, (question, arrivals, reports) in self.others.items():
            if isinstance(question, Question):
                self.check_query(question, self.arrivals[arrivals:], self.made(name))
            else:
                # With the same windows, it makes the reports and corrections of the other query since its begin.
                same = [each for each in self.got[reports:] if each.query == "q" and each.time >= question]
                assert list(map(plain, self.made(name))) == list(map(plain, same))
        known = list(map(plain, self.made("q")))
        assert self.compares or all(plain(each) in known for each in self.made("d"))
        assert all(each.query != "d" for each in self.got[self.ended or len(self.got) :])

    @property
    def compares(self):
        return self.operator != "RSTREAM" and not self.sparql.startswith("ASK")

    def made(self, name):
        """Return the reports of a query."""
        found = [report for report in self.got if report.query == name]
        assert [report.number for report in found] == list(range(1, len(found) + 1))
        return found

    def check_query(self, question, arrivals, got):
        expected = reports_of(question, arrivals, self.lateness, self.live.at, self.now)
        found: dict[int, Counter] = {}
        for report in got:
            rows = found.setdefault(report.time // SECOND, Counter())
            if report.form is QueryForm.ASK:
                rows.clear()
            rows.update(Counter(map(self.plain, report.rows)))
            if report.form is not QueryForm.ASK:
                rows.subtract(Counter(map(self.plain, report.removed or ())))
        wanted: dict[int, Counter] = {}
        for time, rows in expected:
            wanted.setdefault(time, Counter()).update(rows)
        if question.sparql.startswith("ASK"):
            wanted = dict(expected)
        assert {time: +rows for time, rows in found.items() if +rows or -rows} == {
            time: rows for time, rows in wanted.items() if rows
        }
        assert not any(-rows for rows in found.values())
        if not self.lateness:
            whole = [(report.time // SECOND, Counter(map(self.plain, report.rows))) for report in got]
            assert whole == expected

    def plain(self, row):
        if self.sparql.startswith("ASK"):
            return (row[0].value,)
        return tuple(None if term is None else str(term) for term in row)


def plain(report):
    """Return what is equal in the reports of equal queries."""
    return report.time, report.form, Counter(report.rows), Counter(report.removed or ()), report.removed is None


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("numbers", seeds(600))
def test_reports_and_corrections_are_those_of_the_oracle(numbers, tmp_path, monkeypatch):
    check_stories(Story, numbers, tmp_path, monkeypatch)
