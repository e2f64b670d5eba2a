"""LAMP and ROAD: 310 updates against 1,004 subscriptions (SPS Architecture, section V.B; Tables 8, 10 to 14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from edge.bench.experiment import ExperimentOptions, ExperimentReport, steps
from edge.bench.primitives import expected_notifications, lamp_updates, road_updates, subscriptions, value_of_run
from edge.bench.subject import BareStore, Round, n_triples, subject
from edge.bench.tables import hit_rate
from edge.engine.performance import Statistics

Profile = Literal["lamp", "road"]

UPDATES: Final = {"lamp": lamp_updates, "road": road_updates}


def run(profile: Profile, options: ExperimentOptions) -> ExperimentReport:
    """Run LAMP or ROAD. Each run measures the engine and then a bare store, with the same updates and triples."""
    quads = list(options.city.quads())
    triples = n_triples(quads)
    texts = list(subscriptions(options.city))
    expected = expected_notifications(profile, options.city)
    rounds: list[Round] = []
    endpoint: list[int] = []
    with subject(quads, options) as engine:
        engine.subscribe(steps(texts, "subscribing"))
        for number in steps(range(options.runs), profile):
            updates = UPDATES[profile](options.city, value_of_run(number))
            one = options.mode == "sequential"
            rounds.append(engine.round(updates) if one else engine.pipelined_round(updates, expected))
            endpoint.append(BareStore(triples).round(updates))
            engine.check(expected)
    report = ExperimentReport(
        profile, options.mode, indicators(rounds, len(texts), endpoint, hit_rate(options.city, profile))
    )
    if options.mode == "sequential":
        # One real run instead of the medians of each phase, which need not add up.
        middle = sorted(rounds, key=lambda one: one.spent)[len(rounds) // 2]
        report.notes = phases(middle)
    return report


def indicators(
    rounds: Sequence[Round], subscribed: int, endpoint: Sequence[int], lhr: float
) -> dict[str, Sequence[float]]:
    """Return the key performance indicators of each round (SPS Architecture, Table 1).

    `endpoint` has the durations on the bare store in nanoseconds. `lhr` is in percent.
    """
    found = {name: [value / 1e6 for value in values] for name, values in _times(rounds, endpoint).items()}
    ups = [one.updates / one.spent * 1e9 for one in rounds]
    sps = [subscribed * value for value in ups]
    return {
        "subscriptions": [subscribed for _ in rounds],
        "updates": [one.updates for one in rounds],
        "notifications": [one.notifications for one in rounds],
        "ups": ups,
        "sps": sps,
        "tps": [one.triples / one.updates * value for one, value in zip(rounds, sps, strict=True)],
        "lhr": [lhr for _ in rounds],
        "e2e": [(one.spent - bare) / bare for one, bare in zip(rounds, endpoint, strict=True)],
        **found,
    }


def _times(rounds: Sequence[Round], endpoint: Sequence[int]) -> dict[str, Sequence[int]]:
    return {
        "nl_min_ms": [one.inside.latency.least for one in rounds],
        "nl_max_ms": [one.inside.latency.greatest for one in rounds],
        "t_update_ms": [one.update for one in rounds],
        "t_lutt_ms": [one.inside.lutt.total for one in rounds],
        "t_booster_ms": [one.inside.booster.total for one in rounds],
        "t_notify_ms": [one.inside.notify.total for one in rounds],
        "t_total_ms": [one.spent for one in rounds],
        "t_endpoint_ms": endpoint,
    }


def phases(middle: Round) -> list[str]:
    """Return the phases of an update in the run with the median T_TOTAL, as lines of a table."""
    inside = middle.inside
    # `middle.update` has all time outside the other phases, `inside.update` only that of the engine.
    journal = middle.update - inside.update.total
    rows: list[tuple[str, Statistics]] = [
        ("T_UPDATE", inside.update),
        ("T_LUTT", inside.lutt),
        ("T_BOOSTER", inside.booster),
        ("T_NOTIFY", inside.notify),
        ("T_TOTAL", middle.each),
    ]
    lines = [f"{'us an update':<12} {'share':>6} {'mean':>10} {'sigma':>10} {'min':>10} {'max':>10}"]
    for name, phase in rows:
        values = (phase.mean, phase.sigma, phase.least, phase.greatest)
        share = f"{100 * phase.total / middle.spent:.0f} %"
        lines.append(f"{name:<12} {share:>6} " + " ".join(f"{value / 1000:>10.1f}" for value in values))
    share = f"{100 * journal / middle.spent:.0f} %"
    lines.insert(2, f"{'  journal':<12} {share:>6} {journal / middle.updates / 1000:>10.1f}")
    return [*lines, "", "t_update_ms includes the journal (its commit, and the publication of the change) in T_UPDATE."]
