"""Benefit of the LUTT: LAMP and ROAD with it and without (SPS Architecture, section VI.B, Table 9).

Without a LUTT every update would evaluate every subscription. As in the paper, this cost is an estimate: the cost of
the hit subscriptions, times the ratio of all subscriptions to those hit. The experiment measures a third variant, that
of the paper: a table for each subscription, all of which are searched on every update. This search also counts the
hits for the estimate, one for each subscription. The engine counts subscriptions that it evaluates together only once,
which would make a hit look more expensive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.lighting import UPDATES
from edge.bench.primitives import expected_notifications, subscriptions, value_of_run
from edge.bench.subject import BareStore, Round, n_triples, subject
from edge.bench.tables import tables_of, walk

_PUBLISHED: Final = {"lamp": 122, "road": 130}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure LAMP and ROAD, walk the tables of all subscriptions, estimate the rest."""
    quads = list(options.city.quads())
    triples = n_triples(quads)
    texts = list(subscriptions(options.city))
    tables = list(tables_of(options.city))
    figures: list[Figure] = []
    with subject(quads, options) as engine:
        engine.subscribe(steps(texts, "subscribing"))
        for number, profile in enumerate(("lamp", "road")):
            rounds, endpoint, walks, hits = [], [], [], 0
            for turn in steps(range(options.runs), profile):
                # Both profiles use one engine: a value of its own for each round, so that all updates change the graph.
                updates = UPDATES[profile](options.city, value_of_run(2 * turn + number))
                rounds.append(engine.round(updates))
                engine.check(expected_notifications(profile, options.city))
                endpoint.append(BareStore(triples).round(updates))
                walked, hits = walk(tables, options.city, profile)
                walks.append(walked)
            figures += _compare(profile, rounds, endpoint, walks, len(texts) * len(updates) / hits)
    indicators = {"subscriptions": [len(texts)] * options.runs, "updates": [len(updates)] * options.runs}
    return ExperimentReport("lutt", options.mode, indicators, figures)


def _compare(
    profile: str, rounds: Sequence[Round], endpoint: Sequence[int], walks: Sequence[int], for_each_hit: float
) -> Iterator[Figure]:
    """Yield the figures of a profile. `for_each_hit`: pairs of update and subscription for each hit (100 / LHR)."""
    on = [one.spent for one in rounds]
    booster = [one.inside.booster.total for one in rounds]
    lutt = [one.inside.lutt.total for one in rounds]
    # The estimate: all subscriptions are evaluated, and no time is spent in the LUTT.
    all_ = [spent * for_each_hit for spent in booster]
    off = [total - a - b + c for total, a, b, c in zip(on, booster, lutt, all_, strict=True)]
    for name, meaning, values in (
        ("t_lutt", "T_LUTT, one index for all subscriptions", lutt),
        ("t_lutt_walked", "T_LUTT, a table for each subscription, all walked", walks),
        ("t_booster_on", "T_BOOSTER with the LUTT", booster),
        ("t_booster_off", "T_BOOSTER without (estimate)", all_),
        ("t_total_on", "T_TOTAL with the LUTT", on),
        ("t_total_off", "T_TOTAL without (estimate)", off),
    ):
        yield Figure(f"{profile}_{name}_ms", f"{profile.upper()}: {meaning}, ms", [value / 1e6 for value in values])
    for state, totals in (("on", on), ("off", off)):
        e2e = [(total - bare) / bare for total, bare in zip(totals, endpoint, strict=True)]
        yield Figure(f"{profile}_e2e_{state}", f"{profile.upper()}: E2E, LUTT {state}", e2e)
    ratios = [without / with_ for without, with_ in zip(off, on, strict=True)]
    yield Figure(f"{profile}_ratio", f"{profile.upper()}: Ups on / off; published {_PUBLISHED[profile]}", ratios)
