"""A query that reads the results of another one, against the oracle: any operators, windows and restarts."""

from __future__ import annotations

from collections import Counter

import pyoxigraph as ox
import pytest
from processor_oracle import Arrival, Question, reports_of
from story_seeds import check_stories, seeds
from test_processor_oracle import SECOND, Story, quiet

from edge.protocol.access import ANYBODY
from edge.streams.model import Element, NamedWindow, StreamOperator
from edge.streams.names import stream_iri

__all__ = ["quiet"]


class Chain(Story):
    """A story whose query "q" makes the stream that the query "r" reads."""

    has_others = False

    def __init__(self, seed, directory):
        super().__init__(seed, directory)
        rng = self.rng
        self.brackets, self.reports = [], []
        self.windows = [self.window(0)]
        self.lateness = 0
        self.language, self.is_named = "RSP-QL", True
        self.operator, self.next_operator = rng.choice(list(StreamOperator)), rng.choice(list(StreamOperator))
        self.body = "CONSTRUCT { ?s <urn:hot> ?v } WHERE { A[ ?s <urn:v> ?v ] }"
        report = rng.choice(["", " NON EMPTY", f" EVERY PT{rng.randint(1, 6)}S"])
        self.next_text = (
            f"REGISTER {self.next_operator} <urn:edge:stream:r> AS SELECT ?s ?v "
            f"FROM NAMED WINDOW <urn:x> ON <urn:edge:stream:q> "
            f"[RANGE PT{rng.randint(1, 12)}S STEP PT{rng.randint(1, 8)}S]{report} "
            "WHERE { WINDOW <urn:x> { ?s <urn:hot> ?v } }"
        )

    def begin(self, processor):
        super().begin(processor)
        query = processor.register("r", self.next_text, ANYBODY, self.now * SECOND)
        self.next_windows = (NamedWindow("urn:x", query.query.windows[0].definition),)

    def check(self):
        self.run()
        self.story.insert(1, self.next_text)
        self.check_query(self.question, self.arrivals, self.made("q"))
        graphs = [(each.time // SECOND, each.rows) for each in self.made("q") if each.rows]
        derived = [
            Arrival(stream_iri("q"), Element(time, number, tuple(ox.Triple(*row) for row in rows)), time)
            for number, (time, rows) in enumerate(graphs, 1)
        ]
        sparql = "SELECT ?s ?v WHERE { GRAPH <urn:x> { ?s <urn:hot> ?v } }"
        question = Question(sparql, self.next_operator, self.next_windows, self.begun, live_default=True)
        expected = reports_of(question, derived, 0, self.live.at, self.now)
        found = [(each.time // SECOND, Counter(map(self.plain, each.rows))) for each in self.made("r")]
        assert found == expected


@pytest.mark.parametrize("numbers", seeds(60))
def test_reports_on_the_results_of_a_query_are_those_of_the_oracle(numbers, tmp_path, monkeypatch):
    check_stories(Chain, numbers, tmp_path, monkeypatch)
