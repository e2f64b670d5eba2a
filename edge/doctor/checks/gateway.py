"""Check that the gateway runs, responds, and makes progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.doctor.context import DoctorContext, Unasked
from edge.doctor.finding import Finding, ok, problem, unknown, warning

_MAKES_PROGRESS: Final = "moves"
"""State of a component that makes progress, in `/health`."""
_READY: Final = 200
_DENIED: Final = (401, 403)


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check by the lock of the data directory, and by `/health`."""
    if around.shut:
        yield unknown("gateway.no_access", directory=str(around.data_dir))
        return
    if around.process is None:
        yield problem("gateway.stopped", directory=str(around.data_dir))
        return
    process = str(around.process)
    try:
        status, health = around.health()
    except Unasked as error:
        yield problem("gateway.silent", process=process, reason=str(error))
        return
    if status in _DENIED:
        yield unknown("gateway.denied", process=process)
        return
    if status != _READY:
        reason = health.get("error_description")
        yield (
            problem("gateway.degraded", reason=str(reason)) if reason else problem("gateway.status", status=str(status))
        )
        return
    still = {part: str(state) for part, state in (health.get("parts") or {}).items() if state != _MAKES_PROGRESS}
    for part, state in still.items():
        yield warning("gateway.stalled", component=part, reason=state)
    for kind in ("mapping", "rule", "query"):
        for fault, suffix in _faults(health.get(f"{kind}_faults")):
            yield Finding("warning", f"gateway.{kind}_fault{suffix}", {"reason": fault})
    if announcing := health.get("announce_fault"):
        yield warning("gateway.announce_fault", reason=str(announcing))
    if not still:
        yield ok("gateway.runs", version=str(health.get("version")), process=process)
    # `/health` has this member only for clients that may see the state of the gateway.
    if "uptime_seconds" not in health:
        yield unknown("gateway.few_details")


def _faults(faults: object) -> list[tuple[str, str]]:
    """Return the faults in a member of `/health`: the text, and the end of the code of its finding."""
    if isinstance(faults, dict):
        return [(f"{name}: {fault}", "") for name, fault in faults.items()]
    found = faults if isinstance(faults, list) else []
    return [(_text(each), _suffix(each)) if isinstance(each, dict) else (str(each), "") for each in found]


def _suffix(fault: dict[str, object]) -> str:
    """Return how the remedy differs: for an announcement, and for a file whose previous version applies."""
    if fault.get("announced") is True:
        return "_announced"
    return "_previous" if fault.get("previous_version_applies") is True else ""


def _text(fault: dict[str, object]) -> str:
    """Return the file and the reason of a fault. Most reasons begin with the file, which is not repeated then."""
    texts = [each for each in fault.values() if isinstance(each, str)]
    return " ".join(each for each in texts if not any(other != each and other.startswith(each) for other in texts))
