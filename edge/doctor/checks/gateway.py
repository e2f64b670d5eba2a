"""Does the gateway run, does it answer, and do all its parts move?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.doctor.context import Context, Unasked
from edge.doctor.finding import Finding, ok, unknown

_MOVES: Final = "moves"
_READY: Final = 200
_DENIED: Final = (401, 403)


def check(around: Context) -> Iterator[Finding]:
    """Told by the lock of the data directory, and by `/health`."""
    if around.shut:
        yield unknown(
            f"this user may not look into {around.data_dir}: whether a gateway runs there is not known",
            "run it as root (`sudo edge doctor`), or as the user that runs the gateway",
        )
        return
    if around.process is None:
        yield Finding(
            "problem",
            f"no gateway runs on {around.data_dir}",
            "readings are not taken, or wait at the broker; what only the gateway knows could not be looked at",
            "start it: `systemctl start edge`, or `edge run`; --data-dir and --config say which gateway is meant",
        )
        return
    try:
        status, health = around.health()
    except Unasked as error:
        yield Finding(
            "problem",
            f"it runs (process {around.process}) and does not answer: {error}",
            "clients get no answer either; what only the gateway knows could not be looked at",
            "look at its log (`journalctl -u edge`); if it starts, wait; else restart it: `systemctl restart edge`",
        )
        return
    if status in _DENIED:
        yield unknown(
            f"it runs (process {around.process}), and the token in EDGE_TOKEN does not count there",
            "edge clients token NAME prints one",
        )
        return
    if status != _READY:
        yield Finding(
            "problem",
            str(health.get("error_description") or f"it answers {status}"),
            "it does not do all that it should",
            "what it says is what to see to; it goes on by itself when that is mended",
        )
        return
    still = [f"{part}: {state}" for part, state in (health.get("parts") or {}).items() if state != _MOVES]
    for fault in still:
        yield Finding(
            "warning", f"a part stands still: {fault}", "it is restarted by itself, if it stays so", "look again"
        )
    yield from _faults("mapping", health.get("mapping_faults"))
    yield from _faults("standing query", health.get("query_faults"))
    if not still:
        yield ok(f"version {health.get('version')} runs (process {around.process}), and all its parts move")
    if "uptime_seconds" not in health:
        yield unknown(
            "the gateway tells strangers little: backlog, and faults of mappings, could not be looked at",
            "export EDGE_TOKEN=$(edge clients token NAME) of a client that may administer",
        )


def _faults(kind: str, faults: object) -> Iterator[Finding]:
    if isinstance(faults, dict):
        faults = [f"{name}: {fault}" for name, fault in faults.items()]
    for fault in faults if isinstance(faults, list) else []:
        told = " ".join(map(str, fault.values())) if isinstance(fault, dict) else str(fault)
        yield Finding(
            "warning",
            f"a {kind} cannot be used as it is: {told}",
            "what it is for does not happen",
            "`edge mapping check FILE` tells more; it applies as soon as the file is saved",
        )
