"""Check that the gateway runs, responds, and makes progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edge.doctor.context import DoctorContext, Unasked
from edge.doctor.finding import Finding, ok, unknown

_MAKES_PROGRESS: Final = "moves"
"""State of a component that makes progress, in `/health`."""
_READY: Final = 200
_DENIED: Final = (401, 403)


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check by the lock of the data directory, and by `/health`."""
    if around.shut:
        yield unknown(
            f"this user may not read {around.data_dir}, so the state of its gateway is not known",
            "run it as root (`sudo edge doctor`), or as the user that runs the gateway",
        )
        return
    if around.process is None:
        yield Finding(
            "problem",
            f"no gateway runs on {around.data_dir}",
            "readings are lost, or wait at the broker; some checks are not possible without the gateway",
            "start it: `systemctl start edge`, or `edge run`; select another gateway with --data-dir or --config",
        )
        return
    try:
        status, health = around.health()
    except Unasked as error:
        yield Finding(
            "problem",
            f"it runs (process {around.process}) and does not answer: {error}",
            "clients get no answer either; some checks are not possible without an answer",
            "check its log (`journalctl -u edge`); wait if it is starting, else restart it: `systemctl restart edge`",
        )
        return
    if status in _DENIED:
        yield unknown(
            f"it runs (process {around.process}), but rejects the token in EDGE_TOKEN",
            "edge clients token NAME prints one",
        )
        return
    if status != _READY:
        yield Finding(
            "problem",
            str(health.get("error_description") or f"it answers {status}"),
            "the gateway is degraded",
            "solve the reported problem; the gateway then continues by itself",
        )
        return
    yield from _state(health, around.process)


def _state(health: Mapping[str, Any], process: int) -> Iterator[Finding]:
    """Report the problems that `/health` of a working gateway lists."""
    still = [f"{part}: {state}" for part, state in (health.get("parts") or {}).items() if state != _MAKES_PROGRESS]
    for fault in still:
        yield Finding(
            "warning",
            f"a component makes no progress: {fault}",
            "the watchdog restarts it if it stays so",
            "check again",
        )
    check = "see `edge mapping check FILE`; the gateway loads the file as soon as it is saved"
    yield from _faults("mapping", health.get("mapping_faults"), check)
    yield from _faults("rule", health.get("rule_faults"), check.replace("mapping check", "rules test"))
    yield from _faults("continuous query", health.get("query_faults"), "correct its file, or publish the query again")
    if not still:
        yield ok(f"version {health.get('version')} runs (process {process}), and all its components make progress")
    # `/health` has this member only for clients that may see the state of the gateway.
    if "uptime_seconds" not in health:
        yield unknown(
            "unauthenticated clients get few details: backlog and mapping problems were not checked",
            "export EDGE_TOKEN=$(edge clients token NAME) of a client that may administer",
        )


def _faults(kind: str, faults: object, remedy: str) -> Iterator[Finding]:
    if isinstance(faults, dict):
        faults = [f"{name}: {fault}" for name, fault in faults.items()]
    for fault in faults if isinstance(faults, list) else []:
        description = " ".join(map(str, fault.values())) if isinstance(fault, dict) else str(fault)
        yield Finding(
            "warning",
            f"a {kind} has an error: {description}",
            "it has no effect",
            remedy,
        )
