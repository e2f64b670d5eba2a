"""What the LUTT is worth: LAMP and ROAD with it and without (SPS Architecture, section VI.B, Table 9).

Without a LUTT every subscription would be evaluated on every update. As in the paper that is an estimate: what the hit
subscriptions cost, times the subscriptions there are for each that is hit. Measured is a third way, the paper's own: a
table for each subscription, and all of them walked on every update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.city import City
from benchmarks.experiment import ExperimentError, Figure, Options, Report, steps
from benchmarks.lighting import UPDATES
from benchmarks.primitives import COARSE, expected_notifications, fine, subscriptions, value_of_run
from benchmarks.subject import BareStore, Round, n_triples, subject
from edge.engine.performance import clock

_PUBLISHED: Final = {"lamp": 122, "road": 130}

Table = list[tuple[tuple[int, int] | None, str]]
"""The patterns of one subscription: a subject (road and lamp, or road and 0) where that is a constant; a predicate."""


def run(options: Options) -> Report:
    """Measure LAMP and ROAD, walk the tables of all subscriptions, estimate the rest."""
    quads = list(options.city.quads())
    triples = n_triples(quads)
    texts = list(subscriptions(options.city))
    tables = list(_tables(options.city))
    figures: list[Figure] = []
    with subject(quads, options) as engine:
        engine.subscribe(steps(texts, "subscribing"))
        for number, profile in enumerate(("lamp", "road")):
            rounds, endpoint, walks = [], [], []
            for turn in steps(range(options.runs), profile):
                updates = UPDATES[profile](options.city, value_of_run(2 * turn + number))
                rounds.append(engine.round(updates))
                engine.check(expected_notifications(profile, options.city))
                endpoint.append(BareStore(triples).round(updates))
                walks.append(_walk(tables, options.city, profile))
            figures += _compare(profile, rounds, endpoint, walks, len(texts))
    indicators = {"subscriptions": [len(texts)] * options.runs, "updates": [len(updates)] * options.runs}
    return Report("lutt", options.mode, indicators, figures)


def _compare(
    profile: str, rounds: Sequence[Round], endpoint: Sequence[int], walks: Sequence[int], subscribed: int
) -> Iterator[Figure]:
    if not all(one.inside.hits for one in rounds):
        raise ExperimentError("this engine does not count what its LUTT lets through")
    on = [one.spent for one in rounds]
    booster = [one.inside.booster.total for one in rounds]
    lutt = [one.inside.lutt.total for one in rounds]
    all_ = [spent * one.updates * subscribed / one.inside.hits for spent, one in zip(booster, rounds, strict=True)]
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


def _tables(city: City) -> Iterator[Table]:
    """The look-up tables of the subscription profile (SPS Architecture, Table 4)."""
    for road, lamp in fine(city):
        yield [((road, lamp), "hasDimmingValue")]
    for road in COARSE:
        yield [((road, 0), "isConnectedTo"), (None, "hasLamp"), (None, "hasDimmingValue")]


def _walk(tables: Sequence[Table], city: City, profile: str) -> int:
    """Look for each update's changed lamps in every table. Returns nanoseconds."""
    changes = [[(road, lamp) for lamp in city.lamps(road)[: 1 if profile == "lamp" else None]] for road in city.roads]
    hit = []
    began = clock()
    for lamps in changes:
        for table in tables:
            for subject_, predicate in table:
                if predicate == "hasDimmingValue" and (subject_ is None or subject_ in lamps):
                    hit.append(table)
                    break
    return clock() - began
